"""The agents of a cluster as the Sources page lists them: how each is, what it did lately, what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.pages.agents_flow import AgentFlow, flows_of
from apps.refinement.selectors import config_of_agents
from apps.refinement.showing import AgentConfigState
from apps.telemetry.choices import AgentState, LiveState
from apps.telemetry.models import Agent, Assignment, LiveQuery
from apps.telemetry.selectors import agents_listed
from apps.telemetry.states import AgentView, agent_state
from apps.ui.numbers import seconds
from apps.ui.times import ago

__all__ = ["NO_CONFIG", "STATE_MARKS", "AgentLine", "agent_lines", "factors_of", "since"]

#: Drawing, tone.
STATE_MARKS: dict[str, tuple[str, str]] = {
    AgentState.STEADY: ("ok", "ok"),
    AgentState.ADAPTING: ("jobs", "queue"),
    AgentState.NEAR: ("watch", "watch"),
    AgentState.OVERFLOW: ("watch", "watch"),
    AgentState.SPOOL: ("bad", "bad"),
    AgentState.SILENT: ("unknown", ""),
    AgentState.NEVER: ("assumed", ""),
    AgentState.DISABLED: ("pause", ""),
}
NO_CONFIG = AgentConfigState("", 0)
_REPORTS = {AgentState.STEADY, AgentState.ADAPTING, AgentState.NEAR, AgentState.OVERFLOW, AgentState.SPOOL}


@dataclass(frozen=True)
class AgentLine:
    """An agent with how it is and what it did lately."""

    agent: Agent
    view: AgentView
    assignments: Sequence[Assignment]
    flow: AgentFlow | None
    config: AgentConfigState = NO_CONFIG

    @property
    def state(self) -> AgentState:
        return self.view.state

    @property
    def reason(self) -> str:
        """Why it is not steady, where its state does not say it."""
        return "; ".join(self.view.reasons) if self.reports and self.state != AgentState.ADAPTING else ""

    @property
    def reports(self) -> bool:
        return self.state in _REPORTS

    @property
    def in_eps(self) -> float | None:
        return self.flow.in_eps if self.flow is not None and self.reports else None

    @property
    def sent_bytes_s(self) -> float | None:
        return self.flow.sent_bytes_s if self.flow is not None and self.reports else None

    @property
    def saved(self) -> float | None:
        return self.flow.saved if self.flow is not None and self.reports else None

    @property
    def factors(self) -> list[tuple[str, list[tuple[str, float]]]]:
        """For each query: (its name, [(operator, load factor)])."""
        return [(one.live.query.name, factors_of(one)) for one in self.assignments]

    @property
    def is_behind(self) -> bool:
        """Whether it still runs something older than what it was given."""
        known = self.agent.heartbeat.get("config_version")
        return self.config.behind or (self.reports and known is not None and known < self.agent.config_version)

    @cached_property
    def state_words(self) -> str:
        """The state, with since when where it says nothing."""
        if self.state == AgentState.SILENT and self.agent.last_seen is not None:
            return f"No report {since(self.agent.last_seen)}"
        return str(AgentState(self.state).label)


def since(moment: datetime) -> str:
    """`for 20 s`, `for 6 min`, `since 14:02`: how long there was nothing."""
    elapsed_s = (timezone.now() - moment).total_seconds()
    if elapsed_s < 60:
        return f"for {seconds(max(round(elapsed_s), 1))}"
    when = ago(moment)
    return f"for {when.removesuffix(' ago')}" if when.endswith("ago") else f"since {when}"


def factors_of(assignment: Assignment) -> list[tuple[str, float]]:
    """Operators that may run at the source, with the share of records each takes."""
    live = assignment.live
    names = [one["id"] for one in live.pipeline["operators"][: live.source_operators]]
    given = [*assignment.load_factors, *([0.0] * len(names))]
    return list(zip(names, given, strict=False))


def agent_lines(cluster: Cluster) -> list[AgentLine]:
    """Every agent of a cluster, by name."""
    rows = LiveQuery.objects.filter(query__cluster=cluster).exclude(state=LiveState.STOPPED)
    lives = list(rows.select_related("query__cluster"))
    flows = flows_of(cluster, lives)
    known = {live.pk: live for live in lives}
    agents = {agent.pk: agent for agent in agents_listed().filter(cluster=cluster)}
    by_agent: dict[Any, list[Assignment]] = {}
    for row in Assignment.objects.filter(live__in=known, enabled=True).order_by("live__query__name"):
        row.live, row.agent = known[row.live_id], agents[row.agent_id]
        by_agent.setdefault(row.agent_id, []).append(row)
    configs = config_of_agents(cluster)
    return [
        AgentLine(agent, agent_state(agent), by_agent.get(pk, []), flows.get(str(pk)), configs.get(str(pk), NO_CONFIG))
        for pk, agent in agents.items()
    ]
