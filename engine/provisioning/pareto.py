"""Cost against latency: the mixes of node types that no other mix beats in both."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from engine.document.cycles import common_unit
from engine.document.deployment import Deployment
from engine.estimation.estimate import Progress
from engine.provisioning.answers.pools import ParetoFront, ParetoPoint, front_message
from engine.provisioning.combinations import MixCombinations, read_types
from engine.provisioning.pool.bounds import fused_s
from engine.provisioning.question import PoolQuestion

__all__ = ["pareto_front"]

_BETTER = 1e-6  # a mix must gain this share of the latency to be worth a point
_WALKED = 6  # points whose realised latencies are looked at


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
            return _front(mixes, points, tried, skipped, complete=False)
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
            points.append(ParetoPoint.of(mixes.words(counts), cost, size, solver))
        if best <= 0.0:
            break
    return _front(mixes, points, tried, skipped, complete=True)


def _front(
    mixes: MixCombinations, points: list[ParetoPoint], tried: int, skipped: int, *, complete: bool
) -> ParetoFront:
    walked = _walked(mixes, points)
    return ParetoFront(walked, front_message(walked), tried, skipped, complete)


def _walked(mixes: MixCombinations, points: list[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """The points with the realised figures of the cheapest that might keep every objective."""
    prover, walked = mixes.prover, 0
    if not prover.fine.objectives:
        return tuple(points)
    for k, point in enumerate(points):
        if point.state != "open" or point.size is None or point.solver is None:
            continue
        if walked == _WALKED or prover.clock.is_over:
            break
        walked += 1
        found = prover.confirm(point.size, point.solver, in_full=True)
        points[k] = replace(point, found=found, figures=prover.figures_of(found))
        if found.miss is None:
            break
    return tuple(points)
