"""Resource plans: nodes or executors, parallelism and batch intervals for a rate and a latency constraint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone
from drf_spectacular.drainage import set_override
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Impossible, Malformed, Missing
from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.core.rest.api import StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import read_body
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField
from apps.jobs.models import JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.jobs.viewsets import RunDeletion, RunRowSerializer, RunViewSet, describe_create
from apps.microbatch.models import SETTINGS, SparkQuery
from apps.microbatch.services import settings_apply
from apps.planning.choices import ANSWER_STATES, PlanChoice, PlanEngine
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_questions import PLAN_QUESTIONS, MicroBatchPlanQuestion, question_of, read_question
from apps.planning.resource_plan_sources import PlanSource, SourceInputs, spark_query_by_number
from apps.queries.models import Query
from apps.queries.selectors import query_by_name
from engine.microbatch.settings import SettingEffect, setting_effects
from engine.microbatch.sizing import MicroBatchSizing, SparkPlan, size_microbatch
from engine.planner.plan import StagePlan, StageSizing
from engine.records import record_fields
from engine.words import counted

__all__ = [
    "RESOURCE_PLAN",
    "MicroBatchAnswer",
    "PlanAnswer",
    "ResourcePlanCreateSerializer",
    "ResourcePlanDetailSerializer",
    "ResourcePlanFilter",
    "ResourcePlanSerializer",
    "ResourcePlanViewSet",
    "SizedPlan",
    "answer_of",
    "resource_plan_apply",
]


@dataclass(frozen=True, kw_only=True)
class MicroBatchAnswer(MicroBatchSizing):
    """A sizing with the effects of other settings on either end of the curve, and doubts about its inputs."""

    effects: dict[str, tuple[SettingEffect, ...]]
    notes: tuple[str, ...] = ()


SizedPlan = StagePlan | SparkPlan
PlanAnswer = StageSizing | MicroBatchAnswer
ANSWERS: dict[PlanEngine, type[StageSizing] | type[MicroBatchAnswer]] = {
    PlanEngine.STAGE: StageSizing,
    PlanEngine.MICROBATCH: MicroBatchAnswer,
}


def answer_of(row: ResourcePlan) -> PlanAnswer | None:
    """The stored answer of a plan; None while there is none."""
    return None if row.result is None else ANSWERS[PlanEngine(row.engine)].parse(row.result)


def microbatch_answer(asked: MicroBatchPlanQuestion, notes: list[str]) -> MicroBatchAnswer:
    """The engine's answer about micro-batches with all that belongs to it."""
    sizing = size_microbatch(asked.profile, asked)
    ends = {PlanChoice.THROUGHPUT: sizing.ends.throughput, PlanChoice.LATENCY: sizing.ends.latency}
    effects = {str(end): _effects(asked, plan) for end, plan in ends.items() if plan is not None}
    return MicroBatchAnswer(**vars(sizing), effects=effects, notes=tuple(notes))


def _effects(asked: MicroBatchPlanQuestion, plan: SparkPlan) -> tuple[SettingEffect, ...]:
    """Effects of each setting changed alone; the limit of a batch would follow the trigger."""
    settings = replace(plan.settings, max_rows_per_trigger=None)
    return tuple(setting_effects(asked.profile, settings, asked.rate, asked.statistic))


class ResourcePlanKind(RunKind[ResourcePlan]):
    """Nodes or executors for a rate; of Spark's micro-batches answered at once, of a stage by a job."""

    model, job, name, path = ResourcePlan, JobKind.STAGE_PLAN, "resource_plan", "resource-plans"
    topics = ("resource-plan", "resource-plans")
    related = ("cluster", "job", "query", "spark_query", "requested_by", "applied_by")
    columns = ("result", "facts", "model_version", "duration_s")
    retention = timedelta(days=180)

    def title(self, run: ResourcePlan) -> str:
        return f"Resource plan, {run.cluster.slug}"

    def page(self, run: ResourcePlan) -> str:
        return f"/c/{run.cluster.slug}/provisioning/resource-plans/{run.pk}/"

    @transaction.atomic
    def create(
        self,
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
            Inputs as `read_question` reads them: rate, constraint_s, statistic, profile and others.

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
            requested_by=user,
        )
        if isinstance(question.asked, MicroBatchPlanQuestion):
            started = time.perf_counter()
            answer = microbatch_answer(question.asked, source.notes)
            _set_answer(row, answer, started)
            self.store(row)
        return row

    def answer(self, run: ResourcePlan, report: JobReporter) -> None:
        from engine.planner.sizing import size_stage  # numba with it, which only workers load

        report(0.05, "Searching the smallest number of nodes")
        question = question_of(run)
        started = time.perf_counter()
        _set_answer(run, size_stage(**vars(question)), started)

    def facts(self, run: ResourcePlan) -> Mapping[str, object]:
        return {"resource_plan": str(run.pk), **run.facts}


RESOURCE_PLAN = register(ResourcePlanKind())


def _set_answer(run: ResourcePlan, answer: PlanAnswer, started: float) -> None:
    run.result, run.facts, run.model_version = answer.to_dict(), _facts(answer), answer.model
    run.duration_s = time.perf_counter() - started


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


def _facts(answer: PlanAnswer) -> dict[str, object]:
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


class _Input(serializers.JSONField):
    """An input that the question's own record checks, so that every fault of a question is told at once."""


