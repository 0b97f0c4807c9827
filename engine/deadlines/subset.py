"""The largest set of tasks that meets every deadline, one after the other on one processor; and the weightiest."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

__all__ = ["Subset", "Task", "largest_subset", "subset_of", "weightiest_subset"]


class Task(NamedTuple):
    """Work that is worth `weight` if it is done by its deadline, and nothing afterwards; times in seconds."""

    deadline: float
    cost: float  #: processing time, >= 0
    weight: float = 1.0  #: > 0


@dataclass(frozen=True)
class Subset:
    """Tasks that are kept."""

    kept: tuple[int, ...]  #: indices, ascending
    cost: float  #: in all
    weight: float  #: in all
    short: float = 0.0  #: the best set weighs at most so much more; 0 where this is the best

    @property
    def size(self) -> int:
        return len(self.kept)


def largest_subset(tasks: Sequence[Task], now: float = 0.0) -> Subset:
    """A largest schedulable subset; of all the largest one with the least total cost. Weights do not count.

    Distinct deadlines in ascending order: the tasks of each are added, and while those kept so far end after it, the
    dearest of them is dropped.

    Notes
    -----
    Algorithm 1 of the paper with "while" in line 3 read as "while a task is left": as printed it never ends where a
    deadline has passed. O(n log n).

    References
    ----------
    Li, Diao, Shenoy, VLDB 2015, section 4.2, proposition 4.1.

    Examples
    --------
    >>> largest_subset([Task(4, 3), Task(5, 1), Task(6, 1), Task(7, 1), Task(7, 4)])
    Subset(kept=(0, 1, 2, 3), cost=6, weight=4.0, short=0.0)
    """
    kept, _ = _kept_by_deadline(tasks, now, [task.cost for task in tasks])
    return subset_of(tasks, kept)


def weightiest_subset(tasks: Sequence[Task], now: float = 0.0) -> Subset:
    """A schedulable subset of large weight: as `largest_subset`, but what goes first has the least weight per cost.

    Notes
    -----
    It is the best set where no task that costs more weighs more than a cheaper one; so with equal weights (Moore and
    Hodgson) and with equal costs. The general problem is NP-hard (a knapsack is one with a single deadline). There the
    best set weighs at most `short` more: at each deadline at which tasks are dropped, the part of the last one that
    need not have gone, so less than one task for each of those deadlines. For what is best in fractions of tasks
    drops as much of the least weight per cost as the deadline asks for, and taking more away costs no more than its
    weight. Where tasks are small beside the time until their deadlines, that is next to nothing.

    References
    ----------
    Lawler, Sequencing to minimize the weighted number of tardy jobs, RAIRO 10 (1976), for the case that is exact.

    Examples
    --------
    >>> weightiest_subset([Task(2, 2, weight=1), Task(2, 2, weight=5)])
    Subset(kept=(1,), cost=2, weight=5, short=0.0)
    >>> weightiest_subset([Task(4, 4, weight=4), Task(4, 1, weight=2)])  # the first alone would weigh 4
    Subset(kept=(1,), cost=1, weight=2, short=3.0)
    """
    order = [-task.weight / task.cost if task.cost else float("-inf") for task in tasks]
    kept, short = _kept_by_deadline(tasks, now, order)
    return subset_of(tasks, kept, 0.0 if _is_agreeable(tasks) else short)


def _kept_by_deadline(tasks: Sequence[Task], now: float, order: Sequence[float]) -> tuple[list[int], float]:
    """Indices of the tasks that stay when those of the highest `order` go first, and how much weight was dropped
    beyond what deadlines ask for.
    """
    end, short = now, 0.0
    heap: list[tuple[float, int]] = []
    by_deadline = sorted(range(len(tasks)), key=lambda i: tasks[i].deadline)
    for deadline, same in groupby(by_deadline, key=lambda i: tasks[i].deadline):
        for i in same:
            heapq.heappush(heap, (-order[i], i))
            end += tasks[i].cost
        if end <= deadline:
            continue
        while heap and end > deadline:
            _, i = heapq.heappop(heap)
            end -= tasks[i].cost
            if not heap or not tasks[heap[0][1]].cost:
                end = now  # what sums of floats leave over would make free tasks late
        if tasks[i].cost and end < deadline:
            short += tasks[i].weight * min((deadline - end) / tasks[i].cost, 1.0)
    return [i for _, i in heap], short


def _is_agreeable(tasks: Sequence[Task]) -> bool:
    """Whether no task that costs more weighs more than a cheaper one."""
    least = float("inf")
    by_cost = sorted(tasks, key=lambda task: task.cost)
    for _, same in groupby(by_cost, key=lambda task: task.cost):
        weights = [task.weight for task in same]
        if max(weights) > least:
            return False
        least = min(weights)
    return True


def subset_of(tasks: Sequence[Task], kept: Sequence[int], short: float = 0.0) -> Subset:
    """The subset of these indices."""
    chosen = sorted(kept)
    return Subset(tuple(chosen), sum(tasks[i].cost for i in chosen), sum(tasks[i].weight for i in chosen), short)
