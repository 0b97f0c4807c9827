"""Changes to live queries: start, stop, load factors, and following the query and its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.signals import post_delete, post_save, pre_delete
from django.utils import timezone

from apps.core.errors import Conflict, Fault, Impossible, fault_count
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.fleet.validation import check_row
from apps.queries.choices import QueryState
from apps.queries.models import Query, QueryVersion
from apps.telemetry.configs import configs_renew, fixed_settings, push, settings_read
from apps.telemetry.directory import forget_facts_on_commit
from apps.telemetry.models import Agent, AgentKind, Assignment, KnownPlan, LiveQuery, LiveState
from apps.telemetry.pipelines import Executable, executable_of

__all__ = [
    "assignment_set",
    "connect",
    "live_delete",
    "live_refresh",
    "live_start",
    "live_stop",
    "live_update",
    "trial_end",
    "trial_start",
]

_TRIAL_WEIGHT = 0.01  # the least: what others at the agent want goes before
FACTOR = 1.0  # of an operator that is new where load factors are set by hand: near the data, as far as the budget goes

_AT_ONCE = 500  # assignments that are written with one statement


def live_announce(live: LiveQuery) -> None:
    """Tell open pages that a live query changed."""
    announce(f"telemetry:{live.query.cluster.slug}")
    announce(f"query:{live.key}")


@transaction.atomic
def live_start(
    *,
    query: Query,
    agents: Sequence[Agent],
    settings: Mapping[str, object] | None = None,
    **fields: Any,
) -> LiveQuery:
    """Run an admitted query on the records of these agents. One that ran before goes on under its name.

    Parameters
    ----------
    settings : mapping, optional
        How each of these agents finds its load factors (`engine.jarvis.settings`); by itself unless given.
    fields
        `retain_s`, `idle_after_s`, `shed_late`.

    Raises
    ------
    Conflict
        The query does not run, or is live already.
    Impossible
        Its version cannot be executed; each fault names the operator.
    Malformed
        Agents of other clusters, settings out of their safe range.
    """
    query = Query.objects.select_for_update(of=("self",)).select_related("cluster", "running_version").get(pk=query.pk)
    if query.state != QueryState.RUNNING or query.running_version is None:
        raise Conflict(f"Query {query.name!r} is {query.get_state_display().lower()}; only a running one can be live.")
    live = LiveQuery.objects.filter(query=query).first() or LiveQuery(query=query)
    if live.pk and live.state != LiveState.STOPPED:
        raise Conflict(f"Query {query.name!r} is live already. Stop it first, or change its assignments.")
    executable = executable_of(query.running_version)
    if executable.faults:
        raise _not_executable(query, executable)
    _assume(live, query.running_version, executable)
    for name, value in fields.items():
        setattr(live, name, value)
    faults = _agent_faults(query, agents)
    taken = settings_read(settings or {}, live.source_operators, faults)
    check_row(live, faults)
    live.started_at, live.stopped_at = timezone.now(), None
    _store(live)
    live.assignments.exclude(agent__kind=AgentKind.PRODUCER).update(enabled=False)  # producers come by themselves
    now = timezone.now()
    Assignment.objects.bulk_create(
        [
            Assignment(live=live, agent=agent, settings=taken, updated_at=now)
            for agent in {a.pk: a for a in agents}.values()
        ],
        batch_size=_AT_ONCE,
        update_conflicts=True,
        unique_fields=["live", "agent"],
        update_fields=["settings", "enabled", "updated_at"],
    )
    _renew(live)
    return live


@transaction.atomic
def live_stop(*, live: LiveQuery, fault: str = "") -> LiveQuery:
    """Stop a live query; frames that agents still hold are accepted. Stopping twice changes nothing.

    `fault` is why, where nobody asked for it.
    """
    if live.state == LiveState.STOPPED:
        return live
    live.state, live.fault, live.stopped_at = LiveState.STOPPED, fault[:400], timezone.now()
    live.save(update_fields=["state", "fault", "stopped_at", "updated_at"])
    _renew(live)
    return live


@transaction.atomic
def live_delete(*, live: LiveQuery) -> None:
    """Delete a stopped live query, with its results."""
    if live.state != LiveState.STOPPED:
        raise Conflict(f"Query {live.query.name!r} is live. Stop it first.")
    live_announce(live)
    forget_facts_on_commit()
    live.delete()


@transaction.atomic
def trial_start(*, version: QueryVersion, agent: Agent, until: datetime) -> LiveQuery:
    """Run a version that is not admitted at one agent, until `until`, to measure it.

    It has the least weight an assignment can have and no deadline, so that under contention the agent gives it next to
    nothing. Its results are not kept, and `LiveQuery.objects` does not have it.

    Raises
    ------
    Conflict
        The query runs, is tried already, or has a live run that is stopped.
    Impossible
        The version cannot be executed; each fault names the operator.
    Malformed
        An agent of another cluster, or a relay.
    """
    query = Query.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=version.query_id)
    if query.state == QueryState.RUNNING:
        raise Conflict(f"Query {query.name!r} runs; only one that does not can be tried.", code="running")
    if LiveQuery.with_trials.filter(query=query).exists():
        raise Conflict(f"Query {query.name!r} is tried already, or has a stopped live run.", code="live_run")
    executable = executable_of(version)
    if executable.faults:
        raise _not_executable(query, executable)
    live = LiveQuery(query=query, trial_until=until)
    _assume(live, version, executable)
    check_row(live, _agent_faults(query, [agent]))
    _store(live)
    Assignment.objects.create(live=live, agent=agent, weight=_TRIAL_WEIGHT)
    _renew(live)
    return live


@transaction.atomic
def trial_end(*, live: LiveQuery) -> None:
    """Withdraw a trial from its agent and delete it. Frames the agent still holds are accepted."""
    agents = list(live.assignments.values_list("agent", flat=True))
    live.assignments.update(enabled=False)
    configs_renew(agents)
    forget_facts_on_commit()
    announce(f"telemetry:{live.query.cluster.slug}")
    live.delete()


@transaction.atomic
def live_update(*, live: LiveQuery, **fields: Any) -> LiveQuery:
    """Change how long windows take late records (`retain_s`) and agents are waited for (`idle_after_s`), and whether
    agents may lose records that are late everywhere (`shed_late`).
    """
    for name, value in fields.items():
        setattr(live, name, value)
    check_row(live)
    live.save(update_fields=[*fields, "updated_at"])
    if "shed_late" in fields:
        configs_renew(live.assignments.values_list("agent", flat=True))
    live_announce(live)
    return live


@transaction.atomic
def assignment_set(
    *,
    live: LiveQuery,
    agent: Agent,
    settings: Mapping[str, object] | None = None,
    weight: float | None = None,
    enabled: bool | None = None,
) -> Assignment:
    """Create or change an agent's assignment in a live query; fields not given stay as they are.

    `settings` say how it finds its load factors: `{}` leaves them to the agent, `adapting.fixed` sets them by hand.

    Raises
    ------
    Malformed
        An agent of another cluster; settings out of their safe range; by hand, not one load factor, 0 to 1, for each
        operator that may run at a source.
    """
    part = Assignment.objects.select_for_update(of=("self",)).filter(live=live, agent=agent).first()
    part = part or Assignment(live=live, agent=agent)
    faults = _agent_faults(live.query, [agent])
    if settings is not None:
        part.settings = settings_read(settings, live.source_operators, faults)
    part.weight = part.weight if weight is None else weight
    part.enabled = part.enabled if enabled is None else enabled
    check_row(part, faults)
    part.save()
    _renew(live)
    return part


@transaction.atomic
def live_refresh(*, live: LiveQuery) -> tuple[Fault, ...]:
    """Renew the pipeline from the query's running version, its source and tables; returns the faults that prevent it.

    An operator that stays keeps its load factor where that was set by hand.
    """
    version = live.query.running_version
    if version is None:
        return (Fault("", f"query {live.query.name!r} does not run"),)
    executable = executable_of(version)
    if executable.faults:
        return executable.faults
    before = [row["id"] for row in live.pipeline["operators"]]
    _assume(live, version, executable)
    _store(live)
    after = [row["id"] for row in live.pipeline["operators"]][: live.source_operators]
    for part in live.assignments.all():
        if part.by_hand:
            factors = dict(zip(before, part.load_factors, strict=False))
            part.settings |= fixed_settings([factors.get(name, FACTOR) for name in after])
            part.save(update_fields=["settings", "updated_at"])
    _renew(live)
    return ()


def _assume(live: LiveQuery, version: QueryVersion, executable: Executable) -> None:
    """Take over the executable pipeline. Other bytes make another plan."""
    assert executable.pipeline is not None  # where there are no faults
    live.version, live.source, live.joined = version, executable.source, executable.joined
    live.plan, live.pipeline = executable.pipeline.digest, executable.pipeline.document
    live.source_operators = executable.pipeline.source_operators
    live.state, live.fault = LiveState.STARTING, ""


def _store(live: LiveQuery) -> None:
    live.save()
    known = {"live": live, "pipeline": live.pipeline, "used_at": timezone.now(), "trial": live.trial_until is not None}
    KnownPlan.objects.update_or_create(query=live.key, digest=live.plan, defaults=known)


def _renew(live: LiveQuery) -> None:
    """After a change of assignments: note who may send, renew configurations, tell open pages."""
    taking_part = live.assignments.filter(enabled=True).values_list("agent", flat=True)
    KnownPlan.objects.get(query=live.key, digest=live.plan).agents.add(*taking_part)
    configs_renew(live.assignments.values_list("agent", flat=True))
    forget_facts_on_commit()
    live_announce(live)


def _not_executable(query: Query, executable: Executable) -> Impossible:
    faults = fault_count(executable.faults)
    first = executable.faults[0]
    return Impossible(
        f"Query {query.name!r} cannot be executed, {faults}; first: {first.message}.",
        executable.faults,
        code="not_executable",
    )


def _agent_faults(query: Query, agents: Sequence[Agent]) -> list[Fault]:
    faults = [Fault("agents", "name at least one agent")] if not agents else []
    for index, agent in enumerate(agents):
        if agent.cluster_id != query.cluster_id:
            message = f"agent {agent.name!r} belongs to another cluster than query {query.name!r}"
            faults.append(Fault(f"agents[{index}]", message))
        elif agent.kind == AgentKind.RELAY and agent.listen:
            message = f"agent {agent.name!r} is a relay, which has no part of its own; allowed: agents below it"
            faults.append(Fault(f"agents[{index}]", message))
    return faults


def connect() -> None:
    """Follow queries: a stopped one stops its live query; a new version or cluster name renews its pipeline.

    An agent that is deleted, by itself or with its cluster, is sent away. A trial ends when its query starts, goes by
    another name, or is deleted.
    """
    pre_delete.connect(_trial_deleted, sender=LiveQuery, dispatch_uid="telemetry.trial")
    post_delete.connect(_agent_deleted, sender=Agent, dispatch_uid="telemetry.agent")
    post_save.connect(_query_saved, sender=Query, dispatch_uid="telemetry.query")
    post_save.connect(_cluster_saved, sender=Cluster, dispatch_uid="telemetry.cluster")


def _query_saved(sender: type[Query], instance: Query, raw: bool = False, **_: Any) -> None:
    if raw:
        return
    for trial in _trials().filter(query=instance.pk):
        if instance.state == QueryState.RUNNING or not _is_named(trial):
            trial_end(live=trial)
    for live in _running_lives().filter(query=instance.pk):
        if instance.state != QueryState.RUNNING:
            live_stop(live=live, fault="The query was stopped.")
        else:
            _keep_up(live)


def _cluster_saved(sender: type[Cluster], instance: Cluster, created: bool, raw: bool = False, **_: Any) -> None:
    if not raw and not created:
        for trial in _trials().filter(query__cluster=instance.pk):
            if not _is_named(trial):
                trial_end(live=trial)
        for live in _running_lives().filter(query__cluster=instance.pk):
            _keep_up(live)


def _agent_deleted(sender: type[Agent], instance: Agent, **_: Any) -> None:
    push([instance.pk])


def _trial_deleted(sender: type[LiveQuery], instance: LiveQuery, **_: Any) -> None:
    """A trial that goes with its query is withdrawn from its agent, too."""
    if instance.trial_until is not None:
        agents = list(instance.assignments.filter(enabled=True).values_list("agent", flat=True))
        transaction.on_commit(partial(configs_renew, agents))


def _trials() -> QuerySet[LiveQuery]:
    return LiveQuery.with_trials.filter(trial_until__isnull=False).select_related("query__cluster")


def _is_named(live: LiveQuery) -> bool:
    """Whether frames still know it by its name, which is made of those of cluster and query."""
    return KnownPlan.objects.filter(query=live.key, digest=live.plan, live=live).exists()


def _running_lives() -> QuerySet[LiveQuery]:
    rows = LiveQuery.objects.exclude(state=LiveState.STOPPED)
    return rows.select_related("query__cluster", "query__running_version")


def _keep_up(live: LiveQuery) -> None:
    """Renew the pipeline for another version or name: frames name a query by cluster and name."""
    if _is_named(live) and live.version_id == live.query.running_version_id:
        configs_renew(live.assignments.values_list("agent", flat=True))  # objective and priority are in them
        return
    faults = live_refresh(live=live)
    if faults:
        number = live.query.running_version.number
        live_stop(live=live, fault=f"Version {number} cannot be executed: {faults[0].message}.")
