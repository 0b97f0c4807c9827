"""Deadlines of queries with a latency constraint: which waiting records are still processed here under overload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.stream_tracker import StreamTracker
from engine.deadlines.grouped_array import GroupedSchedule

__all__ = ["QueryDeadlines", "WaitingRecords", "records_to_drop"]


UNITS = 100  # of the shortest constraint: deadlines are rounded down to these
MAX_BUCKETS = 2_000  # later deadlines are alike
MAX_CONSTRAINT_S = 1e9  # longer ones are alike
MAX_PRIORITY = 10  # a step doubles the weight; beyond a thousandfold more of it says nothing


class QueryDeadlines:
    """When records of one query have to leave the agent, and how many of its records or windows did in time.

    A window is due a constraint after its end, a record of a query without windows a constraint after it came; less the
    time that the stream processor takes. Whatever is processed, drained or overflows in an epoch leaves at its end.
    """

    def __init__(self, pipeline: LocalPipeline, tracker: StreamTracker | None) -> None:
        self._pipeline, self._tracker = pipeline, tracker
        self._ends_us = self._epoch_us = self._stream_us = self._closing_us = 0

    def begin(self, ends_us: int, epoch_us: int, stream_delay_s: float, closing_us: int) -> None:
        """Begin an epoch of this length and end; what leaves with it is out `closing_us` later."""
        self._ends_us, self._epoch_us, self._stream_us = ends_us, epoch_us, int(stream_delay_s * 1e6)
        self._closing_us = closing_us

    @property
    def constraint_s(self) -> float | None:
        """Latency constraint of the query; None where it has none."""
        given_s = self._pipeline.config.latency_constraint_s
        return None if given_s is None else min(given_s, MAX_CONSTRAINT_S)

    @property
    def weight(self) -> float:
        """Worth of a record in time beside those of other queries."""
        return float(2.0 ** max(-MAX_PRIORITY, min(MAX_PRIORITY, self._pipeline.config.priority)))

    @property
    def can_hold(self) -> bool:
        """Whether there is a constraint that an order can keep: what has just come may wait for an epoch's end."""
        return self.constraint_s is not None and self._allowed_us >= self._epoch_us

    @property
    def _allowed_us(self) -> int:
        """Time from the beginning of a deadline until something has to leave here."""
        return int((self.constraint_s or 0.0) * 1e6) - self._stream_us

    def waiting(self) -> list[tuple[int, int]]:
        """By which epoch's end records at the first operator have to be done: (time, records), ascending."""
        groups = self._pipeline.waiting_groups()
        dues_us = accumulate((self._due_us(arrived_us, window_us) for arrived_us, window_us, _ in groups), max)
        return [(due_us, records) for due_us, (_, _, records) in zip(dues_us, groups, strict=True)]

    def _due_us(self, arrived_us: int, window_us: int) -> int:
        begins_us = arrived_us if self._pipeline.period_us is None else window_us + self._skew_us
        return begins_us + self._allowed_us - self._closing_us

    @property
    def _skew_us(self) -> int:
        return self._tracker.skew_us if self._tracker is not None else 0

    @property
    def first_us(self) -> int:
        """When the next record has to leave; the epoch's end for what was begun."""
        waiting = self.waiting()
        return waiting[0][0] if waiting else self._ends_us

    def give_up(self, records: int) -> None:
        """The first records go on unprocessed; those that are late everywhere are shed where the query allows that."""
        shed = 0
        if self._pipeline.config.shed_late:
            # for sure, even if this epoch is closed in no time
            late = sum(count for due_us, count in self.waiting() if due_us + self._closing_us < self._ends_us)
            shed = min(late, records)
        self._pipeline.give_up(records, shed)

    def row(self, swept: Sequence[Mapping[str, Any]], emitted_us: int) -> dict[str, int]:
        """Part of an epoch's row: `oc` records or windows that were counted in it, `ot` those of them in time.

        Windows count when they are swept, records of a query without windows when they leave.
        """
        if self.constraint_s is None:
            return {}
        if self._pipeline.period_us is None:
            left = [(arrived_us, records) for arrived_us, records in self._pipeline.take_leaving()]
        else:
            left = [(window["deadline_us"] + self._skew_us, 1) for window in swept]
        in_time = sum(count for begin_us, count in left if emitted_us <= begin_us + self._allowed_us)
        return {"oc": sum(count for _, count in left), "ot": in_time}


@dataclass(frozen=True)
class WaitingRecords:
    """Records of one query that wait at its first operator."""

    dues: Sequence[tuple[int, int]]  #: when so many of them have to leave, ascending; microseconds
    cost_s: float  #: CPU time of one through all operators here
    weight: float
    constraint_s: float


def records_to_drop(
    queries: Sequence[WaitingRecords], *, now_us: int, ends_us: int, epoch_us: int, begun_s: float, cores: float
) -> list[int]:
    """For each query, how many of its first records are not to be processed here: the others can be, in time.

    `begun_s` is CPU time that goes first, `cores` what these queries have of a core.

    Notes
    -----
    All records of a query cost the same, so its first ones may go in place of the latest that the grouped array drops:
    those that stay have later deadlines, and the same number of them still fits. Deadlines that have passed are alike,
    as are those beyond `MAX_BUCKETS` units: clocks of sources may be years off.

    Examples
    --------
    >>> waiting = WaitingRecords([(2_000_000, 30), (3_000_000, 30)], 0.1, 1.0, 3.0)
    >>> records_to_drop([waiting], now_us=0, ends_us=1_000_000, epoch_us=1_000_000, begun_s=0.0, cores=1.0)
    [30]
    """
    unit_s = min(query.constraint_s for query in queries) / UNITS
    reach_s = MAX_BUCKETS * unit_s
    schedule = GroupedSchedule(unit_s, [query.cost_s / cores for query in queries], [query.weight for query in queries])
    for level, query in enumerate(queries):
        # by the end of the last epoch with which they may leave
        leaves_us = [(due_us - ends_us) // epoch_us * epoch_us + ends_us for due_us, _ in query.dues]
        dues_s = [min(max((leave_us - now_us) / 1e6, -unit_s), reach_s) for leave_us in leaves_us]
        schedule.release(dues_s, [level] * len(dues_s), [count for _, count in query.dues])
    schedule.sweep(begun_s / cores)
    kept = schedule.by_level()
    return [sum(count for _, count in query.dues) - kept[level] for level, query in enumerate(queries)]
