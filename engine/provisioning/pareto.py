"""Cost against latency: the mixes of node types that no other mix beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engine.document.deployment import Deployment
from engine.estimation.estimate import Progress
from engine.provisioning.changes import scaled_loads
from engine.provisioning.clock import ProgressClock
from engine.provisioning.combinations import MixCombinations, read_types
from engine.provisioning.nodes import lose as lose_nodes
from engine.provisioning.pool.bounds import fused_s
from engine.provisioning.pool.solver import PoolSize

__all__ = ["ParetoFront", "ParetoPoint", "front"]

_BETTER = 1e-6  # a mix must gain this share of the latency to be worth a point


@dataclass(frozen=True, eq=False)
class ParetoPoint:
    """A mix, what its new nodes cost, and the latency of the best placement found on it."""

    counts: dict[str, int]
    cost_per_hour: float
    size: PoolSize

    def to_dict(self) -> dict[str, Any]:
        return {"counts": self.counts, "cost_per_hour": self.cost_per_hour} | {
            name: value for name, value in self.size.to_dict().items() if name != "cost_per_hour"
        }


@dataclass(frozen=True, eq=False)
class ParetoFront:
    """Points by ascending cost and descending latency.

    `skipped` mixes cannot beat a cheaper one by the lower bound; `complete` is False if some were not looked at.
    """

    points: tuple[ParetoPoint, ...]
    tried: int
    skipped: int
    complete: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "points": [point.to_dict() for point in self.points],
            "tried": self.tried,
            "skipped": self.skipped,
            "complete": self.complete,
        }


def front(
    deployment: Deployment,
    types: Any,
    *,
    keep_present: bool = True,
    lose: int = 0,
    factor: float | Mapping[str, float] = 1.0,
    rounds: int = 0,
    most_tried: int = 200,
    seed: int = 0,
    mace_every: int = 1,
    closed: Sequence[str] = (),
    split: bool = True,
    budget_s: float | None = None,
    progress: Progress | None = None,
) -> ParetoFront:
    """The Pareto front of cost and worst-case latency (Mace_WC; with `lose` 1, that with any one node lost).

    Parameters
    ----------
    types : list of dict
        As in `cheapest_mix`.
    most_tried : int
        Mixes that are placed before the search stops.
    split, budget_s
        As in `smallest_pool`.

    Raises
    ------
    DocumentError
        If a type has no price.

    Notes
    -----
    Mixes are looked at by ascending cost; one whose lower bound is no better than the best latency so far is skipped.
    Latencies are of placements found, so the true front lies on or below this one.
    """
    base = scaled_loads(deployment, factor)
    if not keep_present:
        base = lose_nodes(base, {node.id for node in base.nodes})
    mixes = MixCombinations(
        base,
        read_types(types),
        mace_every,
        lose,
        rounds,
        seed,
        closed,
        clock=ProgressClock(progress, budget_s),
        split=split,
        enough=False,
    )
    points: list[ParetoPoint] = []
    tried = skipped = 0
    best = np.inf
    load = mixes.prover.board.load.sum(axis=0)
    for cost, counts in mixes.by_cost():
        if tried >= most_tried or mixes.prover.clock.is_over:
            return ParetoFront(tuple(points), tried, skipped, False)
        solver = mixes.solver(counts)
        budget = solver.board.budget
        if points and fused_s(load, budget, solver.board.deployment.subinterval_s) >= best:
            skipped += 1
            continue
        step = f"Placing mix {tried + 1} at {cost:g} per hour"
        mixes.prover.tell(tried / most_tried, step)
        size = mixes.prover.during(step, partial(solver.solve_jointly, len(solver.board.deployment.nodes)))
        tried += 1
        latency = size.joint[1]
        if latency < best * (1.0 - _BETTER):
            best = latency
            points.append(ParetoPoint(mixes.words(counts), cost, size))
        if best <= 0.0:
            break
    return ParetoFront(tuple(points), tried, skipped, True)
