"""The grouped array: tasks are counted by deadline and cost level, and a decision costs next to nothing per task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["GroupedSchedule"]

_ROUNDING = 1e-12  # seconds, and tasks: what sums of floats are off by
_BEGUN = 1e-9  # of a bucket: 0.3 / 0.1 is the third bucket's beginning


class GroupedSchedule:
    """Tasks that wait, in counts: deadlines rounded down to a multiple of `unit_s`, costs in a few levels.

    `release` counts tasks in, `sweep` drops those that cannot be done in time, `serve` takes the others in order. The
    set that a sweep keeps is a largest schedulable one for the rounded deadlines and the levels' costs. With `weights`,
    one for each level, what goes first has the least weight per cost (`engine.deadlines.subset.weightiest_subset` says
    how near to the best that is).

    Notes
    -----
    Deadlines are rounded down, so whoever meets the rounded one meets the other. A sweep costs the time of its buckets
    times levels, whatever the number of tasks.

    References
    ----------
    Li, Diao, Shenoy, VLDB 2015, section 4.3: groups of similar cost, a coarse unit of deadlines, tasks of one group
    handled together. The tree of section 4.2 finds the same set, slower.

    Examples
    --------
    >>> schedule = GroupedSchedule(0.1, [0.25, 0.5])
    >>> schedule.release([1.0, 1.0, 1.0, 2.0], [0, 1, 1, 1])
    >>> schedule.sweep(0.0)  # 1.25 s of work are due after one second
    1
    >>> schedule.by_level()
    [1, 2]
    """

    def __init__(self, unit_s: float, costs_s: Sequence[float], weights: Sequence[float] | None = None) -> None:
        self.unit_s, self.costs_s = unit_s, tuple(costs_s)
        worth = weights or [1.0] * len(self.costs_s)
        levels = range(len(self.costs_s))
        self._costs = np.array(self.costs_s)
        self._cheapest = sorted(levels, key=lambda k: self.costs_s[k])
        costed = [k for k in levels if self.costs_s[k] > 0]
        self._first_to_go = sorted(costed, key=lambda k: (worth[k] / self.costs_s[k], -self.costs_s[k]))
        self._free = [k for k in levels if not self.costs_s[k]]
        self._base = 0  # bucket of the first row
        self._counts: NDArray[np.int64] = np.zeros((0, len(self.costs_s)), np.int64)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def release(self, deadlines_s: Any, levels: Any, counts: Any = None) -> None:
        """Tasks come: a deadline and a cost level of each, or of `counts` tasks each. Arrays of one length."""
        buckets = self._buckets(deadlines_s)
        if not len(buckets):
            return
        self._reach(int(buckets.min()), int(buckets.max()))
        width = len(self.costs_s)
        cells = (buckets - self._base) * width + np.asarray(levels)
        if counts is None:
            came = np.bincount(cells, minlength=self._counts.size)
        else:
            came = np.zeros(self._counts.size, np.int64)
            np.add.at(came, cells, np.asarray(counts))
        self._counts += came.reshape(self._counts.shape)

    def sweep(self, now_s: float) -> int:
        """Drop what cannot be done in time from now on; returns how many tasks that is."""
        filled = np.flatnonzero(self._counts.any(axis=1))
        if not len(filled):
            return 0
        counts = self._counts[filled]
        work_s = np.cumsum(counts @ self._costs)
        late_s = (now_s + work_s - (self._base + filled) * self.unit_s).tolist()  # while nothing is dropped
        if max(late_s) <= _ROUNDING:
            return 0
        came = [np.cumsum(counts[:, k]).tolist() for k in range(len(self.costs_s))]
        places = [_LatestTasks(counts[:, k].tolist()) for k in range(len(self.costs_s))]
        saved_s = 0.0
        for i, late in enumerate(late_s):
            if late - saved_s <= _ROUNDING:
                continue
            for k in self._first_to_go:
                if not (kept := came[k][i] - places[k].dropped):
                    continue
                cost_s = self.costs_s[k]
                excess = min(kept, math.ceil((late - saved_s) / cost_s - _ROUNDING))
                places[k].drop(excess, i)
                saved_s += excess * cost_s
                if late - saved_s <= _ROUNDING:
                    break
            else:  # nothing is left that costs anything
                saved_s = float(work_s[i])
                if late - saved_s > _ROUNDING:
                    for k in self._free:
                        places[k].drop(came[k][i] - places[k].dropped, i)
        self._counts[filled] = np.array([place.counts for place in places], np.int64).T
        return sum(place.dropped for place in places)

    def by_level(self) -> list[int]:
        """Number of tasks that wait, by level."""
        counts: list[int] = self._counts.sum(axis=0).tolist()
        return counts

    def serve(self, now_s: float, until_s: float) -> tuple[float, int]:
        """Take tasks in order of deadline, the cheapest first, until one ends at `until_s` or later.

        Returns when the last one ends (`until_s` where nothing is left to do) and how many ended by their rounded
        deadline.
        """
        end_s, in_time = now_s, 0
        for i in np.flatnonzero(self._counts.any(axis=1)).tolist():
            due_s = (self._base + i) * self.unit_s + _ROUNDING
            for k in self._cheapest:
                waiting, cost_s = int(self._counts[i, k]), self.costs_s[k]
                if not waiting:
                    continue
                fits = end_s + waiting * cost_s <= until_s
                taken = waiting if fits else min(waiting, math.ceil((until_s - end_s) / cost_s))
                done = min(taken, math.floor((due_s - end_s) / cost_s)) if cost_s else taken * (end_s <= due_s)
                self._counts[i, k] -= taken
                end_s += taken * cost_s
                in_time += max(done, 0)
                if end_s >= until_s:
                    return end_s, in_time
        return max(end_s, until_s), in_time

    def _buckets(self, deadlines_s: Any) -> NDArray[np.int64]:
        return np.floor(np.asarray(deadlines_s, np.float64) / self.unit_s + _BEGUN).astype(np.int64)

    def _reach(self, first: int, last: int) -> None:
        """Make room for these buckets; empty rows at the front go."""
        filled = np.flatnonzero(self._counts.any(axis=1))
        if not len(filled):
            self._base, self._counts = first, np.zeros((last - first + 1, len(self.costs_s)), np.int64)
            return
        begin, end = self._base + int(filled[0]), self._base + int(filled[-1])
        kept = self._counts[filled[0] : filled[-1] + 1]
        self._base = min(begin, first)
        self._counts = np.zeros((max(end, last) - self._base + 1, len(self.costs_s)), np.int64)
        self._counts[begin - self._base : begin - self._base + len(kept)] = kept


class _LatestTasks:
    """Tasks of one level by row, of which the latest up to a row are dropped."""

    __slots__ = ("_next", "_rows", "counts", "dropped")

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts
        self.dropped = 0
        self._rows: list[int] = []  # with tasks, ascending, up to the last one asked for
        self._next = 0

    def drop(self, count: int, last: int) -> None:
        """Drop so many tasks, of row `last` and those before."""
        self._rows += [i for i in range(self._next, last + 1) if self.counts[i]]
        self._next = last + 1
        self.dropped += count
        while count:
            row = self._rows[-1]
            taken = min(count, self.counts[row])
            self.counts[row] -= taken
            count -= taken
            if not self.counts[row]:
                self._rows.pop()
