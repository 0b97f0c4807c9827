"""Reading agents and their state, tokens, sources, live queries and who takes part in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet

from agent.wire.heartbeat import AgentQueryReport, Heartbeat, SpoolReport
from apps.core.clock import shared_now
from apps.core.errors import Missing
from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.fleet.models import Cluster
from apps.queries.snapshots.contents import AgentPolicy, policy_reader
from apps.telemetry.configs import live_served
from apps.telemetry.models import (
    Agent,
    AgentKind,
    AgentState,
    Assignment,
    EnrolmentToken,
    LiveQuery,
    LiveState,
    StaticTable,
    TelemetrySource,
)
from apps.telemetry.streams import stream_state, stream_trigger_s

__all__ = [
    "SILENT_S",
    "AgentFilter",
    "AgentHealth",
    "EnrolmentFilter",
    "LiveFilter",
    "SourceFilter",
    "TableFilter",
    "agent_named",
    "agent_state",
    "agents_collecting",
    "agents_listed",
    "agents_scheduling",
    "assignments_adapting",
    "enrolments_listed",
    "idle_collectors",
    "live_by_key",
    "lives_listed",
    "parts_running",
    "policies_in_force",
    "queries_driven",
    "source_readers",
    "sources_listed",
    "stream_state",
    "stream_trigger_s",
    "tables_listed",
]

SILENT_S = 15.0  # after the last written heartbeat; one is written every five seconds
_IDLE = ("failed", "cannot listen", "no file yet", "not allowed")  # what a collector says when nothing comes of it
_NEAR = 0.9  # of the budget
_SETTLING_S = 30.0  # a change that has not settled by then does not
_SKEW_S = 1.0  # event times of clocks further apart blur the windows


@dataclass(frozen=True)
class AgentHealth:
    """State of an agent with reasons and notes."""

    state: AgentState
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return str(self.state.label)


def agent_state(agent: Agent, now: datetime | None = None) -> AgentHealth:
    """The worst state that applies to an agent."""
    if not agent.enabled:
        return AgentHealth(AgentState.DISABLED, ("disabled by hand: what it sends is refused",))
    if agent.last_seen is None:
        return AgentHealth(AgentState.NEVER, ("enrolled, and not heard of since",))
    silent_s = ((now or shared_now()) - agent.last_seen).total_seconds()
    if silent_s > SILENT_S:
        return AgentHealth(AgentState.SILENT, (f"its last report came {silent_s:.0f} s ago",))
    report, notes = agent.heartbeat, tuple(_notes(agent))
    for state, reasons in (
        (AgentState.SPOOL, _spool(report.get("spool", {}))),
        (AgentState.OVERFLOW, _overflow(report)),
        (AgentState.NEAR, _budget(agent, report)),
        (AgentState.ADAPTING, _adapting(report)),
    ):
        if reasons:
            return AgentHealth(state, tuple(reasons), notes)
    return AgentHealth(AgentState.STEADY, (), notes)


def _spool(spool: SpoolReport) -> list[str]:
    words = {
        "filling": "is filling",
        "full": "is full: collectors wait or shed",
        "disk-full": "has no room on its disk",
    }
    if spool.get("state", "ok") not in words:
        return []
    held, limit = spool.get("bytes", 0) / 2**20, spool.get("limit_bytes", 0) / 2**20
    return [f"its spool {words[spool['state']]}: {held:,.1f} of {limit:,.0f} MiB"]


def _overflow(report: Heartbeat) -> list[str]:
    queries = [
        _name(row)
        for row in report.get("queries", ())
        if row.get("state") in ("overflowing", "congested") and not _on_the_move(row, report)
    ]
    shed = [f"{row['source']} sheds records" for row in report.get("collectors", ()) if row.get("state") == "shedding"]
    return [
        f"{query} sends records on unprocessed: its load factors are too high for the budget" for query in queries
    ] + shed


def _name(row: AgentQueryReport) -> str:
    """A query's name without its cluster's, which is the agent's own."""
    return str(row["query"]).partition("/")[2]


def _on_the_move(row: AgentQueryReport, report: Heartbeat) -> bool:
    """Whether load factors changed a moment ago and have not settled yet."""
    last = row["changes"][-1] if row.get("changes") else None
    return (
        last is not None and last["epochs"] is None and report.get("time", 0.0) - last["epoch_us"] / 1e6 < _SETTLING_S
    )


