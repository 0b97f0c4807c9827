"""Reading agents, tokens, sources and live queries."""

from __future__ import annotations

from django.db.models import Count, Prefetch, Q, QuerySet

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.telemetry.models import Agent, Assignment, EnrolmentToken, LiveQuery, StaticTable, TelemetrySource
from apps.telemetry.states import AgentView, agent_state
from apps.telemetry.streams import stream_state

__all__ = [
    "AgentView",
    "agent_named",
    "agent_state",
    "agents_listed",
    "enrolments_listed",
    "live_by_key",
    "lives_listed",
    "policy_in_force",
    "source_readers",
    "sources_listed",
    "stream_state",
    "tables_listed",
]


def agents_listed() -> QuerySet[Agent]:
    """Agents with cluster, node and parent."""
    return Agent.objects.select_related("cluster", "node", "parent")


def agent_named(cluster: Cluster, name: str) -> Agent:
    """A cluster's agent by its name."""
    found = agents_listed().filter(cluster=cluster, name=name).first()
    if found is None:
        known = ", ".join(cluster.agents.values_list("name", flat=True)[:10]) or "none"
        message = f"no agent {name!r}; there are: {known}"
        raise Missing(f"Cluster {cluster.slug!r} has {message}.", [("agent", message)])
    return found


def policy_in_force(cluster: Cluster) -> dict[str, str]:
    """By agent's id, of those that told: the policy by which its queries share its core, as it said last.

    Nothing else of what agents said is read.
    """
    rows = Agent.objects.filter(cluster=cluster, heartbeat__has_key="schedule")
    found = rows.values_list("pk", "heartbeat__schedule__policy")
    return {str(pk): policy for pk, policy in found if policy}


def enrolments_listed() -> QuerySet[EnrolmentToken]:
    """Enrolment tokens with their cluster and who made them."""
    return EnrolmentToken.objects.select_related("cluster", "created_by")


def sources_listed() -> QuerySet[TelemetrySource]:
    """Sources with `reader_count`, the live queries that read each."""
    read = Count("live_queries", filter=~Q(live_queries__state="stopped"), distinct=True)
    joined = Count("live_joins", filter=~Q(live_joins__state="stopped"), distinct=True)
    return TelemetrySource.objects.select_related("cluster").annotate(reader_count=read + joined)


def source_readers(source: TelemetrySource) -> list[str]:
    """Names of the queries that have read a source live, as theirs or to join with it."""
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
    found = lives_listed().filter(query__cluster__slug=cluster, query__name=name).first()
    if found is None:
        raise Missing(f"The query {cluster}/{name} has no live run.", [("query", f"no live run of {cluster}/{name}")])
    return found
