"""What a controller of load factors is: one for each query at a source, asked once an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from engine.jarvis.observation import EpochObservation
from engine.jarvis.refined import Refined
from engine.jarvis.settings import Settings

__all__ = ["Controller", "Decision", "Phase", "QueryState"]


class Phase(StrEnum):
    """Where the runtime of a query stands (Jarvis, section IV-C)."""

    STARTUP = "startup"
    PROBE = "probe"
    PROFILE = "profile"
    ADAPT = "adapt"


class QueryState(StrEnum):
    """What the last epoch was (Jarvis, section IV-C; only overflow counts as congestion)."""

    CONGESTED = "congested"
    IDLE = "idle"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the next epoch runs with, and why."""

    load_factors: tuple[float, ...]  #: M of them
    phase: Phase
    state: QueryState
    reason: str  #: in plain words, with figures
    moved: bool  #: load factors differ from those of the epoch before


class Controller(Protocol):
    """Decides the load factors of one query at one source. Never raises on odd observations."""

    @property
    def load_factors(self) -> tuple[float, ...]:
        """For the next epoch."""

    def decide(self, observation: EpochObservation) -> Decision:
        """An epoch has ended: what the next one runs with."""

    def adopt(self, settings: Settings, prior: Refined | None) -> None:
        """Between two epochs: go on with these settings and, where there is one, this prior; what is known stays.

        How long a prior holds is kept by who hands it over.
        """

    def report(self) -> dict[str, Any]:
        """For the heartbeat: phase, state, z (effective budget over budget, None where the method has none), reason,
        stable_epochs, moves, and `changes`, the last ten: {"epoch_us", "why", "epochs" until stable or None while it
        is not, "from", "to": load factors, "bytes_before", "bytes_after": sent per record or None}."""
