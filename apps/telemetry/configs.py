"""Configurations of agents and the plan of the stream processor: settings, refinements, and their versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from django.db.models import F, Q, QuerySet
from django.dispatch import Signal

from apps.core.errors import Fault
from apps.queries.choices import QueryState
from apps.telemetry.choices import AgentKind, LiveState
from apps.telemetry.ingest.streams import stream_trigger_s
from apps.telemetry.models import Agent, Assignment, LiveQuery, StreamPlan, TelemetrySource
from apps.telemetry.push import push
from engine.jarvis.settings import AdaptationSettings
from engine.rollouts.epochs import EPOCH_S

__all__ = [
    "FIXED",
    "agent_config",
    "config_acknowledged",
    "configs_renew",
    "fixed_settings",
    "live_served",
    "lives_executed",
    "refined_of",
    "refiner",
    "schedule_of",
    "scheduler",
    "settings_read",
    "stream_plan",
]


FIXED = "fixed"
Refiner = Callable[[Assignment], Mapping[str, Any] | None]
Scheduler = Callable[[Agent], Mapping[str, Any] | None]

#: Sent with `agent` (an `Agent`, as written) when a heartbeat acknowledges another refined document, applied or
#: refused, for one of its queries or its schedule than the heartbeat before. Each web process also sends it for the
#: first heartbeat it gets.
config_acknowledged = Signal()
_refiner: Refiner | None = None
_scheduler: Scheduler | None = None


def refiner(function: Refiner) -> Refiner:
    """Register the function that returns the refined document (`engine.jarvis.refined_config`) of a part, or None.

    It is asked whenever a configuration is made, so it is quick. After a change of what it answers, `configs_renew`.
    """
    global _refiner
    _refiner = function
    return function


def refined_of(part: Assignment) -> Mapping[str, Any] | None:
    """The refined document an agent is to use; none if load factors are set by hand."""
    return None if _refiner is None or part.by_hand else _refiner(part)


def scheduler(function: Scheduler) -> Scheduler:
    """Register the function that returns the refined schedule of an agent (`engine.klink.settings`), or None."""
    global _scheduler
    _scheduler = function
    return function


def schedule_of(agent: Agent) -> Mapping[str, Any] | None:
    """The refined schedule an agent is to use, even if its load factors are set by hand."""
    return None if _scheduler is None else _scheduler(agent)


def fixed_settings(load_factors: Sequence[float]) -> dict[str, Any]:
    """Settings of load factors by hand."""
    return {"method": FIXED, "load_factors": list(load_factors)}


def settings_read(given: Any, operators: int, faults: list[Fault]) -> dict[str, Any]:
    """Settings as stored: the given fields, with numbers as numbers. Empty settings adapt from the default.

    `operators` is how many may run at a source: so many load factors are set by hand, or none.
    """
    before = len(faults)
    read = AdaptationSettings.read(given, "", "settings", faults)
    if read is None or len(faults) > before:
        return {}
    count, expected = len(read.load_factors), operators if read.method == FIXED else 0
    if count != expected:
        why = "one for each operator that may run at a source" if expected else f"the method {read.method} finds them"
        faults.append(Fault("settings.load_factors", f"load_factors has {count} items; allowed: {expected}, {why}"))
    return {**given, "load_factors": list(read.load_factors)} if read.load_factors else dict(given)


SUB_EPOCHS = 10
BATCH_RECORDS = 1000
SPOOL_MAX_BYTES = 256 * 2**20
RELAY_IDLE_S = 60.0
_EVERYWHERE = ("0.0.0.0", "::", "[::]")  # no address to send to


def live_served() -> QuerySet[LiveQuery]:
    """Live queries that agents and stream processor run now; no trials."""
    return LiveQuery.objects.exclude(state=LiveState.STOPPED).filter(query__state=QueryState.RUNNING)


def lives_executed() -> QuerySet[LiveQuery]:
    """Everything that agents and stream processor execute now: live queries, and trials of versions."""
    executed = Q(query__state=QueryState.RUNNING) | Q(trial_until__isnull=False)
    return LiveQuery.with_trials.exclude(state=LiveState.STOPPED).filter(executed)


class _StreamDelay:
    """Time from an agent to a result, looked up once where it is asked for."""

    @cached_property
    def seconds(self) -> float:
        """The stream processor's trigger, and a batch, which takes as long at the most where it keeps up."""
        return 2.0 * stream_trigger_s()


def agent_config(agent: Agent) -> dict[str, Any]:
    """The configuration of an agent (`agent/config.py` defines it). Its version grows when its content changes."""
    return _renewed(agent, _StreamDelay())


def _renewed(agent: Agent, delay: _StreamDelay) -> dict[str, Any]:
    content = _content(agent, delay)
    digest = _digest(content)
    if digest != agent.config_digest:
        # of two that see the change at once, one counts
        same = Agent.objects.filter(pk=agent.pk, config_digest=agent.config_digest)
        if same.update(config_digest=digest, config_version=F("config_version") + 1):
            push([agent.pk])
        agent.refresh_from_db(fields=["config_digest", "config_version"])
    return {"version": agent.config_version, **content}


