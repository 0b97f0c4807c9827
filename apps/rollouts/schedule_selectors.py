"""Schedules of agents: settings in force and intended, and figures of each query's share of the core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from statistics import fmean
from typing import Annotated, Any

from agent.wire.heartbeat import ScheduleReport
from apps.fleet.models import Cluster
from apps.rollouts.config_selectors import refusal_reasons, reported_version
from apps.rollouts.models import GIVEN, SPREADING, RolloutMember, SchedulePart
from apps.rollouts.scheduled_queries import ScheduledQuery, memory_of, scheduled_queries, tail_latency_s
from apps.rollouts.versions import agents_with_schedules
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agents_scheduling, parts_running
from engine.klink.settings import ScheduleSettings
from engine.records import Record, Words
from engine.rollouts.measures import EPOCH_S

__all__ = [
    "AgentSchedule",
    "AgentTimeline",
    "ClusterSchedule",
    "ScheduleSwitch",
    "SwitchAgent",
    "Switched",
    "agent_timeline",
    "cluster_schedule",
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
    report: ScheduleReport  #: policy, mode, memory and so on in the last heartbeat; empty where it has none

    @property
    def policy(self) -> str:
        """The reported policy; empty if none was reported."""
        return str(self.report.get("policy") or "")


@dataclass(frozen=True)
class SwitchAgent(Record):
    """Changes of a switch at an agent."""

    name: str
    policy_before: str
    policy_after: str
    is_canary: Annotated[bool, Words("Whether it would come first.")]
    changes: Annotated[tuple[tuple[str, str, str], ...], Words("[setting, before, after].")]


@dataclass(frozen=True)
class Switched(Record):
    """Preview of a switch of scheduling, and with `apply` its result."""

    settings: Annotated[ScheduleSettings, Words("All of them, as agents would have them.")]
    agents: tuple[SwitchAgent, ...]
    judged: Annotated[tuple[str, ...], Words("What the guard looks at.")]
    stages: Annotated[tuple[int, ...], Words("Agents of each, canaries first.")]
    least_s: Annotated[float, Words("Until all have it, at the least.")]
    waits_for: Annotated[str, Words("The configuration that is on its way before it; empty if it would begin at once.")]
    unchanged: Annotated[bool, Words("Agents schedule so already, or are about to.")]
    made: bool = False
    config: Annotated[str | None, Words("Of the switch, or of what makes it idle.")] = None
    rollout: Annotated[str | None, Words("State of its rollout.")] = None


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
    return {(number, document["agent"]): ScheduleSettings.parse(document["schedule"]) for number, document in rows}


def _report(agent: Agent) -> ScheduleReport:
    report: ScheduleReport | None = agent.heartbeat.get("schedule")
    return report or {}


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


@dataclass(frozen=True)
class SweptWindows(Record):
    """Latency of windows, and the share of their watermarks that came as expected."""

    windows: Annotated[int, Words("That were swept.")]
    latency_mean_s: Annotated[float | None, Words("From a window's end until it was out.")]
    latency_p99_s: Annotated[float | None, Words("Of fewer than a hundred windows the longest.")]
    expected_windows: Annotated[int, Words("Of these, those for whose watermark there was an interval.")]
    hit_rate: Annotated[float | None, Words("Share of these that came within it.")]


@dataclass(frozen=True)
class ExpectedWatermark(Record):
    """When a watermark is expected, by the agent's clock."""

    mean_us: int
    least_us: int
    most_us: int


@dataclass(frozen=True)
class QueryOnCore(SweptWindows):
    """A query's use of the core that it shares."""

    query: str
    period_s: Annotated[float | None, Words("Of its windows; null where it has none.")]
    backlog_s: Annotated[float, Words("How long its records may wait.")]
    queued: int | None
    queued_bytes: int | None
    slack_s: Annotated[float | None, Words("Until its next window would be late.")]
    deadline_us: Annotated[int | None, Words("Of the next window.")]
    expected: Annotated[ExpectedWatermark | None, Words("When its watermark is expected.")]
    overflow: Annotated[int, Words("Records that were sent on unprocessed.")]
    timed: Annotated[int, Words("Windows that left, or records of a query without windows; 0 without an objective.")]
    in_time: Annotated[int, Words("Of these, those early enough for the query's objective.")]
    in_time_share: float | None
    shed_late: Annotated[int, Words("Records that were late everywhere, and lost.")]
    late: Annotated[str, Words("Why no watermark closes its windows.")]


@dataclass(frozen=True)
class AgentCore(SweptWindows):
    """The core of an agent: how it is scheduled, and the queries on it."""

    agent: str
    agent_id: str
    policy: Annotated[str | None, Words("In force, as it said; null where it says none.")]
    mode: str | None
    reason: str | None
    memory_bytes: Annotated[int | None, Words("Of waiting records.")]
    memory_bound: int | None
    cycle_ms: float | None
    starved: int | None
    config: Annotated[str | None, Words("Whose schedule is in force.")]
    wanted: Annotated[str | None, Words("Whose schedule it is to have.")]
    behind: bool
    canary: bool
    refused: tuple[str, ...]
    settings: ScheduleSettings
    queries: tuple[QueryOnCore, ...]


