"""Grounds of a decision: what speaks for or against a candidate, in names and numbers.

Each is a small record of its own; `kind` tells apart what is known by the same numbers. Their sentences stand in
`engine.words.admission`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.document.backlog import InputBacklog
from engine.estimation.answer import Alarm
from engine.latency_state import CatchUp

if TYPE_CHECKING:
    from engine.admission.answer import Robustness
    from engine.admission.evaluation import QueryOutcome
    from engine.costream.accuracy import PredictionRecord

__all__ = [
    "MAX_RISE",
    "CatchUpGround",
    "Ground",
    "NamedGround",
    "OutcomeGround",
    "PassGround",
    "PassedOver",
    "PredictedGround",
    "TightestObjective",
    "UnprovenGround",
    "VerdictGround",
    "WithoutPins",
]


MAX_RISE = 1.0  # share by which load and costs are raised at most, to see whether a verdict stays


@dataclass(frozen=True)
class NamedGround:
    """A finding about a query, operator, node or server, by names and a few numbers.

    `value` and `bound` are in the unit of its reason, `was` is the value before; `of` counts all, where `names` may be
    some of them.
    """

    kind: str  #: of its sentence: most often the code of its reason
    subject: str
    names: tuple[str, ...] = ()
    of: int = 0
    value: float = 0.0
    bound: float = 0.0
    was: float = 0.0


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
class CatchUpGround:
    """When a query catches up; `was` is without the candidate."""

    query: str
    now: CatchUp
    was: CatchUp | None
    candidate: str


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
class PassGround:
    """The outcome of a candidate that may run, or would `later_s` later; queries `over` are late with or without it."""

    own: QueryOutcome
    is_changed: bool = False
    over: tuple[str, ...] = ()
    later_s: float | None = None


@dataclass(frozen=True)
class VerdictGround:
    """The ground that a verdict rests on, with what else belongs to it.

    `others` miss their objectives as well; `unborne` is what no run bears out: ``prediction``, or ``costs``, which are
    nominal; `passes_unpinned` tells that the candidate would pass on other nodes than those asked for, `thin` what the
    verdict would stand where that is too little.
    """

    first: Ground
    others: tuple[str, ...] = ()
    unborne: str = ""
    candidate: str = ""
    passes_unpinned: bool = False
    thin: Robustness | None = None


Ground = (
    NamedGround | OutcomeGround | TightestObjective | CatchUpGround | PredictedGround | UnprovenGround | PassedOver
    | WithoutPins | PassGround | VerdictGround | InputBacklog | Alarm
)  # fmt: skip
