"""Schedules of agents: settings in force and intended, and figures of each query's share of the core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from statistics import fmean
from typing import Any

from apps.fleet.models import Cluster
from apps.rollouts.choices import GIVEN, SPREADING
from apps.rollouts.configs.parts import agents_with_schedules
from apps.rollouts.configs.selectors import refusal_reasons, reported_version
from apps.rollouts.models import RolloutMember, SchedulePart
from apps.rollouts.schedule.queries import ScheduledQuery, memory_of, scheduled_queries, tail_latency_s
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agents_scheduling, parts_running
from engine.klink.settings import ScheduleSettings
from engine.rollouts.epochs import EPOCH_S

__all__ = [
    "MAX_AGENTS",
    "MAX_EPOCHS",
    "AgentSchedule",
    "ScheduleSwitch",
    "SwitchAgent",
    "SwitchPreview",
    "agent_facts",
    "cluster_facts",
    "scheduled_queries_since",
    "schedules_of",
]


@dataclass(frozen=True)
class AgentSchedule:
    """Schedule of an agent: reported and intended."""

    agent: Any  #: the row
    settings: Any  #: `ScheduleSettings` in force: those of the reported document, else the defaults
    config: str  #: in force, `c-9`; empty if there is none
    version: int
    wanted: str  #: intended, `c-10`; empty if there is none
    part_id: int | None  #: of the intended configuration
    behind: bool
    canary: bool
    refused: tuple[str, ...]  #: reasons why it refuses the intended one
    report: dict[str, Any]  #: policy, mode, memory and so on in the last heartbeat; empty where it has none

    @property
    def policy(self) -> str:
        """The reported policy; empty if none was reported."""
        return str(self.report.get("policy") or "")


@dataclass(frozen=True)
class SwitchAgent:
    """Changes of a switch at an agent."""

    name: str
    policy_before: str
    policy_after: str
    is_canary: bool  #: it would come first
    changes: tuple[tuple[str, str, str], ...]  #: (setting, before, after)


@dataclass(frozen=True)
class SwitchPreview:
    """Preview of a switch of scheduling."""

    settings: dict[str, Any]  #: all of them, as agents would have them
    agents: tuple[SwitchAgent, ...]
    judged: tuple[str, ...]  #: measures its guard judges, as texts
    stages: tuple[int, ...]  #: agents each stage adds, canaries first
    least_s: float  #: shortest time until all agents have it
    waits_for: str  #: `c-8`, which is under way; empty if it would begin at once
    unchanged: bool  #: all of these agents have the schedule already, or are about to


@dataclass(frozen=True)
class ScheduleSwitch:
    """Result of a switch: the configuration that was made, or that makes one needless."""

    config: Any | None  #: None if the agents always had this schedule
    rollout: Any | None
    made: bool


def schedules_of(cluster: Cluster) -> dict[str, AgentSchedule]:
    """Schedules by id of each agent that shares a core between live queries, ordered by name."""
    agents = list(agents_with_schedules(agents_scheduling(cluster)))
    had = _settings_of(cluster, agents)
    watched = RolloutMember.objects.filter(
        rollout__config__cluster=cluster, rollout__state__in=SPREADING, stage=0, state__in=GIVEN
    )
    canaries = set(watched.values_list("agent", "rollout__config__number"))
    return {str(agent.pk): _state(agent, had, canaries) for agent in agents}


def _settings_of(cluster: Cluster, agents: list[Agent]) -> dict[tuple[int, str], ScheduleSettings]:
    """Settings of reported configurations by their number and agent's id, `*` for all agents."""
    numbers = {reported_version(_report(agent)) for agent in agents}
    parts = SchedulePart.objects.filter(config__cluster=cluster, config__number__in=numbers)
    rows = parts.values_list("config__number", "document")
    return {(number, said["agent"]): ScheduleSettings.parse(said["schedule"]) for number, said in rows}


def _report(agent: Agent) -> dict:
    return agent.heartbeat.get("schedule") or {}


def _state(
    agent: Agent, had: dict[tuple[int, str], ScheduleSettings], canaries: set[tuple[object, int]]
) -> AgentSchedule:
    report, number = _report(agent), agent.schedule_number or 0
    version = reported_version(report)
    settings = had.get((version, str(agent.pk))) or had.get((version, "*")) or ScheduleSettings()
    return AgentSchedule(
        agent=agent,
        settings=settings,
        config=f"c-{version}" if version else "",
        version=version,
        wanted=f"c-{number}" if number else "",
        part_id=agent.schedule_id,
        behind=version < number,
        canary=(agent.pk, number) in canaries,
        refused=refusal_reasons(report, number),
        report=report,
    )


