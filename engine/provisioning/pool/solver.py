"""Pools of one load: the best placement found for each size, and what the loss of any one node would do to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.errors import InfeasibleError
from engine.latency_state import ENDLESS_S
from engine.placement.local_search.climb import KICKS, advance, keep
from engine.placement.local_search.search import search
from engine.placement.local_search.start import best_placements, search_arrays, search_state
from engine.provisioning.answers.pools import NodeLoss, PlacedFigures, PoolSize, StuckOperator
from engine.provisioning.nodes import cost_per_hour
from engine.provisioning.pool.judge import Judge
from engine.provisioning.pool.kernels import loads_on_cores, lose_each
from engine.provisioning.pool.problem import PoolProblem

__all__ = ["Solver", "losses"]

_WORK = 2**40  # steps of a scan a walk may take: it ends by its rounds


class Solver:
    """Placements on pools of one load. `rounds` are those of the placement search beyond a quick placement."""

    def __init__(
        self, problem: PoolProblem, *, lose_one: bool, rounds: int = 0, seed: int = 0, judge: Judge | None = None
    ) -> None:
        self.problem, self.lose_one, self.rounds, self.seed = problem, lose_one, rounds, seed
        self.judge = judge or Judge(problem)

    def solve(
        self,
        size: int,
        smaller: PoolSize | None = None,
        known: Sequence[IntArray] = (),
        others: Sequence[IntArray] = (),
    ) -> PoolSize:
        """The best placement found for all nodes up, and the best loss of one, which may be of another placement.

        Neither is worse than on the smaller pool: its placements are possible here too.
        """
        tried = self._tried(size, smaller, known) + [self._judged(size, start) for start in others]
        best = self._with_losses(min(tried, key=lambda entry: entry.rank))
        if best.lost is None or smaller is None or smaller.lost is None:
            return best
        options = [best.lost, smaller.lost]
        if smaller.rank < best.lost.rank:
            # The smaller pool's best placement with the further node as a spare.
            spared = self._with_losses(self._judged(size, smaller.assignment)).lost
            options += [spared] if spared else []
        return replace(best, lost=min(options, key=lambda lost: lost.rank))

    def as_placed(self, size: int) -> PlacedFigures | None:
        """The pool as it is placed now; None where something has no place on it, or more state than memory."""
        start = self.problem.start
        if (start < 0).any() or (start >= self.problem.cores_of(size)).any() or not self.problem.fits(start):
            return None
        now = self._judged(size, start)
        return PlacedFigures(now.worst_s, now.over_bound, now.queries, now.late, now.endless)

    def solve_jointly(self, size: int, smaller: PoolSize | None = None, near: Sequence[PoolSize] = ()) -> PoolSize:
        """The one placement that is best with all nodes up and with any one lost; `near` are pools of other sizes."""
        tried = self._tried(size, smaller, ())
        if self.lose_one and size > 1:
            tried.append(self._with_spare(size))
        return min(map(self._with_losses, tried), key=lambda entry: entry.joint)

    def _with_spare(self, size: int) -> PoolSize:
        """The best placement that leaves the largest node empty, so that it can take in whatever is lost."""
        problem = self.problem
        cores = problem.cores_of(size)
        capacity = np.bincount(problem.node[:cores], problem.budget[:cores].mean(axis=1))
        spare = len(capacity) - 1 - int(capacity[::-1].argmax())
        others = Solver(
            replace(problem, allowed=problem.allowed & (problem.node != spare)),
            lose_one=False,
            rounds=self.rounds,
            seed=self.seed,
            judge=self.judge,
        )
        best = min(others._tried(size, None, ()), key=lambda entry: entry.rank)
        return self._judged(size, best.assignment)

    def _tried(self, size: int, smaller: PoolSize | None, known: Sequence[IntArray]) -> list[PoolSize]:
        """Placements tried: a smaller pool's, known ones, the running one, a fresh one, and the best improved."""
        starts = [*known] or [np.full(len(self.problem.start), -1)]
        starts.append(self.problem.start)
        if smaller is not None and smaller.stuck is None:
            starts.insert(0, smaller.assignment)
        tried = [self._judged(size, start) for start in starts]
        best = min(tried, key=lambda entry: entry.rank)
        if best.stuck is not None or (self.rounds and best.worst_s > 0.0):
            tried += self._searched(size, best)
        return tried + self._caught_up(size, min(tried, key=lambda entry: entry.rank))

    def _caught_up(self, size: int, best: PoolSize) -> list[PoolSize]:
        """Where the best so far never catches up, what a search finds that counts the load after the horizon too."""
        if best.stuck is not None or best.worst_s < ENDLESS_S:
            return []
        instance = self.problem.placement_problem(size)
        if not instance.may_catch_up():
            return []
        try:
            result = search(instance.held_on(), rounds=max(1, self.rounds), seed=self.seed, finalists=1)
        except InfeasibleError:
            return []
        return [self._judged(size, result.assignment)]

    def _searched(self, size: int, best: PoolSize) -> list[PoolSize]:
        """Placements by local search from the best so far; it may fit items that one after the other do not fit."""
        if best.stuck is None:
            return [self._judged(size, self._climbed(size, best.assignment))]
        try:
            result = search(
                self.problem.placement_problem(size), rounds=max(1, self.rounds), seed=self.seed, finalists=1
            )
        except InfeasibleError:
            return []
        return [self._judged(size, result.assignment)]

    def _climbed(self, size: int, start: IntArray) -> IntArray:
        """Local search from a placement; `search` itself would first look for a start and a bound."""
        instance = self.problem.placement_problem(size)
        fixed = search_arrays(instance)
        state = search_state(instance, fixed, start)
        best = best_placements(state, self.seed, 1, climbing=True)
        keep(fixed, state, best)
        advance(fixed, state, best, KICKS, self.rounds, 0.0, _WORK)
        return np.array(best.core)

    def judged(self, entry: PoolSize) -> PoolSize:
        """The figures of another solver's placement, its losses included."""
        return self._with_losses(self._judged(entry.nodes, entry.assignment))

    def _judged(self, size: int, start: IntArray) -> PoolSize:
        problem, judge = self.problem, self.judge
        cores = problem.cores_of(size)
        assignment, stuck = problem.filled(size, start)
        cost = cost_per_hour(problem.deployment.nodes[:size])
        if stuck >= 0:
            name = problem.deployment.operators[problem.operator[stuck]].id
            return PoolSize(size, cost, np.inf, np.inf, {}, (), (), None, name, assignment=assignment)
        core_s = judge.core_s(assignment, cores)
        edge_s = judge.edge_s(assignment)
        worst = judge.worst_by_query(assignment, core_s, edge_s)
        values = judge.by_query(assignment, worst, cores)
        worst_s = max(float(core_s.max(initial=0.0)), float(edge_s.max(initial=0.0)))
        over = float((values / judge.bounds).max(initial=0.0))
        late = tuple(
            query for query, value, bound in zip(judge.queries, values, judge.bounds, strict=True) if value > bound
        )
        queries = dict(zip(judge.queries, map(float, values), strict=True))
        endless = judge.endless(values)
        return PoolSize(size, cost, worst_s, over, queries, late, endless, None, None, assignment=assignment)

    def _with_losses(self, entry: PoolSize) -> PoolSize:
        if not self.lose_one or entry.stuck is not None or entry.lost is not None:
            return entry
        return replace(entry, lost=self._lost(entry))

    def _lost(self, entry: PoolSize) -> NodeLoss:
        problem, judge, size, assignment = self.problem, self.judge, entry.nodes, entry.assignment
        nodes = np.unique(problem.node[assignment])
        if not len(nodes):
            return NodeLoss(0.0, 0.0, 0.0, None, ())
        places, after_s, stuck = self.losses(size, assignment, nodes)
        names = problem.deployment.nodes
        if (stuck >= 0).any():
            k = int(np.flatnonzero(stuck >= 0)[0])
            operator = problem.deployment.operators[problem.operator[stuck[k]]].id
            lost = names[nodes[k]].id
            return NodeLoss(np.inf, np.inf, entry.worst_s, lost, (), (), StuckOperator(lost, operator))
        edges = [judge.edge_s(place) for place in places]
        worst = np.array(
            [max(float(s.max(initial=0.0)), float(e.max(initial=0.0))) for s, e in zip(after_s, edges, strict=True)]
        )
        values = np.array([judge.worst_by_query(p, s, e) for p, s, e in zip(places, after_s, edges, strict=True)])
        values = self._exact(places, values, problem.cores_of(size))
        over = (values / judge.bounds).max(axis=1, initial=0.0)
        at = int(np.lexsort((-worst, -over))[0])
        late = tuple(judge.queries[i] for i in np.flatnonzero((values > judge.bounds).any(axis=0)))
        endless = judge.endless(values.max(axis=0))
        return NodeLoss(float(worst.max()), float(over.max()), entry.worst_s, names[nodes[at]].id, late, endless)

    def losses(self, size: int, assignment: IntArray, nodes: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
        """Places, seconds of every core and the item that fits nowhere, for each of `nodes` lost."""
        return losses(self.problem, self.judge, size, assignment, nodes)

    def _exact(self, places: IntArray, values: FloatArray, cores: int) -> FloatArray:
        """Statistics other than the worst case, worked out where the worst case is over the bound."""
        if all(name == "worst" for name in self.judge.statistics):
            return values
        return np.array([self.judge.by_query(p, v, cores) for p, v in zip(places, values, strict=True)])


def losses(
    problem: PoolProblem, judge: Judge, size: int, assignment: IntArray, nodes: IntArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Places, seconds of every core and the item that fits nowhere, for each of `nodes` lost."""
    places, after_s, stuck = _lose_each(problem, judge, size, assignment, nodes, problem.order)
    full = np.flatnonzero(stuck >= 0)
    if len(full) and problem.is_limited:
        places[full], after_s[full], stuck[full] = _lose_each(
            problem, judge, size, assignment, nodes[full], problem.by_need
        )
    return places, after_s, stuck


def _lose_each(
    problem: PoolProblem, judge: Judge, size: int, assignment: IntArray, nodes: IntArray, order: IntArray
) -> tuple[IntArray, FloatArray, IntArray]:
    cores = problem.cores_of(size)
    total = loads_on_cores(problem.load, assignment, cores)
    core_s = judge.mace_s(assignment, cores)
    places, after_s, stuck = lose_each(
        nodes,
        order,
        problem.load,
        problem.weight,
        total,
        problem.budget[:cores],
        problem.seconds[:cores],
        problem.node[:cores],
        problem.allowed_on(cores),
        problem.apart,
        assignment,
        core_s,
        problem.need,
        problem.rooms,
    )
    for k in np.flatnonzero(stuck < 0):
        if problem.budget.shape[1] > 1:
            after_s[k] = judge.mace_s(places[k], cores)
        after_s[k] += judge.lasting_s(places[k], after_s[k])
    return places, after_s, stuck
