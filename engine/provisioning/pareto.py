"""Cost against latency: the mixes of node types that no other mix beats in both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from engine.document.cycles import common_unit
from engine.document.deployment import Deployment
from engine.estimation.estimate import Progress
from engine.provisioning.combinations import MixCombinations, read_types
from engine.provisioning.confirmation import Confirmation
from engine.provisioning.objectives import ObjectiveFigures
from engine.provisioning.pool.bounds import fused_s
from engine.provisioning.pool.solver import PoolSize, Solver
from engine.provisioning.question import PoolQuestion
from engine.words import mix_text

__all__ = ["ParetoFront", "ParetoPoint", "pareto_front"]

_BETTER = 1e-6  # a mix must gain this share of the latency to be worth a point
_WALKED = 6  # points whose realised latencies are looked at


@dataclass(frozen=True, eq=False)
class ParetoPoint:
    """A mix, what its new nodes cost, and the latency of the best placement found on it.

    `found` are its realised figures, None where Mace alone was asked.
    """

    counts: dict[str, int]
    cost_per_hour: float
    size: PoolSize
    solver: Solver
    found: Confirmation | None = None
    figures: ObjectiveFigures = field(default_factory=ObjectiveFigures)

    @property
    def state(self) -> str:
        """holds, unknown, at_risk or breached by realised figures; else breached or open by Mace."""
        if self.found is None:
            return "breached" if self.size.joint[0] > 1.0 else "open"
        if self.found.miss is not None:
            return self.found.miss.state
        return "at_risk" if self.figures.at_risk else "unknown" if self.figures.unknown else "holds"

    def to_dict(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "cost_per_hour": self.cost_per_hour,
            **{name: value for name, value in self.size.to_dict().items() if name != "cost_per_hour"},
            "state": self.state,
            "miss": None if self.found is None or self.found.miss is None else self.found.miss.to_dict(),
            **self.figures.to_dict(),
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

    @property
    def holding(self) -> ParetoPoint | None:
        """The cheapest point that was walked and found to hold, but for objectives that no mix takes out of risk."""
        return next((point for point in self.points if point.found is not None and point.found.miss is None), None)

    @property
    def message(self) -> str:
        point = self.holding
        if point is None:
            return "No point was confirmed to keep every objective." if any(p.found for p in self.points) else ""
        said = f"The cheapest point that keeps every objective{point.figures.reservation} is {mix_text(point.counts)}"
        return " ".join([f"{said} at {point.cost_per_hour:g} per hour.", *point.figures.sentences])

    def to_dict(self) -> dict[str, Any]:
        return {
            "points": [point.to_dict() for point in self.points],
            "message": self.message,
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
    Latencies are of placements found, so the true front lies on or below this one. Points that keep every objective by
    Mace are walked, the cheapest first, until one holds; after six of them the others stay open. What waits now is left
    out, as in `smallest_pool`.
    """
    question, deployment = question or PoolQuestion(), deployment.without_backlogs()
    question = replace(question, rounds=question.rounds or 0, headroom_s=0.0, headroom_share=0.0, leave_out=False)
    mixes = MixCombinations(
        question.base(deployment),
        read_types(types, unit=common_unit(deployment.nodes)),
        question,
        question.clock(progress),
        enough=False,
    )
    points: list[ParetoPoint] = []
    tried = skipped = 0
    best = np.inf
    load = mixes.prover.problem.load.sum(axis=0)
    for cost, counts in mixes.by_cost():
        if tried >= most_tried or mixes.prover.clock.is_over:
            return ParetoFront(_walked(mixes, points), tried, skipped, False)
        solver = mixes.solver(counts)
        budget = solver.problem.budget
        if points and fused_s(load, budget, solver.problem.deployment.subinterval_s) >= best:
            skipped += 1
            continue
        step = f"Placing mix {tried + 1}"
        mixes.prover.tell(tried / most_tried, step)
        size = mixes.prover.during(step, partial(solver.solve_jointly, len(solver.problem.deployment.nodes)))
        tried += 1
        latency = size.joint[1]
        if latency < best * (1.0 - _BETTER):
            best = latency
            points.append(ParetoPoint(mixes.words(counts), cost, size, solver))
        if best <= 0.0:
            break
    return ParetoFront(_walked(mixes, points), tried, skipped, True)


def _walked(mixes: MixCombinations, points: list[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """The points with the realised figures of the cheapest that might keep every objective."""
    prover, walked = mixes.prover, 0
    if not prover.fine.objectives:
        return tuple(points)
    for k, point in enumerate(points):
        if point.state != "open":
            continue
        if walked == _WALKED or prover.clock.is_over:
            break
        walked += 1
        found = prover.confirm(point.size, point.solver, in_full=True)
        points[k] = replace(point, found=found, figures=prover.figures_of(found))
        if found.miss is None:
            break
    return tuple(points)
