"""Resource plans: requested, answered, applied and deleted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.microbatch.models import SETTINGS, SparkQuery
from apps.microbatch.services import settings_apply
from apps.planning.choices import PlanChoice, PlanEngine, RunState
from apps.planning.models import ResourcePlan
from apps.planning.resource_plans.answers import PlanAnswer, SizedPlan, answer_of, microbatch_answer
from apps.planning.resource_plans.questions import MicroBatchPlanQuestion, read_question
from apps.planning.resource_plans.selectors import PlanSource, SourceInputs
from apps.planning.runs import RESOURCE_PLAN
from apps.queries.models import Query
from engine.microbatch.sizing import SparkPlan
from engine.words import counted

__all__ = [
    "resource_plan_apply",
    "resource_plan_create",
    "resource_plan_delete",
    "resource_plan_request",
    "resource_plan_store",
]


@transaction.atomic
def resource_plan_request(*, cluster: Cluster, user: User | None, **asked: Any) -> tuple[ResourcePlan, Job | None]:
    """Ask for a resource plan; arguments as of `resource_plan_create`.

    Returns
    -------
    The plan, and the job that answers it; none for Spark's micro-batches, which are answered at once.
    """
    row = resource_plan_create(cluster=cluster, user=user, **asked)
    if row.state == RunState.ASKED:
        RESOURCE_PLAN.submit(row, cluster, user)
    return row, row.job


@transaction.atomic
def resource_plan_create(
    *,
    cluster: Cluster,
    user: User | None,
    engine: str,
    query: Query | None = None,
    spark_query: SparkQuery | None = None,
    pool: str = "",
    plan: ResourcePlan | None = None,
    shown: SourceInputs | None = None,
    **given: Any,
) -> ResourcePlan:
    """Create a resource plan without a job; of Spark's micro-batches with its answer.

    Parameters
    ----------
    engine : str
        A value of `PlanEngine`.
    query : Query, optional
        Its statistics give rate and profile where they are not given.
    spark_query : SparkQuery, optional
        Its newest fit, rate and settings are taken where they are not given; the plan can be applied to it.
    pool : str
        Nodes that the plan is for; empty: the pool of most nodes.
    plan : ResourcePlan, optional
        A former plan of the same engine whose inputs are taken over where they are not given.
    shown : SourceInputs, optional
        What the form was filled with, where the source may have changed since.
    given : Any
        Inputs as `questions.read_question` reads them: rate, constraint_s, statistic, profile and others.

    Raises
    ------
    Malformed
        With every fault of the inputs.
    Impossible
        The Spark query has no fit yet, and no profile is given.
    """
    if spark_query is not None and engine != PlanEngine.MICROBATCH:
        message = "a Spark query goes with engine microbatch; its fit does not tell map from reduce"
        raise Malformed(f"spark_query: {message}.", [("spark_query", message)])
    source = PlanSource(cluster, engine, query, spark_query, pool, plan, shown)
    _require_fit(source, given.get("profile"))
    question = read_question(engine, given, source.inputs())
    row = ResourcePlan.objects.create(
        cluster=cluster,
        engine=engine,
        query=query or (source.former and source.former.query),
        spark_query=spark_query or (source.former and source.former.spark_query),
        basis=source.basis(),
        question=question.document,
        origins=question.origins,
        requested_by=user if user is not None and user.pk else None,
    )
    if isinstance(question.asked, MicroBatchPlanQuestion):
        started = time.perf_counter()
        answer = microbatch_answer(question.asked, source.notes)
        resource_plan_store(row=row, answer=answer, duration_s=time.perf_counter() - started)
    return row


def resource_plan_store(*, row: ResourcePlan, answer: PlanAnswer, duration_s: float) -> ResourcePlan:
    """Store an answer. Of a job, it is called inside the job's transaction."""
    row.result, row.facts, row.model_version = answer.to_dict(), _facts(answer), answer.model
    row.state, row.finished_at, row.duration_s = RunState.ANSWERED, timezone.now(), duration_s
    row.save(update_fields=["result", "facts", "model_version", "state", "finished_at", "duration_s", "updated_at"])
    RESOURCE_PLAN.announce(row)
    return row


@transaction.atomic
def resource_plan_apply(*, row: ResourcePlan, user: User | None, choice: str = PlanChoice.THROUGHPUT) -> ResourcePlan:
    """Take the plan's settings for its Spark query.

    Sluice's own stream processor changes its trigger interval, the one setting that it can change while it runs; of
    any other query it is noted that these settings are in force from now on.

    Raises
    ------
    Conflict
        There is no answer yet.
    Impossible
        Nothing is feasible, no Spark query belongs to the plan, or the plan needs more cores than the stream processor
        has.
    """
    row = ResourcePlan.objects.select_for_update(of=("self",)).select_related("spark_query", "cluster").get(pk=row.pk)
    answer = answer_of(row)
    if answer is None:
        raise Conflict("The plan has no answer yet; there is nothing to apply.")
    end: SizedPlan | None = getattr(answer.ends, choice)
    query = row.spark_query
    if end is None:
        raise Impossible("No plan is feasible; there is nothing to apply.", [("choice", "there are no such settings")])
    if query is None or not isinstance(end, SparkPlan):
        message = "the plan belongs to no Spark query"
        raise Impossible(f"{message[0].upper()}{message[1:]}: copy its settings instead.", [("spark_query", message)])
    if query.is_own:
        _require_cores(query, end)
        settings_apply(query=query, user=user, trigger_s=end.trigger_s)
    else:
        settings_apply(query=query, user=user, **{name: getattr(end, name) for name in SETTINGS})
    row.applied_choice, row.applied_by, row.applied_at = choice, user, timezone.now()
    row.save(update_fields=["applied_choice", "applied_by", "applied_at", "updated_at"])
    RESOURCE_PLAN.announce(row)
    return row


@transaction.atomic
def resource_plan_delete(*, row: ResourcePlan) -> None:
    """Delete a resource plan; what it was applied to stays as it is."""
    RESOURCE_PLAN.announce(row)
    row.delete()


def _require_fit(source: PlanSource, profile: Any) -> None:
    """Refuse a profile that is to come from micro-batches that were not fitted yet."""
    query = source.spark_query
    if query is None or source.fit is not None or source.former is not None or source.engine != PlanEngine.MICROBATCH:
        return
    if not isinstance(profile, Mapping) or "c_in_s" not in profile:
        message = f"{query.name} has no fit yet: that takes 3 micro-batches with rows, of 2 sizes, after warm-up"
        raise Impossible(f"{message}. Give a profile, or wait.", [("spark_query", message)])


def _require_cores(query: SparkQuery, end: SparkPlan) -> None:
    cores = query.executors * query.cores_per_executor
    if end.cores > cores:
        message = f"the plan needs {counted(end.cores, 'core')}, and the stream processor has {cores}"
        raise Impossible(
            f"{message[0].upper()}{message[1:]}: while it runs, it can change its trigger interval alone.",
            [("spark_query", message)],
        )


def _facts(answer: PlanAnswer) -> dict[str, Any]:
    """The answer in a few numbers, as lists show it."""
    plan = answer.plan
    if plan is None:
        return {"feasible": False, **(answer.infeasible.to_dict() if answer.infeasible else {})}
    names = ("nodes", "executors", "cores", "max_rate", "headroom", "mean_s", "metric_s")
    return {
        "feasible": True,
        **{name: getattr(plan, name) for name in names if hasattr(plan, name)},
        "limit": plan.limit,
    }
