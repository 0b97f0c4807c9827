"""Sweeping watermarks: each passes the end of a window, and with it all records that the window waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.runtime.waiting import Mark

__all__ = ["Sweep", "swept"]

MOST_SWEEPS = 20  # of one mark; a stream that comes back after hours passes any number of windows at once


@dataclass(frozen=True, slots=True)
class Sweep:
    """A watermark that has passed all operators here; times are microseconds of epochs' labels."""

    deadline_us: int  #: end of the window
    period_us: int  #: from one deadline to the next
    arrived_us: int  #: when the watermark was read that passed it
    swept_us: int  #: when everything before it had left the operators
    queued: int  #: records of the query that waited before it when it came
    work_s: float  #: CPU time that they were expected to take
    emitted_us: int = 0  #: when the epoch that closed the window was handed to the spool


def swept(mark: Mark, before_us: int, period_us: int, now_us: int) -> Iterator[Sweep]:
    """The deadlines from the watermark before on, this one's last.

    The first one counts however far ahead it is; others beyond the mark's own time by more than a period are of no
    clock. Of more than `MOST_SWEEPS` the newest are told.
    """
    first_us = (before_us // period_us + 1) * period_us
    if mark.watermark_us < first_us:
        return
    told_us = max(min(mark.watermark_us, mark.arrived_us + period_us), first_us)
    last_us = told_us // period_us * period_us
    first_us = max(first_us, last_us - (MOST_SWEEPS - 1) * period_us)
    for deadline_us in range(first_us, last_us + 1, period_us):
        yield Sweep(deadline_us, period_us, mark.arrived_us, now_us, mark.queued, mark.work_s)
