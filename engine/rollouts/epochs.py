"""Epochs of agents: what an agent reports of one epoch of one query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["EPOCH_US", "EpochRow", "Sweep", "WatermarkForecast"]


EPOCH_S = 1.0


EPOCH_US = round(EPOCH_S * 1e6)


class WatermarkForecast(NamedTuple):
    """When the next sweeping watermark is expected, with its interval; microseconds since 1970."""

    mean_us: int
    least_us: int
    most_us: int


class Sweep(NamedTuple):
    """One window whose watermark has passed all operators at the agent; microseconds since 1970."""

    deadline_us: int  #: its end
    least_us: int | None  #: in which interval its watermark had been expected; None where nothing was known
    most_us: int | None
    arrived_us: int  #: when the watermark had passed the deadline
    swept_us: int  #: when it had passed the operators
    emitted_us: int  #: when the window was handed to the spool

    @property
    def latency_s(self) -> float:
        """From deadline to emission."""
        return (self.emitted_us - self.deadline_us) / 1e6

    @property
    def delay_s(self) -> float:
        """From deadline to arrival of the watermark; 0 where the clocks say less."""
        return max(0.0, (self.arrived_us - self.deadline_us) / 1e6)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The interval as delays after the deadline."""
        if self.least_us is None or self.most_us is None:
            return None
        return (self.least_us - self.deadline_us) / 1e6, (self.most_us - self.deadline_us) / 1e6

    @property
    def is_hit(self) -> bool | None:
        """Whether the watermark came in its interval; None where none had been known."""
        if self.least_us is None or self.most_us is None:
            return None
        return self.least_us <= self.arrived_us <= self.most_us


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch of one query at one agent. What an agent leaves out has its default."""

    epoch_us: int  #: when it began, microseconds since 1970
    load_factors: tuple[float, ...]
    records_in: int
    bytes_in: int
    bytes_sent: int  #: drained, overflowing, and put out by the last operator
    overflow: int  #: records let in and sent on unprocessed
    used_s: float  #: CPU seconds of its operators
    budget_s: float  #: that they could have had
    idle_s: float
    delay_s: float | None  #: from the newest acknowledged epoch's end to the console's acknowledgement of its frames
    version: int | None  #: of the refined document in force
    queued: int = 0  #: records that waited when it ended, and their bytes
    queued_bytes: int = 0
    slack_s: float | None = None  #: until the next window would be late; None where nothing is known
    expected: WatermarkForecast | None = None  #: of the next sweeping watermark
    sweeps: tuple[Sweep, ...] = ()  #: windows that were swept in it
    spans: tuple[tuple[float, float], ...] = ()  #: when it ran: milliseconds since the epoch began, and how many
    schedule_version: int | None = None  #: of the refined schedule of the agent in force
    timed: int = 0  #: windows, or records of a query without windows, that left and have a latency constraint
    in_time: int = 0  #: of these, those that could keep it
    shed_late: int = 0  #: of the overflow, records that were late everywhere and lost, where the query allows that
