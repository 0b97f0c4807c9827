"""Cost against latency: the mixes of node types that no other mix beats in both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from engine.document.deployment import Deployment
from engine.estimation.estimate import Progress
from engine.provisioning.combinations import MixCombinations, read_types
from engine.provisioning.pool.bounds import fused_s
from engine.provisioning.pool.solver import PoolSize
from engine.provisioning.question import PoolQuestion

__all__ = ["ParetoFront", "ParetoPoint", "pareto_front"]

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


def pareto_front(
    deployment: Deployment,
    types: Any,
    question: PoolQuestion | None = None,
    *,
    most_tried: int = 200,
    progress: Progress | None = None,
) -> ParetoFront:
    """The Pareto front of cost and worst-case latency (Mace_WC; with `lose` 1, that with any one node lost).

    Parameters
    ----------
    deployment : Deployment
        The running deployment.
    types : list of dict
        As in `cheapest_mix`.
    question : PoolQuestion, optional
        Load, losses and effort; a front knows no headroom and leaves no objective out.
    most_tried : int
        Mixes that are placed before the search stops.
    progress : callable, optional
        Listener of progress.

    Raises
    ------
    DocumentError
        If a type has no price.

    Notes
    -----
    Mixes are looked at by ascending cost; one whose lower bound is no better than the best latency so far is skipped.
    Latencies are of placements found, so the true front lies on or below this one.
    """
    question = question or PoolQuestion()
    question = replace(question, rounds=question.rounds or 0, headroom_s=0.0, headroom_share=0.0, leave_out=False)
    mixes = MixCombinations(
        question.base(deployment), read_types(types), question, question.clock(progress), enough=False
    )
    points: list[ParetoPoint] = []
    tried = skipped = 0
    best = np.inf
    load = mixes.prover.problem.load.sum(axis=0)
    for cost, counts in mixes.by_cost():
        if tried >= most_tried or mixes.prover.clock.is_over:
            return ParetoFront(tuple(points), tried, skipped, False)
        solver = mixes.solver(counts)
        budget = solver.problem.budget
        if points and fused_s(load, budget, solver.problem.deployment.subinterval_s) >= best:
            skipped += 1
            continue
        step = f"Placing mix {tried + 1} at {cost:g} per hour"
        mixes.prover.tell(tried / most_tried, step)
        size = mixes.prover.during(step, partial(solver.solve_jointly, len(solver.problem.deployment.nodes)))
        tried += 1
        latency = size.joint[1]
        if latency < best * (1.0 - _BETTER):
            best = latency
            points.append(ParetoPoint(mixes.words(counts), cost, size))
        if best <= 0.0:
            break
    return ParetoFront(tuple(points), tried, skipped, True)
