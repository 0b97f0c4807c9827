"""Memory mode: the query that frees most memory, and when the mode is on."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.klink.policies import Klink, MemoryMode, QueryView, best_gain, freeing_rate, pick_by_gain

CHAIN = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 3), st.floats(0, 10)), min_size=1, max_size=6)


@settings(deadline=None)
@example([(0.0, 0.0, 0.0), (9.0, 0.0, 0.228515625)], 1.90625)  # what is left of the cycle is rounded below 0
@given(CHAIN, st.floats(0.001, 500))
def test_gain_never_exceeds_waiting_events_and_grows_with_time(operators, cycle_ms):
    queued, selectivity, cost_ms = zip(*operators, strict=True)
    gain, k = best_gain(queued, selectivity, cost_ms, cycle_ms)
    assert 0 <= gain <= sum(queued) * (1 + 1e-9)
    assert (k == 0) == (gain == 0)
    if max(selectivity) <= 1:
        assert best_gain(queued, selectivity, cost_ms, 2 * cycle_ms)[0] >= gain * (1 - 1e-9)


def test_unlimited_time_frees_the_dropped_share_of_all_events():
    assert best_gain([100.0, 40.0], [0.5, 0.25], [0.1, 0.1], 1e9) == (100 * 0.875 + 40 * 0.75, 2)


def test_deepest_queue_is_served_first():
    gain, k = best_gain([1000.0, 100.0], [0.5, 0.25], [1.0, 1.0], 130.0)
    assert (gain, k) == (100 * 0.75 + (30 / 1.5) * 0.875, 2)


def test_expanding_operator_is_passed_only_when_later_ones_reduce():
    assert best_gain([100.0], [3.0], [0.1], 120.0) == (0, 0)
    assert best_gain([100.0, 0.0], [3.0, 1.0], [0.1, 0.1], 120.0) == (0, 0)
    assert best_gain([100.0, 0.0], [3.0, 0.1], [0.1, 0.1], 120.0)[1] == 2


def test_equal_gains_are_broken_by_slack_then_id():
    assert pick_by_gain({"a": 5.0, "b": 5.0, "c": 1.0}, {"a": 9.0, "b": 3.0, "c": 0.0}) == "b"
    assert pick_by_gain({"b": 5.0, "a": 5.0}, {"a": 3.0, "b": 3.0}) == "a"
    assert pick_by_gain({}, {}) is None


def test_memory_pick_takes_the_query_that_drops_most():
    views = [
        QueryView("a", [100.0], [0.1], [0.9], 10.0, slack_ms=5.0),
        QueryView("b", [100.0], [0.1], [0.1], 10.0, slack_ms=500.0),
    ]
    assert Klink().order(views, 0.0, freeing_ms=120.0) == [1, 0]
    assert Klink().order([], 0.0, freeing_ms=120.0) == []


def test_freeing_rate_is_per_cpu_time_and_not_by_how_much_waits():
    few = QueryView("few", [10.0], [0.5], [0.0], 5.0)
    many = QueryView("many", [10_000.0], [0.5], [0.0], 5_000.0)
    assert freeing_rate(few, 120.0) == freeing_rate(many, 120.0) == pytest.approx(2.0)
    assert freeing_rate(QueryView("free", [10.0], [0.0], [0.0], 0.0), 120.0) == pytest.approx(1e4)


@pytest.mark.parametrize("saturated", [False, True])
def test_queries_alike_keep_klinks_order_in_memory_mode(saturated):
    few = QueryView("few", [10.0], [0.5], [0.0], 5.0, deadline_ms=900.0, pending_ms=990.0, pending_work_ms=5.0)
    many = QueryView("many", [9e3], [0.4], [0.0], 3.6e3, deadline_ms=990.0, pending_ms=995.0, pending_work_ms=3e3)
    for views in ([few, many], [many, few]):
        first, _ = Klink().order(views, 1_000.0, saturated, 120.0)
        assert views[first].id == views[Klink().pick(views, 1_000.0, saturated)].id == "few"


@pytest.mark.parametrize("saturated", [False, True])
def test_window_that_is_due_goes_before_what_frees_memory(saturated):
    cheap = QueryView("cheap", [100.0], [0.1], [0.0], 10.0, deadline_ms=2_000.0, slack_ms=900.0)
    dear = {"queued": [10.0], "cost_ms": [10.0], "selectivity": [0.0], "work_ms": 100.0, "deadline_ms": 950.0}
    due = QueryView("due", **dear, pending_ms=990.0, pending_work_ms=100.0)
    coming = QueryView("coming", **dear, slack_ms=-100.0)
    assert Klink().order([cheap, due], 1_000.0, saturated, 120.0) == [1, 0]
    assert Klink().order([cheap, coming], 1_000.0, saturated, 120.0) == [0, 1]


def test_memory_mode_lasts_from_the_bound_until_enough_is_free():
    mode = MemoryMode(1000, 0.5, 3.0)
    story = [(0, 999), (120, 1000), (240, 900), (360, 501), (480, 500), (600, 999), (720, 1001)]
    assert [mode.update(used, now) for now, used in story] == [False, True, True, True, False, False, True]


def test_memory_mode_ends_after_its_time_and_pauses_as_long():
    mode = MemoryMode(1000, 0.5, 3.0)
    seconds = [mode.update(5000, second * 1000) for second in range(12)]
    assert seconds == [True] * 3 + [False] * 3 + [True] * 3 + [False] * 3


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_memory_mode_frees_the_given_share(share):
    mode = MemoryMode(1000, share, 3.0)
    mode.update(1000, 0)
    assert mode.update(1000 * (1 - share) + 1, 100)
    assert not mode.update(1000 * (1 - share), 200)