def configs_renew(agents: Iterable[Any]) -> None:
    """Bring the versions of these agents' configurations up to date, and those of the relays above them.

    Agents whose version changed are told after the commit.
    """
    ids = set(agents)
    above = Agent.objects.filter(children__in=ids).values("pk")  # a relay waits for what runs below it
    delay = _StreamDelay()
    for agent in Agent.objects.filter(Q(pk__in=ids) | Q(pk__in=above)).select_related("cluster", "parent"):
        _renewed(agent, delay)


def _content(agent: Agent, delay: _StreamDelay) -> dict[str, Any]:
    relay = _relay(agent) if agent.kind == AgentKind.RELAY and agent.enabled and agent.listen else None
    parts = _parts([agent.pk]) if agent.enabled and relay is None else []  # a relay does nothing else
    schedule = schedule_of(agent) if parts else None
    timed = any(_deadline(part.live) for part in parts)
    return {
        "agent": str(agent.pk),
        "cluster": agent.cluster.slug,
        "epoch_s": EPOCH_S,
        "sub_epochs": SUB_EPOCHS,
        "budget_cores": agent.budget_cores,
        "batch_records": BATCH_RECORDS,
        "spool_max_bytes": SPOOL_MAX_BYTES,
        "sources": {source.source_id: _source(agent, source) for part in parts for source in part.live.sources},
        "queries": [_query(part) for part in parts],
        "relay": relay,
        "parent": {"url": _address_of(agent.parent)} if _is_below(agent) else None,
        **({"refined_schedule": schedule} if schedule else {}),
        **({"stream_delay_s": delay.seconds} if timed else {}),
    }


def _parts(agents: Iterable[Any]) -> list[Assignment]:
    rows = Assignment.objects.filter(agent__in=list(agents), enabled=True, live__in=lives_executed())
    return list(
        rows.select_related("live__query__cluster", "live__source", "live__joined", "live__version").order_by(
            "live__query__name"
        )
    )


def _source(agent: Agent, source: TelemetrySource) -> dict[str, Any]:
    return {
        "kind": source.kind,
        "options": {**source.options, **agent.source_options.get(source.source_id, {})},
        "time": source.time,
        "columns": source.columns,
        "lateness_s": source.lateness_s,
    }


def _query(part: Assignment) -> dict[str, Any]:
    live = part.live
    return {
        "query": live.key,
        "version": live.version.number,
        "plan": live.plan,
        "pipeline": live.pipeline,
        "settings": part.settings,
        "refined": refined_of(part),
        "weight": part.weight,
        **_deadline(live),
    }


def _deadline(live: LiveQuery) -> dict[str, Any]:
    """The query's objective as a latency constraint; nothing where it has none. A trial is promised nothing."""
    query = live.query
    if not query.objective_bound_s or live.trial_until is not None:
        return {}
    return {
        "latency_constraint_s": query.objective_bound_s,
        "priority": query.priority,
        "shed_late": live.shed_late,
    }


def _relay(agent: Agent) -> dict[str, Any]:
    children = list(agent.children.filter(enabled=True).exclude(secret_hash="").order_by("name"))
    parts = _parts([child.pk for child in children])
    runs: dict[Any, dict[str, str]] = {child.pk: {} for child in children}
    for part in parts:
        runs[part.agent_id][part.live.key] = part.live.plan
    return {
        "listen": agent.listen,
        "children": [
            {"agent": str(child.pk), "secret_hash": child.secret_hash, "queries": runs[child.pk]} for child in children
        ],
        "pipelines": {part.live.plan: part.live.pipeline for part in parts},
        "idle_after_s": RELAY_IDLE_S,
    }


def _address_of(relay: Agent) -> str:
    """Address of a relay: the host it enrolled from, if it listens on all addresses."""
    host, _, port = relay.listen.rpartition(":")
    return f"http://{relay.host if host in _EVERYWHERE and relay.host else host}:{port}"


def _is_below(agent: Agent) -> bool:
    parent = agent.parent
    return parent is not None and parent.enabled and parent.kind == AgentKind.RELAY and bool(parent.listen)


def stream_plan() -> dict[str, Any]:
    """The plan of the stream processor. Its version grows when its content changes."""
    queries = [_planned(live) for live in _lives()]
    digest = _digest(queries)
    row, _ = StreamPlan.objects.get_or_create(pk=1)
    if row.digest != digest:
        StreamPlan.objects.filter(pk=1, digest=row.digest).update(digest=digest, version=F("version") + 1)
        row.refresh_from_db()
    return {"version": row.version, "queries": queries}


def _lives() -> QuerySet[LiveQuery]:
    rows = lives_executed().select_related("query__cluster", "version")
    return rows.prefetch_related("assignments__agent__parent").order_by("query__cluster__slug", "query__name")


def _planned(live: LiveQuery) -> dict[str, Any]:
    senders = {_sender(part.agent) for part in live.assignments.all() if part.enabled and part.agent.enabled}
    return {
        "query": live.key,
        "version": live.version.number,
        "plan": live.plan,
        "pipeline": live.pipeline,
        "agents": sorted(senders),
        "subinterval_s": live.query.cluster.subinterval_s,
        "retain_s": live.retain_s,
        "idle_after_s": live.idle_after_s,
        "started_us": round(live.started_at.timestamp() * 1e6),
    }


def _sender(agent: Agent) -> str:
    """Sender of the agent's records: the relay above it, if there is one."""
    return str(agent.parent_id if _is_below(agent) else agent.pk)


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