def _adapting(report: Heartbeat) -> list[str]:
    return [
        f"{_name(row)}: {row.get('reason') or 'its load factors are being found'}"
        for row in report.get("queries", ())
        if _on_the_move(row, report)
    ]


def _budget(agent: Agent, report: Heartbeat) -> list[str]:
    used = report.get("cpu_cores", 0.0)
    if used < _NEAR * agent.budget_cores:
        return []
    return [f"it uses {used:.2f} of {agent.budget_cores:g} cores"]


def _notes(agent: Agent) -> Iterator[str]:
    report = agent.heartbeat
    if agent.clock_offset_s is not None and abs(agent.clock_offset_s) > _SKEW_S:
        way = "ahead of" if agent.clock_offset_s > 0 else "behind"
        yield f"its clock is {abs(agent.clock_offset_s):.1f} s {way} the console's"
    if report.get("config_version", 0) < agent.config_version:
        yield f"it runs configuration {report.get('config_version', 0)}, the current one is {agent.config_version}"
    yield from (str(fault) for fault in report.get("faults", ()))
    for row in report.get("queries", ()):
        yield from (f"{_name(row)}: {fault}" for fault in row.get("faults", ()))
        if refused := row.get("refused"):
            yield f"{_name(row)}: refuses {refused['config'] or 'a configuration'}: {'; '.join(refused['reasons'])}"
    yield from (f"{source}: {state}" for source, state in idle_collectors(agent))
    for row in report.get("collectors", ()):
        yield from (f"{row['source']}: {fault}" for fault in row.get("faults", ()))


def idle_collectors(agent: Agent) -> list[tuple[str, str]]:
    """Collectors of an agent of which nothing comes, as it reported last: (source, state)."""
    return [(row["source"], row["state"]) for row in agent.heartbeat.get("collectors", ()) if row.get("state") in _IDLE]


def agents_listed() -> QuerySet[Agent]:
    """Agents with cluster, node and parent."""
    return Agent.objects.select_related("cluster", "node", "parent")


def agents_collecting(cluster: Cluster, sources: Iterable[str]) -> list[Agent]:
    """Enabled agents that were heard of lately and collect all of these sources, by name."""
    wanted, heard_since = set(sources), shared_now() - timedelta(seconds=SILENT_S)
    rows = cluster.agents.filter(enabled=True, kind=AgentKind.AGENT, last_seen__gte=heard_since).order_by("name")
    return [agent for agent in rows if wanted <= _collected(agent)]


def _collected(agent: Agent) -> set[str]:
    """Sources whose collector at the agent works, as it reported last."""
    return {row["source"] for row in agent.heartbeat.get("collectors", ()) if row.get("state") not in _IDLE}


def agent_named(cluster: Cluster, name: str) -> Agent:
    """A cluster's agent by its name."""
    agent = agents_listed().filter(cluster=cluster, name=name).first()
    if agent is None:
        names = ", ".join(cluster.agents.values_list("name", flat=True)[:10]) or "none"
        message = f"no agent {name!r}; there are: {names}"
        raise Missing(f"Cluster {cluster.slug!r} has {message}.", [("agent", message)])
    return agent


@policy_reader
def policies_in_force(cluster: Cluster) -> list[AgentPolicy]:
    """Scheduling policies of agents that report one, as of their last heartbeat.

    Nothing else of what agents said is read.
    """
    rows = Agent.objects.filter(cluster=cluster, heartbeat__has_key="schedule").order_by("name")
    report = rows.values_list("name", "node_id", "heartbeat__schedule__policy")
    return [AgentPolicy(name, node_id, policy) for name, node_id, policy in report if policy]


def enrolments_listed() -> QuerySet[EnrolmentToken]:
    """Enrolment tokens with their cluster and who made them."""
    return EnrolmentToken.objects.select_related("cluster", "created_by")


def sources_listed() -> QuerySet[TelemetrySource]:
    """Sources with `reader_count`, the live queries that read each."""
    read = Count("live_queries", filter=_served("live_queries"), distinct=True)
    joined = Count("live_joins", filter=_served("live_joins"), distinct=True)
    return TelemetrySource.objects.select_related("cluster").annotate(reader_count=read + joined)


def _served(relation: str) -> Q:
    """Live queries of a relation that are not stopped, and no trials: joins pass managers by."""
    return ~Q(**{f"{relation}__state": LiveState.STOPPED}) & Q(**{f"{relation}__trial_until": None})


