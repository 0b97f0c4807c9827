"""Search for the placement of least worst-case Mace, under a budget of time or rounds.

Reference: paper, section IX-B, whose search this one goes beyond (docs/models/placement.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np

from engine.arrays import IntArray
from engine.errors import OptionError
from engine.placement.local_search.bounds import Bound, lower_bound, refuse_impossible
from engine.placement.local_search.climb import KICKS, BestPlacements, advance, keep
from engine.placement.local_search.start import best_placements, first_placements, search_arrays, search_state
from engine.placement.local_search.state import SearchArrays, SearchState
from engine.placement.problem import PlacementProblem, faults_of, value_of

__all__ = ["ALGORITHMS", "Bound", "LocalAlgorithm", "LocalSearchResult", "OwnSearch", "compile_kernels", "search"]

Progress = Callable[[float, float, float, int], None]

# Rounds where neither these nor a time are given.
_ROUNDS = 100
# What a thread does between two looks at the clock, in steps of a scan: some 10 ms, and less at first.
_WORK, _FIRST_WORK = 3_000_000, 300_000
_MANY = 2**62


class OwnSearch(Protocol):
    """Search of an algorithm that the compiled climb does not know."""

    def advance(self, fixed: SearchArrays, state: SearchState, best: BestPlacements, work: int) -> bool:
        """Some steps; True once none is left."""


@dataclass(frozen=True)
class LocalAlgorithm:
    """Way of searching: what a round is, and what it begins with."""

    mode: int  #: of the compiled climb
    begins_placed: bool  #: the first placement counts, and is climbed from
    rounds: int | None = None  #: as many as it has, whatever is asked for
    own: Callable[[PlacementProblem, SearchArrays], OwnSearch] | None = None


#: By name.
ALGORITHMS = {
    "search": LocalAlgorithm(KICKS, begins_placed=True),
    "greedy": LocalAlgorithm(KICKS, begins_placed=True, rounds=0),
}


@dataclass(frozen=True, eq=False)
class LocalSearchResult:
    """Result of a local search: placements, bound, rounds, trace.

    Attributes
    ----------
    assignment : array, shape (items,)
        Core of each item.
    value_s : float
        Largest cost of a core, (weighted) seconds.
    start_value_s : float or None
        The same for the placement at present; None if something had no place.
    finalists : list of arrays
        Different placements, best first; the first is `assignment`.
    bound : Bound
        What no placement can beat.
    trace : list of (elapsed_s, value_s, rounds)
        Every value seen that was better than those before.
    rounds : int
        Rounds begun and finished, by all workers together.
    stopped : str
        "optimal" (the bound is reached), "budget", "rounds" or "stopped".
    """

    assignment: IntArray
    value_s: float
    start_value_s: float | None
    finalists: list[IntArray]
    bound: Bound
    trace: list[tuple[float, float, int]]
    rounds: int
    stopped: str


def search(
    problem: PlacementProblem,
    *,
    algorithm: str = "search",
    seed: int = 0,
    budget_s: float | None = None,
    rounds: int | None = None,
    workers: int = 1,
    finalists: int = 8,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> LocalSearchResult:
    """Place the items so that the largest cost of a core is small.

    Parameters
    ----------
    problem : Problem
    algorithm : str
        One of `ALGORITHMS`: "search" (greedy, climb, exchanges, kicks) or "greedy" (no climb).
    seed : int
        With `rounds` alone the answer depends on the problem, the seed and the number of workers only.
    budget_s : float, optional
        The same search, cut when this time is over. The first placement is always finished.
    rounds : int, optional
        A round is a kick and a climb. Each worker does as many.
    workers : int
        Threads with searches of their own; the best one counts, the first of equals.
    progress : callable
        Told (elapsed_s, value_s, bound_s, rounds) about every 10 ms; what it raises ends the search.
    stop : callable
        Asked as often; True ends the search with the best so far.

    Raises
    ------
    InfeasibleError
        If the constraints exclude each other, or no placement was found that respects them.
    OptionError
        If an option has a value that it does not take.
    """
    _refuse_wrong(algorithm, seed, budget_s, rounds, workers, finalists)
    refuse_impossible(problem)
    compile_kernels(algorithm)
    run = _Run(problem, algorithm, seed, workers, finalists)
    if ALGORITHMS[algorithm].rounds is not None:
        rounds = ALGORITHMS[algorithm].rounds
    elif rounds is None and budget_s is None:
        rounds = _ROUNDS
    return run.found(run.go(budget_s, _MANY if rounds is None else rounds, progress, stop))


@cache
def compile_kernels(algorithm: str = "search") -> None:
    """Run the kernels of an algorithm once on a problem of one item, so that no budget pays for compilation."""
    problem = PlacementProblem(
        np.ones((1, 1)), np.ones((1, 1)), np.zeros(1, dtype=np.int64), np.ones((1, 1), dtype=bool)
    )
    _Run(problem, algorithm, 0, 1, 1).searches[0].advance(1, -1.0, 1)


def _refuse_wrong(
    algorithm: str, seed: int, budget_s: float | None, rounds: int | None, workers: int, finalists: int
) -> None:
    wrong = {
        f"algorithm is {algorithm!r}; allowed: {', '.join(ALGORITHMS)}": algorithm not in ALGORITHMS,
        f"seed is {seed}; allowed: a whole number >= 0": not seed >= 0,
        f"budget_s is {budget_s}; allowed: 0 or more": budget_s is not None and not budget_s >= 0.0,
        f"rounds is {rounds}; allowed: 0 or more": rounds is not None and not rounds >= 0,
        f"workers is {workers}; allowed: 1 or more": not workers >= 1,
        f"finalists is {finalists}; allowed: 1 or more": not finalists >= 1,
    }
    messages = [message for message, is_wrong in wrong.items() if is_wrong]
    if messages:
        raise OptionError("; ".join(messages))


@dataclass
class _LocalSearch:
    """Local search of one worker."""

    fixed: SearchArrays
    state: SearchState
    best: BestPlacements
    mode: int
    own: OwnSearch | None = None

    def advance(self, rounds: int, bound: float, work: int) -> bool:
        if self.own is not None:
            return self.own.advance(self.fixed, self.state, self.best, work)
        return bool(advance(self.fixed, self.state, self.best, self.mode, rounds, bound, work))


@dataclass
class _Run:
    """Local searches of several workers, and their shared results."""

    problem: PlacementProblem
    algorithm: str
    seed: int
    workers: int
    finalists: int
    searches: list[_LocalSearch] = field(default_factory=list)
    trace: list[tuple[float, float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = time.perf_counter()
        fixed = search_arrays(self.problem)
        self.bound = lower_bound(self.problem, fixed)
        starts = self._starts()
        algorithm = ALGORITHMS[self.algorithm]
        for worker in range(self.workers if self.problem.items else 0):
            state = search_state(self.problem, fixed, starts[worker % len(starts)])
            seed = int(np.random.SeedSequence([self.seed, worker]).generate_state(1, np.uint64)[0])
            best = best_placements(state, seed, self.finalists, climbing=algorithm.begins_placed)
            own = algorithm.own(self.problem, fixed) if algorithm.own is not None else None
            if algorithm.begins_placed:
                keep(fixed, state, best)
            self.searches.append(_LocalSearch(fixed, state, best, algorithm.mode, own))

    def _starts(self) -> list[IntArray]:
        """The best first placement for all searches; the present one if it is as good as that."""
        starts = first_placements(self.problem)
        origin = self.problem.origin
        if self.problem.items and (origin >= 0).all() and not faults_of(self.problem, origin):
            starts = sorted([origin, *starts], key=lambda core: value_of(self.problem, core))
        return starts[:1]

    def go(
        self, budget_s: float | None, rounds: int, progress: Progress | None, stop: Callable[[], bool] | None
    ) -> str:
        bound = self.bound.value_s / self.problem.width_s * (1.0 + 1e-11)
        # A round of an algorithm of its own is as much work as there is between two looks.
        work = _FIRST_WORK if ALGORITHMS[self.algorithm].own is None else _WORK
        with ThreadPoolExecutor(self.workers) as pool:
            while True:
                self._note(progress)
                if not self.searches or self.value <= bound * self.problem.width_s:
                    return "optimal"
                if stop is not None and stop():
                    return "stopped"
                if budget_s is not None and self.elapsed_s >= budget_s and np.isfinite(self.value):
                    return "budget"
                done = self._advance(pool, rounds, bound, work)
                work = min(2 * work, _WORK)
                if done:
                    self._note(progress)
                    return "optimal" if self.value <= bound * self.problem.width_s else "rounds"

    def _advance(self, pool: ThreadPoolExecutor, rounds: int, bound: float, work: int) -> bool:
        if self.workers == 1:
            return self.searches[0].advance(rounds, bound, work)
        tasks = [pool.submit(local.advance, rounds, bound, work) for local in self.searches]
        done = [task.result() for task in tasks]
        return all(done)

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self.began

    @property
    def value(self) -> float:
        return min((float(local.best.value[0]) for local in self.searches), default=0.0) * self.problem.width_s

    @property
    def rounds(self) -> int:
        return sum(int(local.best.rounds[0]) for local in self.searches)

    def _note(self, progress: Progress | None) -> None:
        if np.isfinite(self.value) and (not self.trace or self.value < self.trace[-1][1]):
            self.trace.append((self.elapsed_s, self.value, self.rounds))
        if progress is not None and self.trace:
            progress(self.elapsed_s, self.value, self.bound.value_s, self.rounds)

    def found(self, stopped: str) -> LocalSearchResult:
        origin = self.problem.origin
        ranked = self._ranked()
        return LocalSearchResult(
            assignment=ranked[0],
            value_s=value_of(self.problem, ranked[0]),
            start_value_s=value_of(self.problem, origin) if (origin >= 0).all() else None,
            finalists=ranked,
            bound=self.bound,
            trace=self.trace,
            rounds=self.rounds,
            stopped=stopped,
        )

    def _ranked(self) -> list[IntArray]:
        """Placements without repetition, best first; of equals, the first worker's."""
        entries = [(float(local.best.value[0]), local.best.core.copy()) for local in self.searches]
        for local in self.searches:
            ends = zip(local.best.end_values, local.best.ends, strict=True)
            entries += [(float(value), core.copy()) for value, core in ends if np.isfinite(value)]
        ranked: dict[bytes, IntArray] = {}
        for _, core in sorted(entries, key=lambda entry: entry[0]):
            ranked.setdefault(core.tobytes(), core)
        return list(ranked.values())[: self.finalists] or [np.zeros(0, dtype=np.int64)]
