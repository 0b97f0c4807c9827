"""Small placement problems with everything in them, and the answer by trying all placements."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from engine.arrays import IntArray
from engine.placement.problem import PlacementProblem, faults_of, value_of

__all__ = ["best_by_brute_force", "plain", "random_problem"]


def plain(load: Any, budget: Any, **more: Any) -> PlacementProblem:
    """One core per node, everything allowed unless told otherwise."""
    load = np.array(load, dtype=float)
    rows = np.array(budget, dtype=float)
    rows = rows[:, None] if rows.ndim == 1 else rows
    arguments: dict[str, Any] = {
        "core_node": np.arange(len(rows)),
        "allowed": np.ones((len(load), len(rows)), dtype=bool),
    }
    return PlacementProblem(load=load, budget=rows, **(arguments | more))


def random_problem(seed: int, **fixed: Any) -> PlacementProblem:
    """Up to 6 items on up to 4 cores; each kind of constraint is there by chance."""
    rng = np.random.default_rng(seed)
    items, cores, d = int(rng.integers(1, 7)), int(rng.integers(1, 5)), int(rng.integers(3, 12))
    some = lambda chance=0.4: bool(rng.random() < chance)  # noqa: E731
    nodes = np.sort(rng.integers(0, cores, cores)) if some() else np.arange(cores)
    groups = tuple(
        tuple(rng.choice(items, min(items, 2 + int(rng.integers(2))), replace=False).tolist())
        for _ in range(rng.integers(1, 3))
    )
    start = rng.integers(-1 if some() else 0, cores, items) if some(0.6) else None
    series = some()
    arguments: dict[str, Any] = {
        "load": rng.gamma(0.7, 1.0, (items, d)) * (rng.random((items, 1)) * 2.0),
        "budget": rng.uniform(0.3, 1.5, (cores, d if series else 1)),
        "core_node": nodes,
        "allowed": rng.random((items, cores)) < 0.7 if some() else np.ones((items, cores), dtype=bool),
        "apart": groups if some() else (),
        "start": start,
        "max_moves": int(rng.integers(0, items + 1)) if some(0.3) else None,
        "weight": rng.choice([0.0, 0.5, 1.0, 3.0], items) if some() else None,
        "base": rng.gamma(0.5, 0.5, (cores, d)) if some() else None,
        "width_s": float(rng.choice([1.0, 0.25])),
    }
    if some(0.5):
        # Bytes in whole gigabytes, so that nodes can be filled to the last one; some items and nodes state none.
        arguments["need"] = rng.integers(0, 5, items) * 1e9
        room = rng.integers(1, 9, int(nodes.max()) + 1) * 1e9
        arguments["room"] = np.where(rng.random(len(room)) < 0.25, np.inf, room)
    return PlacementProblem(**(arguments | fixed))


def best_by_brute_force(problem: PlacementProblem) -> tuple[float, IntArray] | None:
    """The least value of all placements that respect the constraints; None if there is none."""
    best = None
    for cores in product(range(problem.cores), repeat=problem.items):
        assignment = np.array(cores, dtype=np.int64)
        if not faults_of(problem, assignment):
            value = value_of(problem, assignment)
            if best is None or value < best[0]:
                best = value, assignment
    return best
