"""The paper's tree of deadlines keeps as many tasks as a largest subset has."""

from __future__ import annotations

import random

import pytest

from engine.deadlines.subset import Task, largest_subset
from lab.deadlines.deadline_tree import DeadlineTree


def test_tree_of_the_paper_keeps_the_same_number() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        tasks = [Task(draw.randint(0, 16) / 8, draw.randint(0, 6) / 8) for _ in range(draw.randint(0, 20))]
        now = draw.randint(0, 4) / 8
        tree = DeadlineTree()
        dropped = tree.release([(task.deadline, task.cost) for task in tasks], now)
        best = largest_subset(tasks, now)
        assert len(tree.kept()) == len(tasks) - dropped == best.size, seed
        assert sum(cost for _, cost in tree.kept()) == pytest.approx(best.cost)
        tree.serve(now, now + best.cost / 2)
        assert len(tree.kept()) < best.size or not best.cost
