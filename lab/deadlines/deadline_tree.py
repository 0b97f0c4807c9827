"""The paper's tree of tasks, to compare the grouped array with: what it keeps, and what a task costs."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["DeadlineTree"]


@dataclass(slots=True)
class _Node:
    """A deadline with the costs of its tasks, dearest first, and the figures of its subtree."""

    deadline: float
    priority: float
    heap: list[float] = field(default_factory=list)  # negative costs
    own: float = 0.0  # their sum
    left: _Node | None = None
    right: _Node | None = None
    total: float = 0.0  # of the subtree
    dearest: float = -1.0  # of the subtree; -1 without tasks
    latest: float = float("inf")  # instant at which the subtree's tasks may begin (phi)

    def sum_up(self) -> None:
        """Figures of the subtree, from those of its children and its own tasks."""
        left, right = self.left, self.right
        before = (left.total if left else 0.0) + self.own
        self.total = before + (right.total if right else 0.0)
        self.dearest = max(
            left.dearest if left else -1.0, right.dearest if right else -1.0, -self.heap[0] if self.heap else -1.0
        )
        # a deadline without tasks asks for nothing: with it, an instant past it would have no schedule for ever
        own = self.deadline - before if self.heap else float("inf")
        self.latest = min(left.latest if left else float("inf"), own, right.latest - before if right else float("inf"))


class DeadlineTree:
    """Balanced search tree (a treap) of distinct deadlines; a set that can be done in time is left by `release`.

    References
    ----------
    Li, Diao, Shenoy, VLDB 2015, section 4.2, table 3 and algorithm 2.
    """

    def __init__(self) -> None:
        self._root: _Node | None = None
        self._random = random.Random(1)

    def release(self, tasks: Iterable[tuple[float, float]], now: float) -> int:
        """Add (deadline, cost) and drop the dearest tasks until all can be done; returns how many."""
        for deadline, cost in tasks:
            self._root = self._insert(self._root, deadline, cost)
        dropped = 0
        while self._root is not None and now > self._root.latest:
            self._drop(self._root, now)
            dropped += 1
        return dropped

    def serve(self, now: float, until: float) -> None:
        """Take tasks in order of deadline until one ends at `until` or later."""
        while self._root is not None and now < until and self._root.dearest >= 0:
            path, node = [self._root], self._root
            while True:
                if node.left is not None and node.left.dearest >= 0:
                    node = node.left
                elif node.heap:
                    break
                else:
                    assert node.right is not None
                    node = node.right
                path.append(node)
            now -= _pop_dearest(node)
            for passed in reversed(path):
                passed.sum_up()

    def kept(self) -> list[tuple[float, float]]:
        """Tasks in the tree, by deadline."""
        return list(_tasks(self._root))

    def _insert(self, node: _Node | None, deadline: float, cost: float) -> _Node:
        if node is None:
            node = _Node(deadline, self._random.random())
        if deadline == node.deadline:
            heapq.heappush(node.heap, -cost)
            node.own += cost
        elif deadline < node.deadline:
            node.left = self._insert(node.left, deadline, cost)
            if node.left.priority < node.priority:
                child, node.left = node.left, node.left.right
                node.sum_up()
                child.right, node = node, child
        else:
            node.right = self._insert(node.right, deadline, cost)
            if node.right.priority < node.priority:
                child, node.right = node.right, node.right.left
                node.sum_up()
                child.left, node = node, child
        node.sum_up()
        return node

    def _drop(self, root: _Node, now: float) -> None:
        """Drop the dearest task up to the first deadline that is missed."""
        limit = _first_missed(root, now)
        path, node, dearest = [], root, _dearest_up_to(root, limit)
        while True:
            path.append(node)
            if node.deadline > limit:
                assert node.left is not None
                node = node.left
            elif node.left is not None and node.left.dearest == dearest:
                node = node.left
            elif node.heap and -node.heap[0] == dearest:
                break
            else:
                assert node.right is not None
                node = node.right
        _pop_dearest(node)
        for passed in reversed(path):
            passed.sum_up()


def _pop_dearest(node: _Node) -> float:
    """Take the dearest task of one deadline out; returns its cost, negative."""
    cost = heapq.heappop(node.heap)
    node.own = node.own + cost if node.heap and node.heap[0] else 0.0
    return cost


def _first_missed(node: _Node, start: float) -> float:
    """The first deadline with tasks that end after it."""
    while True:
        if node.left is not None and start > node.left.latest:
            node = node.left
            continue
        start += (node.left.total if node.left else 0.0) + node.own
        if node.heap and start > node.deadline:
            return node.deadline
        assert node.right is not None
        node = node.right


def _dearest_up_to(node: _Node | None, limit: float) -> float:
    dearest = -1.0
    while node is not None:
        if node.deadline > limit:
            node = node.left
            continue
        dearest = max(dearest, node.left.dearest if node.left else -1.0, -node.heap[0] if node.heap else -1.0)
        node = node.right
    return dearest


def _tasks(node: _Node | None) -> Iterable[tuple[float, float]]:
    if node is not None:
        yield from _tasks(node.left)
        yield from ((node.deadline, -cost) for cost in node.heap)
        yield from _tasks(node.right)
