"""The algorithms of the paper obey what the product's search obeys: constraints, memory, seeds and rounds."""

from __future__ import annotations

import numpy as np
import pytest

from engine.document.memory import memory_by_node
from engine.errors import InfeasibleError
from engine.placement.local_search.search import search
from engine.placement.problem import faults_of, value_of
from engine.placement.proposal import place
from lab.placement.algorithms import PUBLISHED_ALGORITHMS
from tests.engine.placement.problems import best_by_brute_force, plain, random_problem
from tests.engine.placement.stories import broken, drawn, goal, places_of
from tests.engine.placement.test_memory import GB, deployment, fits_somehow, proposed

each_algorithm = pytest.mark.parametrize("algorithm", PUBLISHED_ALGORITHMS)


@each_algorithm
def test_every_algorithm_respects_all_constraints(algorithm: str) -> None:
    for seed in range(60):
        problem = random_problem(seed)
        best = best_by_brute_force(problem)
        if best is None:
            continue
        result = search(problem, algorithm=algorithm, rounds=6, seed=seed)
        assert all(not faults_of(problem, assignment) for assignment in result.finalists)
        assert result.value_s == value_of(problem, result.assignment) >= best[0] * (1.0 - 1e-9)


@each_algorithm
def test_rounds_and_seed_determine_the_result(algorithm: str) -> None:
    rng = np.random.default_rng(0)
    crowd = plain(rng.lognormal(0.0, 1.0, (60, 40)) * (rng.random((60, 40)) < 0.3), np.full(8, 1.2))
    first, again = (search(crowd, algorithm=algorithm, rounds=15, seed=3) for _ in range(2))
    assert [a.tolist() for a in first.finalists] == [a.tolist() for a in again.finalists]
    if algorithm != "corr":
        found = {search(crowd, algorithm=algorithm, rounds=2, seed=seed).assignment.tobytes() for seed in range(4)}
        assert len(found) > 1
        values = [search(crowd, algorithm=algorithm, rounds=rounds).value_s for rounds in (1, 4, 16, 64)]
        assert values == sorted(values, reverse=True)


@each_algorithm
def test_every_algorithm_keeps_memory_and_finds_a_placement_where_there_is_one(algorithm: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sizes = [float(size) for size in rng.integers(0, 5, 6) * GB]
        memory: list[float | None] = [float(size) for size in rng.integers(2, 8, 3) * GB]
        try:
            result = proposed(deployment(sizes, memory), algorithm=algorithm)
        except InfeasibleError:
            assert not fits_somehow(sizes, memory), seed
            continue
        assert all(entry.over_bytes == 0.0 for entry in memory_by_node(result.placed()).values()), seed


@each_algorithm
@pytest.mark.parametrize("seed", range(4))
def test_proposal_is_no_worse_than_the_start_and_keeps_constraints(seed: int, algorithm: str) -> None:
    given = drawn(seed + 100, links=seed % 2 == 1, constraints=True)
    report = place(given, algorithm=algorithm, budget_s=None, rounds=20, flow=False).report.to_dict()
    assert report["algorithm"] == algorithm
    assert not broken(given, places_of(report))
    start = {operator.id: operator.replicas for operator in given.operators}
    if not broken(given, start):
        assert report["value_after"] <= goal(given, start) * (1 + 1e-12)
