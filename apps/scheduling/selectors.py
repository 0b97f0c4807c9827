"""How agents share their cores between queries, as they told it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from apps.scheduling.lines import QueryLine, period_of
from apps.telemetry.choices import AgentKind
from apps.telemetry.configs import live_served
from apps.telemetry.epochs import EpochRow, epochs_since
from apps.telemetry.models import Agent, Assignment
from engine.klink.settings import ScheduleSettings

__all__ = ["agents_scheduling", "lines_of", "memory_of", "parts_running"]

_DEFAULT = ScheduleSettings()


def agents_scheduling(cluster: Any) -> QuerySet[Agent]:
    """Agents of a cluster that share a core between live queries, also those that are set by hand; by name."""
    parts = parts_running(cluster).filter(agent=OuterRef("pk"))
    return Agent.objects.filter(Exists(parts), cluster=cluster).select_related("cluster").order_by("name")


def parts_running(cluster: Any) -> QuerySet[Assignment]:
    """Parts in live queries that agents of a cluster run, by query and agent: no producers', no relays'."""
    rows = Assignment.objects.filter(enabled=True, agent__enabled=True, agent__cluster=cluster, live__in=live_served())
    rows = rows.filter(agent__kind=AgentKind.AGENT).select_related("agent", "live__query__cluster", "live__source")
    return rows.order_by("live__query__name", "agent__name")


def lines_of(
    agents: Iterable[Agent], since_us: Mapping[str, int], settings: Mapping[str, ScheduleSettings] | None = None
) -> dict[str, list[QueryLine]]:
    """By agent's id the queries that run there, by name, with their epochs since a moment by the agent's own clock.

    Parameters
    ----------
    agents
        Of one cluster or several.
    since_us
        Microseconds since 1970, by agent's id; of agents that are not named nothing is looked up.
    settings
        In force by agent's id; the defaults where an agent is not named.
    """
    chosen = {str(agent.pk): agent for agent in agents}
    parts = Assignment.objects.filter(enabled=True, agent__in=list(chosen), live__in=live_served())
    parts = parts.select_related("live__query__cluster").order_by("live__query__name")
    found: dict[str, list[QueryLine]] = {key: [] for key in chosen}
    told = epochs_since({key: since for key, since in since_us.items() if key in chosen})
    for part in parts:
        key = str(part.agent_id)
        part.agent = chosen[key]
        rows = told.get(key, {}).get(part.live.key, [])
        found[key].append(_line(part, rows, (settings or {}).get(key, _DEFAULT)))
    return found


def _line(part: Assignment, rows: list[EpochRow], settings: ScheduleSettings) -> QueryLine:
    return QueryLine(part.live.query.name, period_of(part.live.pipeline), settings, rows, part.report)


def memory_of(lines: Iterable[QueryLine]) -> list[tuple[int, int]]:
    """Bytes that waited at the end of each epoch, all queries together: (epoch, bytes), oldest first."""
    sums: dict[int, int] = {}
    for line in lines:
        for row in line.rows:
            sums[row.epoch_us] = sums.get(row.epoch_us, 0) + row.queued_bytes
    return sorted(sums.items())
