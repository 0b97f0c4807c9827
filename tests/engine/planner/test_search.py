"""The search over settings against enumeration, and its choice of nodes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from engine.planner.latency import LatencyOptions
from engine.planner.plan import StageSettings
from engine.planner.profile import NodeHardware, StageProfile
from engine.planner.search import SearchLimits, StageSearch
from tests.engine.planner.stages import NODE, SESSIONS, WINDOWS, WORD

FEW = SearchLimits(max_m=2, max_r=2)
Q99 = LatencyOptions(kind="normal", x=0.99)


def listed_settings(nodes: int, limits: SearchLimits, steps: int) -> list[StageSettings]:
    """Settings of a grid over the limits, geometric in the intervals."""
    grids = [np.geomspace(low, high, steps) for low, high in zip(limits.b_lo, limits.b_hi, strict=True)]
    threads = itertools.product(range(1, limits.max_m + 1), range(1, limits.max_r + 1))
    return [
        StageSettings(nodes, mappers, reducers, *map(float, intervals))
        for (mappers, reducers), intervals in itertools.product(threads, itertools.product(*grids))
    ]


PROBLEMS = [
    (replace(WORD, c_map=4e-6), replace(NODE, n=2), LatencyOptions(), 3, 0.5),
    (SESSIONS, replace(NODE, n=2, rho_max=0.85), Q99, 4, 0.3),
    (replace(WINDOWS, keys=4e5), replace(NODE, n=3), LatencyOptions(variant="paper"), 5, 2.0),
]


@pytest.mark.parametrize(("profile", "hardware", "options", "nodes", "goal_s"), PROBLEMS)
def test_largest_rate_is_no_less_than_that_of_any_listed_settings(
    profile: StageProfile, hardware: NodeHardware, options: LatencyOptions, nodes: int, goal_s: float
) -> None:
    search = StageSearch(profile, hardware, options, FEW, goal_s)
    rate, settings = search.largest(nodes)
    assert settings is not None
    assert search.metric(rate, settings) <= goal_s
    better = 1.005 * rate
    assert [one for one in listed_settings(nodes, FEW, 10) if search.metric(better, one) <= goal_s] == []


@pytest.mark.parametrize(("profile", "hardware", "options", "nodes", "goal_s"), PROBLEMS)
def test_least_latency_is_no_more_than_that_of_any_listed_settings(
    profile: StageProfile, hardware: NodeHardware, options: LatencyOptions, nodes: int, goal_s: float
) -> None:
    search = StageSearch(profile, hardware, options, FEW, goal_s)
    rate = 0.8 * search.largest(nodes)[0]
    least_s, settings = search.least(rate, nodes)
    assert settings is not None
    assert search.metric(rate, settings) == least_s
    assert least_s <= 1.01 * min(search.metric(rate, one) for one in listed_settings(nodes, FEW, 10))


def test_many_threads_are_found_without_trying_all() -> None:
    """Of up to 24 mappers and reducers on 20 cores, no pair bears more than the one that is found."""
    limits = SearchLimits(max_m=24, max_r=24)
    search = StageSearch(WORD, replace(NODE, n=20, rho_max=0.85), LatencyOptions(), limits, 0.5)
    rate, settings = search.largest(2)
    assert settings is not None
    assert 12 <= settings.mappers + settings.reducers <= 40
    threads = itertools.product(range(1, 25), range(1, 25))
    others = (replace(settings, mappers=mappers, reducers=reducers) for mappers, reducers in threads)
    assert [other for other in others if search.metric(1.003 * rate, other) <= 0.5] == []


def test_settings_stay_within_their_limits() -> None:
    limits = SearchLimits(max_m=3, max_r=2, b_lo=(0.01, 0.1, 0.2), b_hi=(0.01, 0.4, 0.3))
    settings = StageSearch(WORD, NODE, LatencyOptions(), limits, 1.0).largest(5)[1]
    assert settings is not None
    assert (settings.mappers <= 3, settings.reducers <= 2, settings.b_in_s) == (True, True, 0.01)
    assert 0.1 <= settings.b_sh_s <= 0.4 and 0.2 <= settings.b_ch_s <= 0.3


@pytest.mark.parametrize("rate", [1e4, 3.3e5, 9e5, 2.5e6])
def test_fewest_nodes_are_those_of_a_scan(rate: float) -> None:
    search = StageSearch(WORD, NODE, LatencyOptions(), SearchLimits(max_m=4, max_r=4), 0.5)
    scanned = next((nodes for nodes in range(1, 26) if search.largest(nodes)[0] >= rate), None)
    assert search.fewest_nodes(rate, 25) == scanned


def test_no_number_of_nodes_reaches_what_its_capacity_excludes() -> None:
    search = StageSearch(WORD, NODE, LatencyOptions(), FEW, 0.5)
    assert search.fewest_nodes(30 * search.node_capacity, 29) is None
    assert search.first_nodes(30 * search.node_capacity) == 30


def test_more_nodes_than_partitions_are_worth_are_not_taken() -> None:
    """Partitions grow with the nodes: from some number on a larger cluster bears less, and the best lies between."""
    costly = replace(WORD, c_part=2e-3)
    search = StageSearch(costly, NODE, LatencyOptions(), FEW, 0.1)
    rates = {nodes: search.largest(nodes)[0] for nodes in range(1, 30)}
    best = max(rates, key=lambda nodes: rates[nodes])
    assert best < 29
    assert rates[search.best_nodes(1, 29)] >= 0.99 * rates[best]
    assert search.fewest_nodes(0.98 * rates[best], 29) is not None
    assert search.fewest_nodes(1.02 * rates[best], 29) is None


def test_tuples_that_cost_next_to_nothing_end_the_search() -> None:
    for profile in (StageProfile(c_map=1e-320, c_red=0, b_in=0, b_out=0), StageProfile(alpha=1e-320, c_map=0)):
        search = StageSearch(profile, NODE, LatencyOptions(), FEW, 1.0)
        assert 0 < search.largest(1)[0] <= 1.01 * search.node_capacity < float("inf")


def test_largest_rate_of_given_settings_keeps_the_goal_just_so() -> None:
    search = StageSearch(WORD, NODE, LatencyOptions(), SearchLimits(), 0.4)
    settings = StageSettings(10, 2, 3, 0.005, 0.2, 0.2)
    rate = search.largest_of(settings)
    assert search.metric(rate, settings) <= 0.4 < search.metric(1.001 * rate, settings)


def test_curve_rises_and_ends_where_nothing_is_stable() -> None:
    search = StageSearch(WINDOWS, NODE, Q99, SearchLimits(max_m=3, max_r=3), 3.0)
    rate, settings = search.largest(8)
    assert settings is not None
    metrics = search.curve(8, [rate * share for share in (0.2, 0.5, 0.8, 1.0, 1.3)], [settings])
    assert metrics == sorted(metrics)
    assert metrics[3] <= 3.0
    assert metrics[4] == float("inf")
