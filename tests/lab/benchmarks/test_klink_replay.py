"""Klink is no slower than round robin in the replay of the same input, near saturation and above."""

import pytest

from engine.klink.settings import ScheduleSettings
from lab.benchmarks.klink_real import LOADS, recordings
from lab.benchmarks.klink_replay import CAPACITIES, compare_policies, latency_ratios, question_of

pytestmark = pytest.mark.slow  # the first to call a policy compiles all of them


@pytest.mark.parametrize("costs_differ", [False, True])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_default_policy_is_no_slower_than_round_robin(load, capacity, costs_differ):
    found = compare_policies(load, capacity, (1, 2), 120, costs_differ=costs_differ)
    p50, p99, mean = latency_ratios(found)
    assert max(p50, p99, mean) <= 1.02
    assert found["klink"].overflow <= found["round-robin"].overflow + 0.02


def test_question_asks_for_the_given_share_of_the_core():
    for costs_differ in (False, True):
        asked = question_of(recordings("mixed", 20, 1, 0.05), 0.9, 20, costs_differ=costs_differ)
        work_ms = sum(query.cost_ms * sum(query.arrivals) for query in asked.queries)
        assert work_ms == pytest.approx(0.9 * 20_000)
        assert {query.period_ms for query in asked.queries} == {2_000, 5_000, 10_000}
        assert all(0 <= delay <= 1_000 for query in asked.queries for delay in query.delays_ms)


def test_memory_mode_makes_room_where_costs_differ():
    never = ScheduleSettings(memory_bytes=2**30)
    without = compare_policies("alike", 1.2, (1,), 120, schedule=never, costs_differ=True)["klink"]
    found = compare_policies("alike", 1.2, (1,), 120, costs_differ=True)["klink"]
    assert found.memory_bytes < 0.9 * without.memory_bytes
    assert found.overflow < 0.9 * without.overflow