def _inputs() -> dict[str, serializers.Field]:
    """Inputs of both questions that people know by a label, and the parts that are objects."""
    asked = [record_fields(record) for record in PLAN_QUESTIONS.values()]
    made: dict[str, serializers.Field] = {}
    for name, field in {name: field for fields in asked for name, field in fields.items()}.items():
        words = field.words
        if words.label or field.record:
            owners = [engine for engine, fields in zip(PLAN_QUESTIONS, asked, strict=True) if name in fields]
            alone = f"With engine {owners[0]}" if len(owners) == 1 else ""
            label = f"{words.label}, {words.unit}" if words.unit and words.scale == 1 else words.label
            told = ". ".join(part for part in (alone, label, words.help.rstrip(".")) if part)
            made[name] = _Input(required=False, help_text=f"{told}.")
            described = field.kind.schema() if field.kind else {"type": "object" if field.record else "boolean"}
            set_override(made[name], "field", described)
    return made


class ResourcePlanFilter(ListFilter):
    """`?cluster=eu-1&engine=microbatch&state=answered&feasible=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    engine = ChoiceFilter(choices=PlanEngine.choices)
    query = TextFilter("query__name", label="Name of the query of its profile")
    spark_query = NumberFilter("spark_query_id", whole=True, label="Number of its Spark query")
    state = ChoiceFilter(choices=ANSWER_STATES)
    feasible = BooleanFilter("facts__feasible", label="Whether there is a plan")
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "engine", "state", "duration_s", query="query__name", cluster="cluster__slug")


class ResourcePlanCreateSerializer(StrictSerializer):
    """Request for a resource plan. What is left out comes from the source of the profile, or is the default."""

    cluster = ClusterField()
    engine = serializers.ChoiceField(choices=PlanEngine.choices)
    query = serializers.CharField(required=False, help_text="Name of a query: its statistics give rate and profile.")
    spark_query = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**63 - 1,
        help_text="Number of a Spark query: its newest fit gives the profile.",
    )
    pool = serializers.CharField(required=False, help_text="Nodes of this pool; default that of most nodes.")
    plan = serializers.UUIDField(required=False, help_text="A former plan whose inputs are taken over.")

    def get_fields(self) -> dict[str, serializers.Field]:
        return super().get_fields() | _inputs()


class ResourcePlanApplySerializer(StrictSerializer):
    """Which settings of the answer are taken."""

    choice = serializers.ChoiceField(choices=PlanChoice.choices, required=False, help_text="Default throughput.")


class ResourcePlanSerializer(RunRowSerializer):
    """A resource plan in a list: its question, and its answer in a few numbers."""

    query = serializers.CharField(source="query.name", default=None)
    applied_by = serializers.CharField(source="applied_by.username", default=None)
    basis = serializers.JSONField(help_text="Version, nodes and fit that inputs were taken from.")
    question = serializers.JSONField(help_text="Every input, defaults filled in.")
    origins = serializers.JSONField(help_text="{path: measured, predicted, assumed or default}.")
    facts = serializers.JSONField(help_text="feasible, nodes or executors, max_rate and others; empty while asked.")

    class Meta:
        model = ResourcePlan
        fields = ["id", "cluster", "engine", "query", "spark_query", "basis", "question", "origins", "state", "job"]
        fields += ["facts", "model_version", "requested_by", "created_at", "answered_at", "duration_s"]
        fields += ["applied_choice", "applied_at", "applied_by"]


class ResourcePlanDetailSerializer(ResourcePlanSerializer):
    """A resource plan with its answer."""

    result = StoredRecordField(
        *ANSWERS.values(), read_only=True, allow_null=True, help_text="The engine's answer; null while there is none."
    )

    class Meta(ResourcePlanSerializer.Meta):
        fields = [*ResourcePlanSerializer.Meta.fields, "result"]


@describe_create(
    "Plan nodes or executors. Micro-batches are answered at once (201), a stage by a job (202, or 200 when waited"
    "\nfor)."
)
class ResourcePlanViewSet(RunDeletion, RunViewSet):
    """Nodes or executors, parallelism and batch intervals for a rate and a latency constraint.

    POST with engine `microbatch` answers at once (201); `stage` is a job: 202, or the answer with `Prefer: wait=N`.
    A constraint that nothing keeps is an answer too: `feasible` is false, with the limit and what would be feasible.
    """

    kind = RESOURCE_PLAN
    queryset = ResourcePlan.objects.none()
    filterset_class = ResourcePlanFilter
    serializer_class, detail_class = ResourcePlanSerializer, ResourcePlanDetailSerializer
    question_class = ResourcePlanCreateSerializer
    at_once = 201

    def asked(self, request: Request) -> dict[str, Any]:
        find: dict[str, Callable[[Cluster, Any], Any]] = {
            "query": query_by_name,
            "spark_query": spark_query_by_number,
            "plan": _plan_by_id,
        }
        asked = super().asked(request)
        cluster = asked["cluster"]
        return {name: find[name](cluster, value) if name in find else value for name, value in asked.items()}

    @extend_schema(request=ResourcePlanApplySerializer, responses=ResourcePlanDetailSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str | None = None) -> Response:
        """Take the answer's settings for its Spark query: Sluice's own is set, of another it is noted."""
        asked = read_body(ResourcePlanApplySerializer, request)
        run = resource_plan_apply(row=self.get_object(), user=signed_in_user(request), **asked)
        return Response(self.shown(run))


def _plan_by_id(cluster: Cluster, identity: UUID) -> ResourcePlan:
    """A cluster's resource plan by its id."""
    row = RESOURCE_PLAN.visible().filter(cluster=cluster, pk=identity).first()
    if row is None:
        message = f"{cluster.slug} has no resource plan {identity}"
        raise Missing(f"{message[0].upper()}{message[1:]}.", [("plan", message)])
    return row