def source_readers(source: TelemetrySource) -> list[str]:
    """Names of the queries that have read a source live, as their own or to join with it."""
    lives = LiveQuery.objects.filter(Q(source=source) | Q(joined=source))
    return list(lives.order_by("query__name").values_list("query__name", flat=True))


def tables_listed() -> QuerySet[StaticTable]:
    """Static tables with their cluster."""
    return StaticTable.objects.select_related("cluster")


def lives_listed() -> QuerySet[LiveQuery]:
    """Live queries with query, version, source and assignments."""
    parts = Assignment.objects.select_related("agent").order_by("agent__name")
    rows = LiveQuery.objects.select_related("query__cluster", "query__running_version", "version", "source", "joined")
    return rows.prefetch_related(Prefetch("assignments", parts))


def live_by_key(cluster: str, name: str) -> LiveQuery:
    """A live run by the names of cluster and query."""
    live = lives_listed().filter(query__cluster__slug=cluster, query__name=name).first()
    if live is None:
        raise Missing(f"The query {cluster}/{name} has no live run.", [("query", f"no live run of {cluster}/{name}")])
    return live


def agents_scheduling(cluster: Any) -> QuerySet[Agent]:
    """Agents of a cluster that share a core between live queries, also those set by hand; by name."""
    parts = parts_running(cluster).filter(agent=OuterRef("pk"))
    return Agent.objects.filter(Exists(parts), cluster=cluster).select_related("cluster").order_by("name")


def parts_running(cluster: Any) -> QuerySet[Assignment]:
    """Assignments that agents of a cluster run, by query and agent; none of producers or relays."""
    rows = Assignment.objects.filter(enabled=True, agent__enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.filter(agent__kind=AgentKind.AGENT).select_related("agent", "live__query__cluster", "live__source")
    return rows.order_by("live__query__name", "agent__name")


def assignments_adapting(cluster: Any) -> list[Assignment]:
    """Assignments of a cluster whose load factors adapt: not of producers, not set by hand."""
    rows = Assignment.objects.filter(enabled=True, agent__enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.exclude(agent__kind=AgentKind.PRODUCER).select_related("agent", "live__query__cluster", "live__source")
    return [row for row in rows.order_by("live__query__name", "agent__name") if not row.by_hand]


class AgentFilter(ListFilter):
    """`?cluster=eu-1&kind=agent&heard=false`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    kind = ChoiceFilter(choices=AgentKind.choices)
    enabled = BooleanFilter(label="Whether what it sends is taken")
    heard = BooleanFilter(method="heard_lately", label="Whether it has reported lately")
    last_seen = TimeFilter()
    sorts = sort_paths("name", "kind", "enrolled_at", "last_seen", "version", cluster="cluster__slug")

    def heard_lately(self, agents: QuerySet[Agent], value: bool) -> QuerySet[Agent]:
        since = shared_now() - timedelta(seconds=SILENT_S)
        return agents.filter(last_seen__gte=since) if value else agents.exclude(last_seen__gte=since)


class EnrolmentFilter(ListFilter):
    """`?cluster=eu-1&sort=expires_at`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    created_at = TimeFilter()
    expires_at = TimeFilter()
    sorts = sort_paths("created_at", "expires_at", "last_used_at", cluster="cluster__slug")


class SourceFilter(ListFilter):
    """`?cluster=eu-1&kind=log_file`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    source_id = TextFilter(label="Its id")
    kind = TextFilter(label="Kind of the collector")
    sorts = sort_paths("source_id", "kind", "updated_at", cluster="cluster__slug")


class TableFilter(ListFilter):
    """`?cluster=eu-1&name=hosts`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    sorts = sort_paths("name", "updated_at", cluster="cluster__slug")


class LiveFilter(ListFilter):
    """`?cluster=eu-1&query=rtt&state=running`."""

    cluster = TextFilter("query__cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=LiveState.choices)
    started_at = TimeFilter()
    sorts = sort_paths("started_at", "stopped_at", "state", query="query__name", cluster="query__cluster__slug")


def queries_driven(query_ids: Collection[int]) -> set[int]:
    """Those that agents and stream processor execute: what is changed of them here happens."""
    rows = LiveQuery.objects.filter(query__in=query_ids).exclude(state=LiveState.STOPPED)
    return set(rows.values_list("query_id", flat=True))
