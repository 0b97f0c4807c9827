"""Mace-HC as published: the compiled climb is the straightforward one of NumPy, and placements follow capacity."""

from __future__ import annotations

import numpy as np
import pytest

from engine.arrays import IntArray
from engine.placement.local_search.climb import RESTARTS, advance, keep
from engine.placement.local_search.search import search
from engine.placement.local_search.start import best_placements, search_arrays, search_state
from engine.placement.problem import PlacementProblem, value_of
from lab.benchmarks.placement import ReferenceSearch
from lab.benchmarks.workloads import PlacementSetting, problem_of
from lab.placement.correlation import mean_correlation
from tests.engine.placement.problems import plain


def compiled_climb(problem: PlacementProblem, start: IntArray) -> IntArray:
    fixed = search_arrays(problem)
    state = search_state(problem, fixed, start)
    best = best_placements(state, 1, 1, climbing=True)
    keep(fixed, state, best)
    assert advance(fixed, state, best, RESTARTS, 1, 0.0, 10**12)
    return state.core


@pytest.mark.parametrize("seed", range(6))
def test_compiled_climb_equals_the_numpy_reference(seed: int) -> None:
    problem = problem_of(PlacementSetting(1, 120, seed, skew=(0.5, 1.0, 2.0)[seed % 3]))
    start = np.random.default_rng(seed).integers(problem.cores, size=problem.items)
    plainly = ReferenceSearch(problem)
    climbed = compiled_climb(problem, start)
    assert climbed.tolist() == plainly.climb(start).tolist()
    assert (climbed != start).sum() >= 20
    assert plainly.value_s == pytest.approx(value_of(problem, climbed))


def test_compiled_climb_equals_the_reference_on_unequal_cores() -> None:
    rng = np.random.default_rng(5)
    problem = plain(rng.gamma(0.3, 1.0, (40, 60)), rng.uniform(1.0, 4.0, 6))
    start = rng.integers(6, size=40)
    assert compiled_climb(problem, start).tolist() == ReferenceSearch(problem).climb(start).tolist()


def test_random_placements_follow_capacity() -> None:
    problem = plain(np.ones((4000, 3)), [1.0, 3.0])
    shares = np.bincount(search(problem, algorithm="baseline", seed=2).assignment) / 4000
    assert shares == pytest.approx([0.25, 0.75], abs=0.03)


def test_algorithms_rank_as_published() -> None:
    """On the workload of the paper the search beats Mace-HC, which beats Random, which beats Baseline."""
    problem = problem_of(PlacementSetting(1, 100, 3))
    names = ("search", "mace-hc", "random", "baseline")
    values = [search(problem, algorithm=name, rounds=60).value_s for name in names]
    assert values == sorted(values)
    assert len(set(values)) == 4


def test_corr_places_correlated_loads_together() -> None:
    problem = problem_of(PlacementSetting(1, 100, 3))
    random, corr = (search(problem, algorithm=name, rounds=60, seed=1).assignment for name in ("baseline", "corr"))
    assert mean_correlation(problem, corr) > mean_correlation(problem, random) + 0.1
    spread = [np.ptp(np.bincount(a, problem.load.mean(axis=1), problem.cores)) for a in (corr, random)]
    assert spread[0] < 0.2 * spread[1]
