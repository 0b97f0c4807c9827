"""Policies of a reducer that has more to do than time: no scheduling, batch EDF, the grouped array, D-over.

Each takes the same tuples and returns how many end by their deadline.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engine.deadlines.grouped_array import GroupedSchedule

__all__ = ["POLICIES", "ReducerTrace", "cost_aware", "d_over", "earliest_batch", "in_order"]

_PARTS = 8  # of a release, each a batch of neighbouring time stamps
_BATCH_QUANTILE = 0.1  # of the deadlines of a batch's tuples, which is the batch's


@dataclass(frozen=True)
class ReducerTrace:
    """Tuples of a reducer in order of release, arrays of shape (n,); times in seconds."""

    release_s: NDArray[np.float64]
    deadline_s: NDArray[np.float64]
    level: NDArray[np.int64]  #: index into `costs_s`
    costs_s: tuple[float, ...]  #: keys in memory, keys on disk

    def __len__(self) -> int:
        return len(self.release_s)

    @property
    def cost_s(self) -> NDArray[np.float64]:
        """Processing time of each tuple, shape (n,)."""
        return np.asarray(self.costs_s)[self.level]

    def releases(self) -> Iterator[tuple[float, slice]]:
        """Instants at which tuples are released, and which these are."""
        begins = np.flatnonzero(np.diff(self.release_s, prepend=-np.inf)).tolist()
        for first, after in zip(begins, [*begins[1:], len(self)], strict=True):
            yield float(self.release_s[first]), slice(first, after)


def in_order(trace: ReducerTrace) -> int:
    """No scheduling: everything is processed as it comes, late or not."""
    work_s = np.cumsum(trace.cost_s)
    end_s = work_s + np.maximum.accumulate(trace.release_s - (work_s - trace.cost_s))
    return int((end_s <= trace.deadline_s).sum())


def earliest_batch(trace: ReducerTrace) -> int:
    """Batch EDF: a release in eight batches of neighbouring deadlines, the earliest batch first.

    A batch's deadline is the 0.1-quantile of its tuples'. It is not begun after that, and left at the first tuple that
    would end later: without this, and with larger batches, the order gains next to nothing.

    References
    ----------
    Li, Diao, Shenoy, VLDB 2015, section 4.1.
    """
    ready: list[tuple[float, int, slice]] = []
    cost_s, in_time, now_s = trace.cost_s, 0, 0.0
    order = np.arange(len(trace))
    releases = [*trace.releases(), (math.inf, slice(0, 0))]
    for (release_s, group), (next_s, _) in pairwise(releases):
        now_s = max(now_s, release_s)
        order[group] = group.start + np.argsort(trace.deadline_s[group], kind="stable")
        edges = np.linspace(group.start, group.stop, _PARTS + 1).astype(int).tolist()
        for first, after in pairwise(edges):
            if first < after:
                due_s = float(np.quantile(trace.deadline_s[order[first:after]], _BATCH_QUANTILE))
                heapq.heappush(ready, (due_s, first, slice(first, after)))
        while ready and now_s < next_s:
            due_s, _, batch = heapq.heappop(ready)
            if now_s >= due_s:
                continue
            tuples = order[batch]
            end_s = now_s + np.cumsum(cost_s[tuples])
            done = int(np.searchsorted(end_s, due_s, side="right"))
            in_time += int((end_s[:done] <= trace.deadline_s[tuples[:done]]).sum())
            now_s = float(end_s[done - 1]) if done else now_s
    return in_time


def cost_aware(trace: ReducerTrace, unit_s: float) -> int:
    """The grouped array: after each release the largest set that can be done, in order of deadline.

    References
    ----------
    Li, Diao, Shenoy, VLDB 2015, section 4.2 and 4.3.
    """
    schedule, in_time, now_s = GroupedSchedule(unit_s, trace.costs_s), 0, 0.0
    for release_s, group in trace.releases():
        if release_s > now_s:
            now_s, done = schedule.serve(now_s, release_s)
            in_time += done
        schedule.release(trace.deadline_s[group], trace.level[group])
        schedule.sweep(now_s)
    return in_time + schedule.serve(now_s, math.inf)[1]


class _Dover:
    """State of D-over with tuples of equal value.

    A tuple that reaches its latest start while it waits would take the processor if its value exceeded that of what
    runs and is privileged by the factor 1 + sqrt(k), k the ratio of value densities. With equal values it never does,
    and is dropped: so nobody needs to look before the tuple's turn comes.
    """

    def __init__(self, trace: ReducerTrace) -> None:
        self.due_s, self.left_s = trace.deadline_s.tolist(), trace.cost_s.tolist()
        self.running: int | None = None
        self.ends_s = math.inf  # when the running tuple ends
        self.available_s = 0.0  # slack it may give away
        self.privileged: list[tuple[float, int, float, float]] = []  # deadline, tuple, preempted at, slack then
        self.others: list[tuple[float, int]] = []  # deadline, tuple
        self.in_time = 0

    def release(self, i: int, now_s: float) -> None:
        """A tuple comes."""
        slack_s, current = self.due_s[i] - now_s - self.left_s[i], self.running
        if slack_s < 0:
            return
        if current is None:
            self._run(i, now_s, slack_s)
        elif self.due_s[i] < self.due_s[current] and self.available_s >= self.left_s[i]:
            self.left_s[current] = self.ends_s - now_s
            heapq.heappush(self.privileged, (self.due_s[current], current, now_s, self.available_s))
            self._run(i, now_s, min(self.available_s - self.left_s[i], slack_s))
        else:
            heapq.heappush(self.others, (self.due_s[i], i))

    def complete(self) -> None:
        """The running tuple ends; the next one is chosen."""
        assert self.running is not None
        now_s = self.ends_s
        self.in_time += now_s <= self.due_s[self.running]
        self.running, self.ends_s = None, math.inf
        other = self._first_other(now_s)
        if self.privileged:
            due_s, i, since_s, slack_s = self.privileged[0]
            available_s = slack_s - (now_s - since_s)
            if other is None or self.due_s[other] >= due_s or available_s < self.left_s[other]:
                heapq.heappop(self.privileged)
                self._run(i, now_s, available_s)
                return
        else:
            available_s = math.inf
        if other is not None:
            heapq.heappop(self.others)
            left_s = self.left_s[other]
            self._run(other, now_s, min(available_s - left_s, self.due_s[other] - now_s - left_s))

    def _first_other(self, now_s: float) -> int | None:
        """The other of the earliest deadline that can still be done; those before it are dropped."""
        while self.others and now_s + self.left_s[self.others[0][1]] > self.others[0][0]:
            heapq.heappop(self.others)
        return self.others[0][1] if self.others else None

    def _run(self, i: int, now_s: float, available_s: float) -> None:
        self.running, self.ends_s, self.available_s = i, now_s + self.left_s[i], available_s


def d_over(trace: ReducerTrace) -> int:
    """D-over with tuples of equal value: earliest deadline first, and no tuple is begun that would be late.

    References
    ----------
    Koren and Shasha, SIAM Journal on Computing 24 (1995); compared with in Li, Diao, Shenoy, VLDB 2015, section 5.2.
    """
    state = _Dover(trace)
    for release_s, group in [*trace.releases(), (math.inf, slice(0, 0))]:
        while state.running is not None and state.ends_s <= release_s:
            state.complete()
        for i in range(group.start, group.stop):
            state.release(i, release_s)
    return state.in_time


#: By name; the unit of deadlines is for those that round them.
POLICIES: dict[str, Callable[[ReducerTrace, float], int]] = {
    "none": lambda trace, unit_s: in_order(trace),
    "batch EDF": lambda trace, unit_s: earliest_batch(trace),
    "cost-aware": cost_aware,
    "D-over": lambda trace, unit_s: d_over(trace),
}