MAX_AGENTS = 100  #: in one response, the first by name
MAX_EPOCHS = 100_000  #: read for one response, all queries together
_REPORTED = ("mode", "reason", "memory_bytes", "memory_bound", "cycle_ms", "starved")


def scheduled_queries_since(
    states: Sequence[AgentSchedule], now: datetime, last_s: float
) -> dict[str, list[ScheduledQuery]]:
    """Queries by id of the agent they run at, with epochs of the last seconds by the agent's clock."""
    since = {
        str(state.agent.pk): round(
            (now - timedelta(seconds=last_s - (state.agent.clock_offset_s or 0.0))).timestamp() * 1e6
        )
        for state in states
    }
    settings = {str(state.agent.pk): state.settings for state in states}
    return scheduled_queries([state.agent for state in states], since, settings)


def cluster_facts(cluster: Cluster, now: datetime, last_s: float, agent: str = "") -> dict[str, Any]:
    """Figures of each agent's queries on its core in the last seconds, or of one agent's."""
    states = [state for state in schedules_of(cluster).values() if agent in ("", state.agent.name)]
    shown = states[: _fitting(cluster, states, last_s)]
    lines = scheduled_queries_since(shown, now, last_s)
    return {
        "cluster": cluster.slug,
        "last_s": last_s,
        "agents": [_agent(state, lines[str(state.agent.pk)]) for state in shown],
        "left_out": len(states) - len(shown),
    }


def _fitting(cluster: Cluster, states: Sequence[AgentSchedule], last_s: float) -> int:
    """Agents that fit into one response; at least one."""
    queries = Counter(parts_running(cluster).values_list("agent", flat=True))
    epochs = accumulate(queries[state.agent.pk] * last_s / EPOCH_S for state in states[:MAX_AGENTS])
    return max(1, sum(total <= MAX_EPOCHS for total in epochs))


def agent_facts(agent: Agent, now: datetime, last_s: float) -> dict[str, Any] | None:
    """Timeline of one agent by epoch: running query, slack, windows and memory; None if it runs no query."""
    state = schedules_of(agent.cluster).get(str(agent.pk))
    if state is None:
        return None
    lines = scheduled_queries_since([state], now, last_s)[str(agent.pk)]
    return {
        **_agent(state, lines),
        "last_s": last_s,
        "memory": memory_of(lines),
        "timeline": [
            {
                "query": line.name,
                "epochs": [
                    [row.epoch_us, [list(span) for span in row.spans], row.slack_s, row.queued] for row in line.rows
                ],
                "sweeps": [list(sweep) for sweep in line.sweeps],
            }
            for line in lines
        ],
    }


def _agent(state: AgentSchedule, lines: Sequence[ScheduledQuery]) -> dict[str, Any]:
    report: Mapping[str, Any] = state.report
    return {
        "agent": state.agent.name,
        "agent_id": str(state.agent.pk),
        "policy": state.policy or None,
        **{name: report.get(name) for name in _REPORTED},
        "config": state.config or None,
        "wanted": state.wanted or None,
        "behind": state.behind,
        "canary": state.canary,
        "refused": list(state.refused),
        "settings": dict(state.settings.to_dict()),
        **_windows(lines),
        "queries": [_query(line) for line in lines],
    }


def _windows(lines: Sequence[ScheduledQuery]) -> dict[str, Any]:
    """Latency of windows, and the share of their watermarks that came as expected."""
    latencies = [sweep.latency_s for line in lines for sweep in line.sweeps]
    judged = [sweep for line in lines for sweep in line.judged]
    return {
        "windows": len(latencies),
        "latency_mean_s": fmean(latencies) if latencies else None,
        "latency_p99_s": tail_latency_s(latencies),
        "expected_windows": len(judged),
        "hit_rate": sum(bool(sweep.is_hit) for sweep in judged) / len(judged) if judged else None,
    }


def _query(line: ScheduledQuery) -> dict[str, Any]:
    return {
        "query": line.name,
        "period_s": line.period_s,
        "backlog_s": line.backlog_s,
        "queued": line.queued,
        "queued_bytes": line.queued_bytes,
        "slack_s": line.slack_s,
        "deadline_us": line.deadline_us,
        "expected": line.expected._asdict() if line.expected else None,
        "overflow": sum(row.overflow for row in line.rows),
        "timed": line.timed,
        "in_time": line.in_time,
        "in_time_share": line.in_time_share,
        "shed_late": line.shed_late,
        "late": line.late,
        **_windows([line]),
    }
