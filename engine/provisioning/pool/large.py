"""Pools of large deployments: packed placements, warm starts, and a spare node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.placement.local_search.climb import KICKS, advance, keep
from engine.placement.local_search.start import best_placements, search_arrays, search_state
from engine.provisioning.answers.pools import NodeLoss, PoolSize
from engine.provisioning.pool.judge import Judge
from engine.provisioning.pool.kernels import bytes_on_nodes, loads_on_cores, pack, peaks
from engine.provisioning.pool.problem import PoolProblem
from engine.provisioning.pool.solver import Solver, losses
from engine.provisioning.question import ProgressClock

__all__ = ["LargeSolver", "is_large", "packings", "solver_for"]

# Whether classes of loose bounds go first, the ratio of bounds within a class, and whether the mean and deviation of a
# load decide within it instead of the peak.
_PACKINGS = ((True, 2.0, False), (False, 1.6, False), (True, 3.0, True))

_LARGE = 200_000  # items times cores, from which on trying every loss for every size takes too long
_MAX_PACKINGS = 3  # packings for each size of a search for the smallest pool
_HOPELESS = 0.02  # share of the items that a packing leaves out, from which on no other one is tried
_FAR = 1.3  # times a bound, from which on a climb is not tried
_CHUNK = 100_000_000  # steps of a scan between two looks at the clock: about half a second


def packings(
    problem: PoolProblem, size: int, tightest_s: float, most: int = len(_PACKINGS)
) -> Iterator[tuple[IntArray, int]]:
    """Placements on the first `size` nodes and how many items each leaves out (places of -1), by up to `most` orders.

    Parameters
    ----------
    tightest_s : float
        The tightest bound; that of an item is this over its weight.
    """
    cores = problem.cores_of(size)
    for order in _orders(problem)[:most]:
        placed = np.full(len(problem.load), -1)
        left = pack(
            order,
            problem.load,
            problem.weight,
            np.zeros((cores, problem.load.shape[1])),
            np.zeros(cores),
            problem.budget[:cores],
            problem.seconds[:cores],
            problem.node[:cores],
            problem.allowed_on(cores),
            problem.apart,
            tightest_s * (1.0 - 1e-9),
            placed,
            problem.need,
            problem.rooms,
        )
        yield placed, int(left)


def _orders(problem: PoolProblem) -> list[IntArray]:
    peak, spread = problem.load.max(axis=1, initial=0.0), problem.load.mean(axis=1) + problem.load.std(axis=1)
    free = problem.allowed.mean(axis=1) if problem.allowed.shape[1] else np.ones(len(peak))
    looseness: FloatArray = np.log(problem.weight.max(initial=1e-300) / np.maximum(problem.weight, 1e-300))
    orders = []
    for loose_first, ratio, by_spread in _PACKINGS:
        group = np.floor(looseness / np.log(ratio) + 1e-9)
        size = spread if by_spread else peak
        orders.append(np.lexsort((-size, -group if loose_first else group, free > 0.5)))
    return orders


def is_large(problem: PoolProblem) -> bool:
    """Whether a problem is too large to be searched from nothing for every size."""
    return len(problem.load) * len(problem.budget) > _LARGE


def solver_for(
    problem: PoolProblem,
    *,
    lose_one: bool,
    rounds: int = 0,
    seed: int = 0,
    judge: Judge | None = None,
    clock: ProgressClock | None = None,
    enough: bool = False,
) -> Solver:
    """The solver that suits a problem; with `enough` a large one goes no further than keeping the objectives."""
    if is_large(problem):
        return LargeSolver(
            problem, lose_one=lose_one, rounds=rounds, seed=seed, judge=judge, clock=clock, enough=enough
        )
    return Solver(problem, lose_one=lose_one, rounds=rounds, seed=seed, judge=judge)


class LargeSolver(Solver):
    """Solver for large deployments: starts from placements of neighbouring sizes or the running one."""

    def __init__(
        self,
        problem: PoolProblem,
        *,
        lose_one: bool,
        rounds: int = 0,
        seed: int = 0,
        judge: Judge | None = None,
        clock: ProgressClock | None = None,
        enough: bool = False,
    ) -> None:
        super().__init__(problem, lose_one=lose_one, rounds=max(1, rounds), seed=seed, judge=judge)
        self._clock = clock or ProgressClock()
        self._tightest_s = float(self.judge.bounds.min(initial=np.inf))
        self._enough = self._tightest_s * (1.0 - 1e-9) if enough and np.isfinite(self._tightest_s) else 0.0

    def solve(
        self,
        size: int,
        smaller: PoolSize | None = None,
        known: Sequence[IntArray] = (),
        others: Sequence[IntArray] = (),
    ) -> PoolSize:
        starts = [*known, *others] + ([] if smaller is None else [smaller.assignment])
        best = self._best(self.problem, size, starts)
        if not self.lose_one or best.stuck is not None:
            return best
        held = [] if smaller is None or smaller.lost is None else [smaller.lost]
        spare = self._spare(size)
        if spare is None:
            return replace(best, lost=min([self._lost(best), *held], key=lambda lost: lost.rank))
        apart = self._best(
            self._without(spare), size, [lost.assignment for lost in held if lost.assignment is not None]
        )
        options = [self._survived(self._judged(size, apart.assignment), spare), *held]
        return replace(best, lost=min(options, key=lambda lost: lost.rank))

    def solve_jointly(self, size: int, smaller: PoolSize | None = None, near: Sequence[PoolSize] = ()) -> PoolSize:
        starts = [entry.assignment for entry in (*near, *([] if smaller is None else [smaller])) if entry.stuck is None]
        spare = self._spare(size) if self.lose_one else None
        if spare is None:
            return self._with_losses(self._best(self.problem, size, starts))
        best = self._best(self._without(spare), size, starts)
        if best.stuck is not None:
            return self._with_losses(self._best(self.problem, size, starts))
        best = self._judged(size, best.assignment)
        return replace(best, lost=self._survived(best, spare))

    def _best(self, problem: PoolProblem, size: int, starts: Sequence[IntArray]) -> PoolSize:
        """The best of some starts (what runs, if there are none), of packings, and what a climb makes of it."""
        solver = self if problem is self.problem else self._on(problem)
        tried = [solver._judged(size, start) for start in (*starts, *([] if starts else [problem.start]))]
        best = min(tried, key=lambda entry: entry.rank)
        if best.over_bound > 1.0:
            best = min([best, *self._packed(solver, size)], key=lambda entry: entry.rank)
        if best.stuck is not None:
            return min([best, *solver._searched(size, best)], key=lambda entry: entry.rank)
        if best.worst_s <= 0.0 or (self._enough and best.over_bound <= 1.0):
            return best
        if self._enough and best.over_bound > _FAR:
            return best
        climbed = solver._judged(size, self._climbed_on(problem, size, best.assignment))
        best = min(best, climbed, key=lambda entry: entry.rank)
        return min([best, *solver._caught_up(size, best)], key=lambda entry: entry.rank)

    def _packed(self, solver: Solver, size: int) -> list[PoolSize]:
        """The packing that keeps every objective, or those that leave least out, completed."""
        packed: list[tuple[int, IntArray]] = []
        if not np.isfinite(self._tightest_s):
            return []
        for placed, left in packings(solver.problem, size, self._tightest_s, _MAX_PACKINGS if self._enough else 1):
            if left == 0:
                return [solver._judged(size, placed)]
            packed.append((left, placed))
            if self._clock.is_over or left > _HOPELESS * len(placed):
                break
        packed.sort(key=lambda entry: entry[0])
        return [solver._judged(size, placed) for _, placed in packed[:1]]

    def _on(self, problem: PoolProblem) -> Solver:
        return Solver(problem, lose_one=False, rounds=self.rounds, seed=self.seed, judge=self.judge)

    def _climbed_on(self, problem: PoolProblem, size: int, start: IntArray) -> IntArray:
        instance = problem.placement_problem(size)
        fixed = search_arrays(instance)
        state = search_state(instance, fixed, start)
        best = best_placements(state, self.seed, 1, climbing=True)
        keep(fixed, state, best)
        while not advance(fixed, state, best, KICKS, self.rounds, self._enough, _CHUNK):
            if self._clock.is_over:
                break
        return np.array(best.core)

    def _spare(self, size: int) -> int | None:
        """A node that can take in all of any other one, core by core; None if there is none, or if it must be used."""
        problem = self.problem
        cores = problem.cores_of(size)
        node, least = problem.node[:cores], problem.budget[:cores].min(axis=1)
        count = np.bincount(node, minlength=size)
        capacity = np.bincount(node, least, minlength=size)
        spare = len(capacity) - 1 - int(capacity[::-1].argmax())
        largest = float(problem.budget[:cores][node != spare].max(initial=0.0))
        elsewhere = problem.allowed[:, :cores][:, node != spare].any(axis=1)
        fits = bool(least[node == spare].min(initial=np.inf) >= largest and count[spare] >= count.max(initial=0))
        return spare if size > 1 and fits and elsewhere.all() else None

    def _without(self, spare: int) -> PoolProblem:
        return replace(self.problem, allowed=self.problem.allowed & (self.problem.node != spare))

    def _survived(self, entry: PoolSize, spare: int) -> NodeLoss:
        """The worst of losing a node where `spare` takes in what was there: no core is later than with all nodes up."""
        if entry.stuck is not None or not self._takes_in(entry.assignment, spare):
            return self._lost(entry)
        bottleneck = int(self.judge.core_s(entry.assignment, self.problem.cores_of(entry.nodes)).argmax())
        nodes = self.problem.deployment.nodes
        other = int(self.problem.node[bottleneck]) or (1 if entry.nodes > 1 else 0)
        # The figures are those of the loss of any node other than that of the bottleneck.
        name = next(nodes[k].id for k in range(entry.nodes) if k not in (other, spare)) if entry.nodes > 2 else None
        return NodeLoss(
            entry.worst_s,
            entry.over_bound,
            entry.worst_s,
            name,
            entry.late,
            entry.endless,
            assignment=entry.assignment,
        )

    def _takes_in(self, assignment: IntArray, spare: int) -> bool:
        """Whether every item is allowed on the core of the spare node that stands for its own, and fits its memory."""
        problem = self.problem
        used = bytes_on_nodes(problem.need, assignment, problem.node, len(problem.room))
        if used.max(initial=0.0) > problem.rooms[spare]:
            return False
        return bool(self.problem.allowed[np.arange(len(assignment)), self._stand_in(assignment, spare)].all())

    def _stand_in(self, assignment: IntArray, spare: int) -> IntArray:
        node = self.problem.node
        first = np.searchsorted(node, np.arange(int(node.max()) + 1))
        return np.asarray(first[spare] + assignment - first[node[assignment]])

    def losses(self, size: int, assignment: IntArray, nodes: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
        problem = self.problem
        spare = self._spare(size)
        if spare is None or (problem.node[assignment] == spare).any() or not self._takes_in(assignment, spare):
            return losses(problem, self.judge, size, assignment, nodes)
        cores = problem.cores_of(size)
        core_s = self.judge.mace_s(assignment, cores)
        own = np.where(
            problem.node[assignment][None, :] == nodes[:, None], self._stand_in(assignment, spare), assignment
        )
        after_s = np.repeat(core_s[None, :], len(nodes), axis=0)
        total = loads_on_cores(problem.load, assignment, cores)
        at = np.flatnonzero(problem.node[:cores] == spare)
        for k, lost in enumerate(nodes):
            here = np.flatnonzero(problem.node[:cores] == lost)
            to = at[: len(here)]
            after_s[k, here] = 0.0
            if problem.budget.shape[1] == 1:
                after_s[k, to] = peaks(total[here], problem.budget[to], problem.seconds[to])
                after_s[k] += self.judge.lasting_s(own[k], after_s[k])
            else:
                after_s[k] = self.judge.core_s(own[k], cores)
        return own, after_s, np.full(len(nodes), -1)
