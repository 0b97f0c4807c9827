"""Curve of pool sizes: many sizes at once, by Mace, fast enough to follow a slider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from engine.arrays import IntArray
from engine.document.deployment import Deployment, Node
from engine.estimation.estimate import Progress
from engine.provisioning.answers.pools import PoolSize
from engine.provisioning.changes import scale_loads
from engine.provisioning.nodes import PoolRange, pool_of
from engine.provisioning.pool.bounds import split_problem
from engine.provisioning.pool.judge import operator_weights
from engine.provisioning.pool.large import is_large, solver_for
from engine.provisioning.pool.problem import PoolProblem, pool_problem
from engine.provisioning.question import ProgressClock
from engine.solvers import solving

__all__ = ["PoolCurve"]

_REMEMBERED = 6  # placements kept for each size, from other positions of the slider


class PoolCurve:
    """Quick answers about one deployment; prepared once, then asked for every position of a slider.

    Parameters
    ----------
    deployment : Deployment
        What runs; operators may lack a place.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    closed : sequence of str
        Nodes that take nothing new.
    """

    def __init__(self, deployment: Deployment, mace_every: int = 1, *, closed: Sequence[str] = ()) -> None:
        self._coarse = deployment.coarsened(mace_every)
        self._closed, self._present = tuple(closed), len(deployment.nodes)
        self._weights = operator_weights(self._coarse)
        self._problems: dict[Any, tuple[PoolRange, PoolProblem]] = {}
        self._remembered: dict[Any, list[IntArray]] = {}

    def sweep(
        self,
        factor: float | Mapping[str, float] = 1.0,
        sizes: Iterable[int] = (),
        *,
        like: str | Node | None = None,
        lose_one: bool = True,
        rounds: int = 1,
        seed: int = 0,
        split: bool = True,
        progress: Progress | None = None,
    ) -> list[PoolSize]:
        """Every pool size at a load of `factor` times the present one.

        Parameters
        ----------
        factor : float or mapping
            Of all sources, or by source.
        sizes : iterable of int
            Numbers of nodes of the whole fleet; see `pools.pool_of` for which nodes those are.
        like : str or Node, optional
            What further nodes are like, and whose pool shrinks first.
        lose_one : bool
            Whether to lose every node in turn as well.
        rounds : int
            Rounds of the placement search for each size beyond the quick placement.
        split : bool
            Whether stateless operators that alone break an objective are split, as in `smallest_pool`.
        progress : callable, optional
            Told before every size.

        Returns
        -------
        list of PoolSize
            By ascending size. No figure over all queries is worse on a larger pool than on a smaller one of the list.

        Notes
        -----
        Placements found at earlier positions are tried again, so answers depend on what was asked before; they only
        get better by it.
        """
        solving()
        ordered = sorted(set(sizes))
        if not ordered:
            return []
        tell = progress or (lambda share, step: None)
        tell(0.0, "Laying out the fleet")
        key, problem = self._problem(ordered[-1], like)
        problem = problem.scaled(scale_loads(problem.deployment, factor))
        if split:
            key, problem, parts = self._split(key, problem)
        else:
            parts = {}
        clock = ProgressClock(progress)
        solver = solver_for(problem, lose_one=lose_one, rounds=rounds, seed=seed, clock=clock)
        entries: list[PoolSize] = []
        for done, size in enumerate(ordered):
            clock.tell(done / len(ordered), f"{size} nodes")
            known = self._remembered.setdefault((key, size), [])
            solve = partial(solver.solve, size, entries[-1] if entries else None, known, self._of_smaller(key, size))
            best = clock.during(f"{size} nodes", solve) if is_large(problem) else solve()
            placed = solver.as_placed(size) if size == self._present else None
            best = replace(best, splits=parts, as_placed=placed)
            entries.append(best)
            if best.stuck is None and not any(np.array_equal(best.assignment, other) for other in known):
                known.insert(0, best.assignment)
                del known[_REMEMBERED:]
        return entries

    def _split(self, key: Any, problem: PoolProblem) -> tuple[Any, PoolProblem, dict[str, int]]:
        """The problem with what alone is too large at this load in parts, and what its placements are kept under."""
        problem, parts = split_problem(problem, self._weights, self._closed, len(problem.budget))
        return (key, tuple(sorted(parts.items()))), problem, parts

    def _of_smaller(self, key: Any, size: int) -> list[IntArray]:
        """The placement that the nearest smaller size was given last, in whatever sweep that was."""
        sizes = [n for (other, n), held in self._remembered.items() if other == key and n < size and held]
        return self._remembered[key, max(sizes)][:1] if sizes else []

    def _problem(self, most: int, like: str | Node | None) -> tuple[Any, PoolProblem]:
        key = like if isinstance(like, str) or like is None else like.id
        held = self._problems.get(key)
        if held is None or held[0].most < most:
            pool = pool_of(self._coarse, most, like)
            held = pool, pool_problem(pool.deployment, self._weights, self._closed)
            self._problems[key] = held
        return key, held[1]
