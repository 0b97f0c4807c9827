"""Interface of the runtime: sources of records, and clocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["Clock", "EpochLabels", "RecordSource", "SystemClock"]


class RecordSource(Protocol):
    """A collector as the runtime sees it. It is asked from one thread only."""

    #: A replayable source can give the same records again after `seek`, so it is not polled while there is no room; a
    #: live one is polled all the same, what it gives is shed and counted.
    replayable: bool
    #: Records lost before the runtime saw them; never decreases.
    records_shed: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch, those of the pipelines' `source.schema`."""

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        """Records due by `now_us`, at most about `most`; never waits.

        `now_us` never goes back. A replayable source keeps what is above `most` for later; a live one keeps what it
        has room for and sheds the rest.
        """

    def watermark_us(self) -> int:
        """Event time below which no later record falls, as far as the source knows; 0 while it knows nothing."""

    def position(self) -> Any:
        """Position at which the next `poll` begins, as JSON data; None for a live source."""

    def seek(self, position: Any) -> None:
        """Go on from an earlier `position`.

        Raises
        ------
        ValueError
            It cannot be gone on from; the source then begins where it would without.
        """


SLEW = 0.9  # pace of labels that are ahead of a wall clock that was put back
MIN_TOLD_S = 1.0  # of catching up; less is over before anybody looks


class Clock(Protocol):
    """Clock of the runtime; tests have their own."""

    def wall_us(self) -> int:
        """Microseconds since 1970; may jump."""

    def monotonic_ns(self) -> int:
        """Never goes back, knows no date."""

    def process_cpu_ns(self) -> int:
        """CPU time of the whole process, all threads."""

    def thread_cpu_ns(self) -> int:
        """CPU time of the thread that asks."""


class SystemClock:
    """The machine's own."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def process_cpu_ns(self) -> int:
        return time.process_time_ns()

    def thread_cpu_ns(self) -> int:
        return time.thread_time_ns()


class EpochLabels:
    """The wall clock made monotone: each label is above the one before.

    A wall clock that jumps forward is followed at once, by one label. One that is put back is waited for: labels go on
    at nine tenths of the true pace until it has caught up, so rates per label time stay right to a tenth.
    """

    def __init__(self, clock: Clock, last_us: int = 0) -> None:
        self._clock = clock
        self._last_us = last_us
        self._read_ns = clock.monotonic_ns()
        self._ahead_us = 0

    def now_us(self) -> int:
        """The next label."""
        read_ns = self._clock.monotonic_ns()
        passed_us = int((read_ns - self._read_ns) / 1000 * SLEW)
        self._read_ns = read_ns
        wall_us = self._clock.wall_us()
        self._last_us = max(wall_us, self._last_us + max(passed_us, 1))
        self._ahead_us = self._last_us - wall_us
        return self._last_us

    @property
    def fault(self) -> str:
        """That the wall clock was put back, and for how long labels differ from it; empty when they do not."""
        ahead_s = self._ahead_us / 1e6
        catching_up_s = ahead_s / (1 - SLEW)
        if catching_up_s < MIN_TOLD_S:
            return ""
        return f"clock stepped back: epochs are {ahead_s:,.1f} s ahead of it, {catching_up_s:,.0f} s to catch up"
