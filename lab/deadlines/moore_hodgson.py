"""Moore's algorithm for the largest set of tasks that meets every deadline."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from engine.deadlines.subset import Subset, Task, subset_of

__all__ = ["moore_hodgson"]


def moore_hodgson(tasks: Sequence[Task], now: float = 0.0) -> Subset:
    """A largest schedulable subset of least cost, task by task.

    Where one added ends after its deadline, the dearest so far is dropped, and one is enough.

    References
    ----------
    Moore, Management Science 15 (1968); the form is Hodgson's.
    """
    end = now
    heap: list[tuple[float, int]] = []
    for i in sorted(range(len(tasks)), key=lambda i: tasks[i].deadline):
        deadline, cost, _ = tasks[i]
        heapq.heappush(heap, (-cost, i))
        end += cost
        if end > deadline:
            end += heapq.heappop(heap)[0]
            if not heap or not heap[0][0]:
                end = now  # what sums of floats leave over would make free tasks late
    return subset_of(tasks, [i for _, i in heap])
