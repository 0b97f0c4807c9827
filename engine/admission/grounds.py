"""Grounds of a decision: what speaks for or against a candidate, in names and numbers.

Each is a small record of its own; `kind` tells apart what is known by the same numbers. Their sentences stand in
`engine.words.admission`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.document.backlog import InputBacklog
from engine.document.memory import NodeMemory
from engine.estimation.answer import Alarm
from engine.latency_state import CatchUp
from engine.measurement.trust import EstimateTrust

if TYPE_CHECKING:
    from engine.admission.answer import Robustness
    from engine.admission.evaluation import QueryOutcome
    from engine.costream.accuracy import PredictionRecord

__all__ = [
    "MAX_RISE",
    "CatchUpGround",
    "FewEvents",
    "FillingGround",
    "Ground",
    "LaterPass",
    "MemoryGround",
    "NamedGround",
    "OutcomeGround",
    "PassGround",
    "PassedOver",
    "PredictedGround",
    "ServerGround",
    "TightestObjective",
    "TrustGround",
    "UnprovenGround",
    "VerdictGround",
    "WithoutPins",
]


MAX_RISE = 1.0  # share by which load and costs are raised at most, to see whether a verdict stays


@dataclass(frozen=True)
class NamedGround:
    """What is known of a query, or of one operator, by names alone; `of` them all, or steps of `step_s`."""

    kind: Literal[
        "no_objective", "placement_altered", "assumed_statistics", "assumed_costs", "memory_unknown", "coarse_counts",
        "no_events", "plan_unread", "neighbour_unmeasured", "never_ran", "predicted", "assumed_hosts", "incomplete",
        "infeasible", "no_results", "sources_wait", "outside_domain", "changes_unpredicted", "not_placed", "no_place",
    ]  # fmt: skip
    subject: str
    names: tuple[str, ...] = ()
    of: int = 0
    step_s: float = 0.0


@dataclass(frozen=True)
class OutcomeGround:
    """A query's outcome against its objective; `was` is the one without the candidate.

    `peak` is the load of its bottleneck, `is_shared` tells that the candidate is on that node as well, `is_worse` that
    the candidate makes it later by more than is let pass.
    """

    kind: Literal["missed", "missed_already", "old_events", "unknown", "policy_at_risk", "at_risk", "at_risk_already",
                  "too_fine", "rate_bounded"]  # fmt: skip
    now: QueryOutcome
    was: QueryOutcome | None = None
    candidate: str = ""
    peak: float | None = None
    is_shared: bool = False
    is_worse: bool = False


@dataclass(frozen=True)
class TightestObjective:
    """The objective with the least headroom of the `count` that hold, and the busiest server of the candidate."""

    own: QueryOutcome
    headroom: float
    count: int
    candidate: str
    busiest: str | None
    load: float


@dataclass(frozen=True)
class ServerGround:
    """A load before and after, as a share of the server's capacity, and what it may be."""

    kind: Literal["overloaded", "never_catches_up", "still_growing", "over_at_peak"]
    server: str
    was: float
    now: float
    bound: float


@dataclass(frozen=True)
class FewEvents:
    """An operator's statistics rest on `events`; `below` of the candidate's have fewer than are asked for."""

    operator: str
    events: float
    asked: float
    below: int


@dataclass(frozen=True)
class MemoryGround:
    """More state than memory: with the candidate, or without it."""

    node: NodeMemory
    is_new: bool


@dataclass(frozen=True)
class CatchUpGround:
    """When a query catches up; `was` is without the candidate."""

    query: str
    now: CatchUp
    was: CatchUp | None
    candidate: str


@dataclass(frozen=True)
class TrustGround:
    """Intervals of a query that hold too seldom."""

    query: str
    trust: EstimateTrust


@dataclass(frozen=True)
class FillingGround:
    """A prediction below what windows and links alone take."""

    query: str
    latency_s: float
    least_s: float


@dataclass(frozen=True)
class PredictedGround:
    """A predicted outcome, made of the latency from end to end, the filling of windows and what lies above the mean."""

    own: QueryOutcome
    latency_s: float
    fill_s: float
    above_s: float


@dataclass(frozen=True)
class UnprovenGround:
    """A prediction, or nominal costs where there is no outcome, that no run bears out."""

    query: str
    own: QueryOutcome | None
    record: PredictionRecord


@dataclass(frozen=True)
class PassedOver:
    """The best nodes for the candidate alone, and what speaks against them."""

    query: str
    nodes: tuple[str, ...]
    why: Ground


@dataclass(frozen=True)
class WithoutPins:
    """The verdict on nodes of Sluice's choice; `own` is the outcome there if the candidate passes."""

    query: str
    nodes: tuple[str, ...]
    verdict: str
    is_same: bool
    own: QueryOutcome | None


@dataclass(frozen=True)
class LaterPass:
    """A start `later_s` later with which the candidate passes: more than it may wait, or its outcome then."""

    query: str
    later_s: float
    may_wait_s: float = 0.0
    own: QueryOutcome | None = None


@dataclass(frozen=True)
class PassGround:
    """The outcome of a candidate that may run; queries `over` miss their objectives with or without it."""

    own: QueryOutcome
    is_changed: bool
    over: tuple[str, ...]


@dataclass(frozen=True)
class VerdictGround:
    """The ground that a verdict rests on, with what else belongs to it.

    `others` miss their objectives as well; `unborne` is what no run bears out: a prediction, or nominal costs of a
    query; `passes_unpinned` tells that the candidate would pass on other nodes than those asked for, `thin` what the
    verdict would stand where that is too little.
    """

    first: Ground
    others: tuple[str, ...] = ()
    unborne: Literal["", "prediction", "costs"] = ""
    candidate: str = ""
    passes_unpinned: bool = False
    thin: Robustness | None = None


Ground = (
    NamedGround | OutcomeGround | TightestObjective | ServerGround | FewEvents | MemoryGround | CatchUpGround
    | TrustGround | FillingGround | PredictedGround | UnprovenGround | PassedOver | WithoutPins | LaterPass | PassGround
    | VerdictGround | InputBacklog | Alarm
)  # fmt: skip
