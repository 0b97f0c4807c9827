"""Control of load factors: epochs as observed, phases (Jarvis, section IV-C), decisions, changes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from engine.jarvis.refined_config import RefinedAdaptation
from engine.jarvis.settings import AdaptationSettings

__all__ = [
    "AdaptationDecision",
    "ChangeHistory",
    "Controller",
    "EpochObservation",
    "EpochState",
    "OperatorEpoch",
    "Phase",
    "SourceOperator",
    "epoch_state",
]

_KEPT = 10
_SETTLED = 2  # stable epochs in a row, after which a change is over


@dataclass(frozen=True, slots=True)
class SourceOperator:
    """Operator that may run at the source, as adaptation sees it."""

    id: str
    kind: str  #: as in the pipeline document, such as filter or aggregate
    stateful: bool = False
    window_s: float | None = None  #: of a windowed aggregate: its partial rows leave once in so long


@dataclass(frozen=True, slots=True)
class OperatorEpoch:
    """Counts of one operator behind its control proxy.

    Records may wait for the next epoch. Growth of the queue counts as overflow like records that were shed:
    ``overflow = max(records_in - processed - drained, 0)``, though waiting records are not lost to the source. A record
    that waits and is shed in a later epoch counts once, in the epoch of its arrival.
    """

    load_factor: float
    records_in: int
    processed: int
    drained: int  #: as planned by the load factor
    overflow: int  #: admitted and not processed in this epoch, less the waiting records it processed
    records_out: int  #: of a windowed aggregate only in epochs that closed a window
    groups: int  #: distinct groups of the epoch; 0 where the operator has none
    bytes_in: int
    bytes_out: int
    bytes_drained: int  #: of planned drain and of shed records
    cpu_s: float


@dataclass(frozen=True, slots=True)
class EpochObservation:
    """One query in one epoch, after it has ended."""

    epoch_us: int  #: beginning of the epoch, microseconds since 1970
    epoch_s: float
    operators: tuple[OperatorEpoch, ...]  #: M of them, in the order of the pipeline
    budget_s: float  #: CPU seconds that this query's operators could have had
    used_s: float  #: CPU seconds that they took

    @property
    def n_records(self) -> int:
        """Records that came to the first proxy."""
        return self.operators[0].records_in if self.operators else 0

    @property
    def overflow(self) -> int:
        """Records admitted and not processed, over all operators, with waiting ones."""
        return sum(operator.overflow for operator in self.operators)

    @property
    def bytes_sent(self) -> int:
        """Bytes that left the source: drained, overflowing and put out by the last operator."""
        if not self.operators:
            return 0
        return sum(operator.bytes_drained for operator in self.operators) + self.operators[-1].bytes_out

    @property
    def idle_s(self) -> float:
        """CPU time that it could have had and did not use."""
        return max(self.budget_s - self.used_s, 0.0)


class Phase(StrEnum):
    """Phase of a query's runtime (Jarvis, section IV-C)."""

    STARTUP = "startup"
    PROBE = "probe"
    PROFILE = "profile"
    ADAPT = "adapt"


class EpochState(StrEnum):
    """State of the last epoch (Jarvis, section IV-C; only overflow counts as congestion)."""

    CONGESTED = "congested"
    IDLE = "idle"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class AdaptationDecision:
    """Decision for the next epoch: load factors and the reason."""

    load_factors: tuple[float, ...]  #: M of them
    phase: Phase
    state: EpochState
    reason: str  #: in plain words, with figures
    moved: bool  #: load factors differ from those of the epoch before


class Controller(Protocol):
    """Controller of the load factors of one query at one source. Never raises on odd observations."""

    @property
    def load_factors(self) -> tuple[float, ...]:
        """Load factors of the next epoch."""

    def decide(self, observation: EpochObservation) -> AdaptationDecision:
        """Decide on the next epoch after one has ended."""

    def adopt(self, settings: AdaptationSettings, prior: RefinedAdaptation | None) -> None:
        """Adopt settings and a prior, if any, between two epochs; learned figures stay.

        How long a prior holds is kept by who hands it over.
        """

    def report(self) -> dict[str, Any]:
        """For the heartbeat: phase, state, z (effective budget over budget, None where the method has none), reason,
        stable_epochs, moves, and `changes`, the last ten: {"epoch_us", "why", "epochs" until stable or None while it
        is not, "from", "to": load factors, "bytes_before", "bytes_after": sent per record or None}."""


def epoch_state(observation: EpochObservation, settings: AdaptationSettings) -> EpochState:
    """State of an epoch: congested if an operator left more than DrainedThres of its admitted records unprocessed.

    Notes
    -----
    Unlike in the paper, what a proxy drained as planned is no congestion, or every load factor below 1 would be one;
    and a query that runs everything here is never idle, as there is nothing that it could do more.
    """
    operators = observation.operators
    if any(operator.overflow > settings.drained_thres * operator.records_in for operator in operators):
        return EpochState.CONGESTED
    everything = all(operator.load_factor >= 1.0 for operator in operators)
    if observation.idle_s > settings.idle_thres * observation.budget_s and not everything and observation.n_records:
        return EpochState.IDLE
    return EpochState.STABLE


class ChangeHistory:
    """Changes of the load factors, for the heartbeat."""

    def __init__(self) -> None:
        self.moves = self.stable_epochs = 0
        self.changes: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._open: dict[str, object] | None = None
        self._epochs = 0
        self._sent: float | None = None

    def add(
        self,
        observation: EpochObservation,
        state: EpochState,
        why: str,
        old: tuple[float, ...],
        new: tuple[float, ...],
        sent: float,
    ) -> None:
        """Add an epoch of load factors `old` that ended in this state; then `new` runs; `sent` is bytes a record."""
        stable = state is EpochState.STABLE
        self.stable_epochs = self.stable_epochs + 1 if stable else 0
        self.moves += old != new
        if self._open is None and not stable and old != new:
            self._begin(observation, why, old)
        elif self._open is not None:
            self._epochs += 1
        if self._open is not None:
            self._open["to"] = list(new)
            if self.stable_epochs >= _SETTLED:
                self._open.update(epochs=self._epochs - _SETTLED, bytes_after=sent)
                self._open = None
        if stable:
            self._sent = sent

    def _begin(self, observation: EpochObservation, why: str, old: tuple[float, ...]) -> None:
        self._epochs = 1
        self._open = {
            "epoch_us": observation.epoch_us,
            "why": why,
            "epochs": None,
            "from": list(old),
            "to": list(old),
            "bytes_before": self._sent,
            "bytes_after": None,
        }
        self.changes.append(self._open)
