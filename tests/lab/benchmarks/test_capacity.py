"""Benchmark of capacity: what it draws, and how it holds factors against brute force."""

from __future__ import annotations

from lab.benchmarks.capacity import drawn_cluster, tried


def test_factor_of_a_query_and_of_all_sources_lies_beside_that_of_brute_force() -> None:
    deployment = drawn_cluster(1, queries=4, slices=400)
    trials = [trial for query in ("q1", None) if (trial := tried(deployment, query)) is not None]
    assert trials and all(abs(trial.error) < 0.1 for trial in trials)
    assert drawn_cluster(1, queries=4, slices=400).digest == deployment.digest
