"""What pages and REST show of configurations and rollouts, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

__all__ = [
    "AgentConfigState",
    "AgentSchedule",
    "Button",
    "ConfigView",
    "Figure",
    "PartView",
    "RolloutStep",
    "RolloutView",
    "SavedBytes",
    "SchedulePartView",
    "StepState",
    "Switch",
    "SwitchAgent",
    "SwitchPreview",
]


class StepState(StrEnum):
    """Whether a step of a rollout is over."""

    DONE = "done"
    NOW = "now"
    NEXT = "next"


class Button(StrEnum):
    """What a person may do to a rollout now."""

    PAUSE = "pause"
    RESUME = "resume"
    ROLL_BACK = "roll-back"
    STOP = "stop"  #: one that waits in line


@dataclass(frozen=True)
class RolloutStep:
    """`Canary, 5 agents`: `25 of 40 epochs, no agent slower`."""

    title: str
    words: str
    share: float  #: 0 to 1, how much of it is over
    state: StepState


@dataclass(frozen=True)
class Figure:
    """How a measure moved against what would have been without the configuration."""

    key: str  #: cpu, bytes, overflow, latency; of scheduling window, window_p99, queue
    label: str  #: `Agent CPU`
    text: str  #: `+2.1 ± 0.8 %`: the change, and by how much it is not known
    limit_text: str  #: `limit +5 %`
    change: float | None  #: relative; of overflow in percentage points, of delays in seconds; None: not known yet
    worse: bool  #: beyond its limit by more than that
    unsure: bool  #: beyond its limit, perhaps by chance


@dataclass(frozen=True)
class RolloutView:
    """A rollout as the panel of the page Sources shows it."""

    rollout: Any  #: the row, with config, back and by
    config: str  #: `c-118`
    words: str
    state: str
    badge: str  #: `Canary healthy`
    tone: str  #: ok, warning, danger, info, neutral
    steps: tuple[RolloutStep, ...]
    figures: tuple[Figure, ...]
    compared: str  #: `Compared with 41 agents on c-117`
    measured_at: datetime | None
    reasons: tuple[str, ...]  #: of the verdict, or why it ended
    notes: tuple[str, ...]  #: agents that are silent or refused, by name
    buttons: frozenset[Button]
    given: int  #: agents that have it, whom a roll back would reach
    waiting: tuple[str, ...] = ()  #: configurations in line behind it


@dataclass(frozen=True)
class AgentConfigState:
    """Which configuration an agent has."""

    config: str  #: `c-117`, `` where it has none
    version: int  #: 0 where it has none
    same_as: str = ""  #: `c-116`, where a rollback brought that one back
    canary: bool = False
    behind: bool = False  #: a newer one is meant for it
    by_hand: bool = False  #: its load factors are set by hand in every query it runs; it may be told how to schedule
    refused: tuple[str, ...] = ()  #: why it refuses the one that is meant for it


@dataclass(frozen=True)
class PartView:
    """A part of a configuration beside what was in force before it."""

    query: str
    agent: str  #: name, or `all agents`
    document: dict[str, Any]
    before: dict[str, Any] | None
    changes: tuple[tuple[str, str, str], ...]  #: (what, before, after), such as ("cost of rtt", "12 µs", "15 µs")


@dataclass(frozen=True)
class SchedulePartView:
    """How an agent is to share its core by a configuration, beside what was in force before it."""

    agent: str  #: name, or `all agents`
    document: dict[str, Any]
    before: dict[str, Any] | None
    changes: tuple[tuple[str, str, str], ...]  #: (setting, before, after)


@dataclass(frozen=True)
class ConfigView:
    """A configuration with its parts and what came of it."""

    config: Any
    parts: tuple[PartView, ...]
    settings: tuple[tuple[str, str, str], ...]  #: (name, before, after) of what it sets
    rollout: Any | None
    events: tuple[Any, ...]
    schedules: tuple[SchedulePartView, ...] = ()
    schedule: tuple[tuple[str, str, str], ...] = ()  #: (name, before, after) of what it sets of scheduling


@dataclass(frozen=True)
class AgentSchedule:
    """How an agent shares its core, and how it is to."""

    agent: Any  #: the row
    settings: Any  #: `ScheduleSettings` in force: those of the document that it says it has, else the defaults
    config: str  #: in force, `c-9`; `` where it has none
    version: int
    wanted: str  #: that it is to have, `c-10`; `` where none is meant for it
    part_id: int | None  #: of it that is meant for this agent
    behind: bool
    canary: bool
    refused: tuple[str, ...]  #: why it refuses the one that is meant for it
    report: dict[str, Any]  #: policy, mode, memory and so on as it said last; empty of older agents

    @property
    def policy(self) -> str:
        """By which it says it schedules; empty where it said nothing."""
        return str(self.report.get("policy") or "")


@dataclass(frozen=True)
class SwitchAgent:
    """What a switch of scheduling changes at an agent."""

    name: str
    policy_before: str
    policy_after: str
    is_canary: bool  #: it would come first
    changes: tuple[tuple[str, str, str], ...]  #: (setting, before, after)


@dataclass(frozen=True)
class SwitchPreview:
    """What a switch of scheduling would do."""

    settings: dict[str, Any]  #: all of them, as agents would have them
    agents: tuple[SwitchAgent, ...]
    judged: tuple[str, ...]  #: what its guard looks at, in words
    stages: tuple[int, ...]  #: how many agents each stage adds, canaries first
    least_s: float  #: until all have it, at the least
    waits_for: str  #: `c-8`, which is on its way; `` where it would begin at once
    unchanged: bool  #: all of these agents schedule so already, or are about to


@dataclass(frozen=True)
class Switch:
    """A switch that was made, or what makes one needless."""

    config: Any | None  #: None where agents have always scheduled so
    rollout: Any | None
    made: bool


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that agents sent over a span, and what others would have sent of the same records."""

    records: int
    sent: float
    all_sp: float
    all_src: float | None = None  #: None, as those below, where costs are not known yet
    filter_src: float | None = None
    best_op: float | None = None
    span_s: float = 0.0

    def saved(self, other: float | None) -> float | None:
        """Share of the other's bytes that were not sent."""
        return None if not other else 1.0 - self.sent / other