@dataclass(frozen=True)
class ClusterSchedule(Record):
    """Schedules of the agents of a cluster: how queries share a core."""

    cluster: str
    last_s: float
    agents: tuple[AgentCore, ...]
    left_out: Annotated[
        int,
        Words(
            "Agents by name beyond the first hundred, or beyond those that 100,000 epochs are of: they are shown where "
            "one `agent`, or fewer seconds, are asked for."
        ),
    ]


@dataclass(frozen=True)
class ScheduleTrack(Record):
    """Epochs and sweeps of a query."""

    query: str
    epochs: Annotated[
        tuple[tuple[int, tuple[tuple[float, float], ...], float | None, int], ...],
        Words("[begin (microseconds), [[start (ms since it began), ms], …] when it ran, slack in s, queued]."),
    ]
    sweeps: Annotated[
        tuple[tuple[int | None, ...], ...],
        Words("[deadline, least, most, arrived, swept, emitted], microseconds."),
    ]


@dataclass(frozen=True)
class AgentTimeline(AgentCore):
    """Schedule of an agent, epoch by epoch. Times are by the agent's clock."""

    last_s: float
    memory: Annotated[tuple[tuple[int, int], ...], Words("[epoch, bytes of waiting records].")]
    timeline: tuple[ScheduleTrack, ...]


def cluster_schedule(cluster: Cluster, now: datetime, last_s: float, agent: str = "") -> ClusterSchedule:
    """Figures of each agent's queries on its core in the last seconds, or of one agent's."""
    states = [state for state in schedules_of(cluster).values() if agent in ("", state.agent.name)]
    shown = states[: _fitting(cluster, states, last_s)]
    lines = scheduled_queries_since(shown, now, last_s)
    agents = tuple(_core(state, lines[str(state.agent.pk)]) for state in shown)
    return ClusterSchedule(cluster.slug, last_s, agents, len(states) - len(shown))


def _fitting(cluster: Cluster, states: Sequence[AgentSchedule], last_s: float) -> int:
    """Agents that fit into one response; at least one."""
    queries = Counter(parts_running(cluster).values_list("agent", flat=True))
    epochs = accumulate(queries[state.agent.pk] * last_s / EPOCH_S for state in states[:MAX_AGENTS])
    return max(1, sum(total <= MAX_EPOCHS for total in epochs))


def agent_timeline(agent: Agent, now: datetime, last_s: float) -> AgentTimeline | None:
    """Timeline of one agent by epoch: running query, slack, windows and memory; None if it runs no query."""
    state = schedules_of(agent.cluster).get(str(agent.pk))
    if state is None:
        return None
    lines = scheduled_queries_since([state], now, last_s)[str(agent.pk)]
    timeline = tuple(
        ScheduleTrack(
            line.name,
            tuple((row.epoch_us, row.spans, row.slack_s, row.queued) for row in line.rows),
            tuple(tuple(sweep) for sweep in line.sweeps),
        )
        for line in lines
    )
    return AgentTimeline(**vars(_core(state, lines)), last_s=last_s, memory=tuple(memory_of(lines)), timeline=timeline)


def _core(state: AgentSchedule, lines: Sequence[ScheduledQuery]) -> AgentCore:
    report = state.report
    return AgentCore(
        **vars(_windows(lines)),
        agent=state.agent.name,
        agent_id=str(state.agent.pk),
        policy=state.policy or None,
        mode=report.get("mode"),
        reason=report.get("reason"),
        memory_bytes=report.get("memory_bytes"),
        memory_bound=report.get("memory_bound"),
        cycle_ms=report.get("cycle_ms"),
        starved=report.get("starved"),
        config=state.config or None,
        wanted=state.wanted or None,
        behind=state.behind,
        canary=state.canary,
        refused=state.refused,
        settings=state.settings,
        queries=tuple(_query(line) for line in lines),
    )


def _windows(lines: Sequence[ScheduledQuery]) -> SweptWindows:
    latencies = [sweep.latency_s for line in lines for sweep in line.sweeps]
    judged = [sweep for line in lines for sweep in line.judged]
    return SweptWindows(
        windows=len(latencies),
        latency_mean_s=fmean(latencies) if latencies else None,
        latency_p99_s=tail_latency_s(latencies),
        expected_windows=len(judged),
        hit_rate=sum(bool(sweep.is_hit) for sweep in judged) / len(judged) if judged else None,
    )


def _query(line: ScheduledQuery) -> QueryOnCore:
    return QueryOnCore(
        **vars(_windows([line])),
        query=line.name,
        period_s=line.period_s,
        backlog_s=line.backlog_s,
        queued=line.queued,
        queued_bytes=line.queued_bytes,
        slack_s=line.slack_s,
        deadline_us=line.deadline_us,
        expected=ExpectedWatermark(*line.expected) if line.expected else None,
        overflow=sum(row.overflow for row in line.rows),
        timed=line.timed,
        in_time=line.in_time,
        in_time_share=line.in_time_share,
        shed_late=line.shed_late,
        late=line.late,
    )
