"""Moore's algorithm keeps as many tasks as the largest subset has, at the same cost."""

from __future__ import annotations

import random

from engine.deadlines.subset import Task, largest_subset
from lab.deadlines.moore_hodgson import moore_hodgson


def test_as_many_tasks_are_kept_at_the_same_cost() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        tasks = [Task(draw.randint(0, 16) / 8, draw.randint(0, 6) / 8) for _ in range(draw.randint(0, 12))]
        now = draw.randint(0, 4) / 8
        found, best = moore_hodgson(tasks, now), largest_subset(tasks, now)
        assert (found.size, found.cost) == (best.size, best.cost), seed


def test_sums_of_floats_leave_no_free_task_late() -> None:
    tasks = [*(Task(0.3, 0.1) for _ in range(5)), Task(0.3, 0.0)]
    assert 5 in moore_hodgson(tasks, 0.0).kept
    assert moore_hodgson([*tasks, Task(0.7, 0.1)], 0.29999).kept == (5, 6)
