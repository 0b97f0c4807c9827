"""What an epoch was, and where the runtime stands: Startup, Probe, Profile, Adapt (Jarvis, section IV-C)."""

from __future__ import annotations

from engine.jarvis.controlling import Phase, QueryState
from engine.jarvis.observation import EpochObservation
from engine.jarvis.settings import Settings

__all__ = ["DETECT_EPOCHS", "Machine", "query_state"]

DETECT_EPOCHS = 3  # unstable ones in a row, before the paper's runtime profiles: fewer may be scheduling noise


def query_state(observation: EpochObservation, settings: Settings) -> QueryState:
    """Congested where some operator left more than DrainedThres of its records unprocessed, though they were let in.

    Notes
    -----
    Unlike in the paper, what a proxy drained as planned is no congestion, or every load factor below 1 would be one;
    and a query that runs everything here is never idle, as there is nothing that it could do more.
    """
    operators = observation.operators
    if any(one.overflow > settings.drained_thres * one.records_in for one in operators):
        return QueryState.CONGESTED
    everything = all(one.load_factor >= 1.0 for one in operators)
    if observation.idle_s > settings.idle_thres * observation.budget_s and not everything and observation.n_records:
        return QueryState.IDLE
    return QueryState.STABLE


class Machine:
    """The phases of a runtime that profiles: what one epoch was decides what the next one is."""

    def __init__(self) -> None:
        self.phase = Phase.STARTUP
        self._unstable = 0

    def after(self, state: QueryState) -> Phase:
        """An epoch has ended in this state; returns the phase of the next."""
        if self.phase is Phase.PROFILE:
            self.phase = Phase.ADAPT
        elif self.phase is Phase.STARTUP or (self.phase is Phase.ADAPT and state is QueryState.STABLE):
            self.phase, self._unstable = Phase.PROBE, 0
        elif self.phase is Phase.PROBE:
            self._unstable = 0 if state is QueryState.STABLE else self._unstable + 1
            if self._unstable >= DETECT_EPOCHS:
                self.phase, self._unstable = Phase.PROFILE, 0
        return self.phase

    def give_up(self) -> None:
        """Adapting has come to no stable plan: back to watching."""
        self.phase, self._unstable = Phase.PROBE, 0
