"""Constraints of several rounds: shares of chains and graphs, rates, and a plan for all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.errors import DocumentError
from engine.planner.latency import LatencyOptions, evaluate_latency
from engine.planner.profile import StageProfile
from engine.planner.rounds import StageRound, round_rates, size_rounds, split_constraint
from tests.engine.planner.stages import NODE, WORD

DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_shares_of_a_chain_are_in_proportion_and_add_up() -> None:
    assert split_constraint(1.0, [1, 3]) == [0.25, 0.75]
    draw = np.random.default_rng(2)
    for _ in range(50):
        means, variances = draw.exponential(size=(2, draw.integers(1, 8)))
        shares = split_constraint(3.0, means.tolist(), variances.tolist(), z=2.0)
        assert sum(shares) == pytest.approx(3.0)


def test_share_of_a_quantile_is_what_the_round_adds_to_it() -> None:
    shares = split_constraint(2.0, [0.2, 0.4], [0.01, 0.04], z=2.0)
    sd = math.sqrt(0.05)
    assert shares[0] / shares[1] == pytest.approx((0.2 + 2 * 0.01 / sd) / (0.4 + 2 * 0.04 / sd))


def test_longest_path_is_split_first_and_the_others_take_what_it_leaves() -> None:
    assert split_constraint(6.0, [1, 1, 4, 1], edges=DIAMOND) == pytest.approx([1, 4, 4, 1])


def test_no_path_of_a_graph_exceeds_the_constraint_and_each_round_uses_it_up() -> None:
    draw = np.random.default_rng(4)
    for _ in range(50):
        count = int(draw.integers(2, 9))
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        edges = [pair for pair in pairs if draw.random() < 0.4]
        means, variances = draw.exponential(size=(2, count))
        shares = split_constraint(5.0, means.tolist(), variances.tolist(), 1.6, edges)
        longest = longest_through(shares, edges)
        assert max(longest) <= 5.0 * (1 + 1e-9)
        assert min(longest) >= 5.0 * (1 - 1e-9)


def longest_through(values: list[float], edges: list[tuple[int, int]]) -> list[float]:
    """Length of the longest path through each round; edges lead from lower to higher numbers."""
    count = len(values)
    until, since = list(values), list(values)
    for j in range(count):
        until[j] += max([until[i] for i in range(j) if (i, j) in edges], default=0.0)
    for i in reversed(range(count)):
        since[i] += max([since[j] for j in range(i + 1, count) if (i, j) in edges], default=0.0)
    return [until[i] + since[i] - values[i] for i in range(count)]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"total": 0.0, "means": [1.0]}, "total"),
        ({"total": float("nan"), "means": [1.0]}, "total"),
        ({"total": 1.0, "means": []}, "means"),
        ({"total": 1.0, "means": [0.0, 0.0]}, "means"),
        ({"total": 1.0, "means": [1.0, -1.0]}, "means[1]"),
        ({"total": 1.0, "means": [1.0], "variances": []}, "variances"),
        ({"total": 1.0, "means": [1.0, 1.0], "edges": [(0, 2)]}, "edges[0]"),
        ({"total": 1.0, "means": [1.0, 1.0], "edges": [(0, 1), (1, 0)]}, "edges"),
    ],
)
def test_split_without_sense_is_refused(arguments: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError) as caught:
        split_constraint(**arguments)
    assert path in [fault.path for fault in caught.value.faults]


def test_graph_of_too_many_paths_is_refused() -> None:
    layers = [(2 * i + a, 2 * i + 2 + b) for i in range(14) for a in (0, 1) for b in (0, 1)]
    with pytest.raises(DocumentError, match="paths"):
        split_constraint(1.0, [1.0] * 30, edges=layers)


def test_rate_of_a_round_is_what_those_before_it_emit() -> None:
    first = StageRound("words", StageProfile(alpha=8), emitted=0.25)
    second = StageRound("pairs", StageProfile(alpha=2), after=(0,))
    third = StageRound("ranks", StageProfile(), after=(0, 1))
    assert round_rates(1000.0, [first, second, third]) == [1000.0, 2000.0, 6000.0]


@pytest.mark.parametrize("statistic", ["mean", "q0.99"])
def test_plans_of_rounds_keep_the_constraint_together(statistic: str) -> None:
    rank = StageProfile(c_map=2e-6, c_red=3e-6, c_part=3e-5, c_hb=5e-3, c_bat=2e-4)
    rounds = [StageRound("words", WORD, 0.05), StageRound("ranks", rank, after=(0,))]
    question = {"rate": 3e5, "max_nodes": 20, "constraint_s": 2.0, "statistic": statistic, "max_m": 3, "max_r": 3}
    sizing = size_rounds(rounds, NODE, **question)
    assert sizing.feasible
    assert tuple(part.rate for part in sizing.rounds) == pytest.approx((3e5, 1.2e5))
    options = LatencyOptions.of_statistic(statistic)
    latencies = [
        evaluate_latency(item.profile, NODE, part.rate, part.sizing.plan.settings, options)
        for item, part in zip(rounds, sizing.rounds, strict=True)
        if part.sizing.plan is not None
    ]
    z = 0.0 if statistic == "mean" else 2.3263478740408408
    mean, variance = sum(one.mean or 0.0 for one in latencies), sum(one.var or 0.0 for one in latencies)
    assert mean + z * math.sqrt(variance) <= 2.0
    assert [part.name for part in sizing.rounds] == ["words", "ranks"]
    assert sizing.nodes is not None
    assert not size_rounds(rounds, NODE, **question | {"max_nodes": sizing.nodes - 1}).feasible


def test_rounds_that_cannot_keep_the_constraint_have_no_plan() -> None:
    rounds = [StageRound("words", WORD, 0.05), StageRound("more words", WORD, after=(0,))]
    sizing = size_rounds(rounds, NODE, rate=3e5, max_nodes=20, constraint_s=0.01, max_m=3, max_r=3)
    assert not sizing.feasible
    assert sizing.nodes is None
