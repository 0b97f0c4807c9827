"""Budgets: quotas of control groups, fair shares, and what operators cost."""

from __future__ import annotations

import pytest

from agent.runtime.cpu import CpuBudget, OperatorCost, quota_cores
from tests.agent.runtime.doubles import ManualClock


def test_quota_of_version_2_is_the_least_up_to_the_root(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "cpu.max").write_text("25000 100000\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    process = tmp_path / "cgroup"
    process.write_text("0::/a/b\n")
    assert quota_cores(tmp_path, process) == 0.25


def test_quota_of_version_1(tmp_path):
    folder = tmp_path / "cpu" / "a"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("30000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    process = tmp_path / "cgroup"
    process.write_text("4:memory:/a\n2:cpu,cpuacct:/a\n0::/\n")
    assert quota_cores(tmp_path, process) == 0.3


def test_without_a_quota_there_are_the_cpus(tmp_path):
    assert quota_cores(tmp_path, tmp_path / "none") >= 1


def test_cost_is_a_fixed_part_and_one_by_the_record():
    cost = OperatorCost()
    for records in (100, 1000, 5000):
        cost.observe(records, 300_000 + 200 * records)
    assert cost.records_within(300_000 + 200 * 2500) == pytest.approx(2500, abs=2)
    assert cost.records_within(250_000) == 0


@pytest.mark.parametrize(("per_record_ns", "worth"), [(20, 16_384), (1000, 2000), (3_000_000, 1)])
def test_the_dearer_its_records_the_fewer_are_worth_a_run(per_record_ns, worth):
    cost = OperatorCost()
    cost.observe(10, 10 * per_record_ns)
    assert cost.worth_a_run() == worth


def test_records_of_an_operator_with_dear_calls_wait_for_each_other():
    cost = OperatorCost()
    for records in (100, 1000):
        cost.observe(records, 5_000_000 + 200 * records)
    assert cost.worth_a_run() == 16_384


def test_operator_that_seemed_too_expensive_is_tried_again():
    cost = OperatorCost()
    cost.observe(1000, 50_100_000)
    cost.observe(2000, 50_200_000)
    tried = 0
    while not cost.records_within(1_000_000):
        cost.doubt()
        tried += 1
    assert 0 < tried < 12


def test_overused_cpu_time_is_repaid_in_parts():
    clock = ManualClock()
    budget = CpuBudget(clock)
    clock.cpu_ns += 10**9  # the start is free
    budget.begin(100.0)
    assert budget.left_ns(1.0, 0) == 100
    clock.cpu_ns += 130
    assert budget.left_ns(1.0, 130) == -30
    budget.begin(100.0)
    assert (budget.used_ns, budget.left_ns(1.0, 0), budget.left_ns(0.5, 0)) == (130, 96.25, 48.125)
    clock.cpu_ns += 10_000  # one grant is owed at most
    left = []
    for _ in range(40):
        budget.begin(100.0)
        left.append(budget.left_ns(1.0, 0))
        clock.cpu_ns += int(left[-1])
    assert left[:3] == [90, 90, 90] and left == sorted(left) and left[-1] > 99
    assert 90 <= sum(100 - remainder for remainder in left) <= 100, "all of it, but for parts of a nanosecond"


def test_operators_are_granted_what_the_rest_of_the_process_usually_leaves():
    clock = ManualClock()
    budget = CpuBudget(clock)
    free = []
    for overhead_ns in (20, 20, 36, 4, 36, 4, 20, 90):
        budget.begin(100.0)
        budget.had_chance(1000.0, 0.0, 0.0)
        clock.cpu_ns += overhead_ns + 40
        free.append(budget.close(operators_ns=40, epoch_ns=1000))
    assert free[:2] == [80, 80]
    assert all(76 <= share <= 84 for share in free[2:7]), "it comes and goes"
    assert free[7] == pytest.approx(30, abs=2), "more than twice as much counts at once"


def test_within_an_epoch_operators_have_their_share_whatever_the_rest_took_so_far():
    clock = ManualClock()
    budget = CpuBudget(clock)
    for _ in range(2):
        budget.begin(100.0)
        before = budget.left_ns(0.5, 0)
        clock.cpu_ns += 20
        assert (before, budget.left_ns(0.5, 0)) in ((50, 40), (40, 40))  # nothing is usual before the first
        budget.close(operators_ns=0, epoch_ns=1000)
    assert before == 40


def test_closing_an_epoch_and_sending_are_kept_back():
    clock = ManualClock()
    budget = CpuBudget(clock)
    budget.begin(100.0)
    budget.had_chance(1000.0, 0.0, 0.0)
    clock.cpu_ns += 60
    assert budget.close(operators_ns=40, epoch_ns=1000) == 80
    clock.cpu_ns += 40  # closing, and sending before the next begins
    budget.begin(100.0)
    budget.had_chance(1000.0, 0.0, 0.0)
    clock.cpu_ns += 20
    assert budget.close(operators_ns=0, epoch_ns=1000) == 75, "an eighth of that is kept back"


def test_granted_time_is_bounded_by_clock_and_host():
    clock = ManualClock()
    budget = CpuBudget(clock)
    budget.begin(10e9)
    for _ in range(20):
        budget.had_chance(5e7, 0.0, 0.0)
    assert budget.close(0, 1e9) == 1e9, "an epoch of one thread"
    budget.begin(10e9)
    for _ in range(10):
        budget.had_chance(8e7, 5e7, 2e7)  # the host lets it run two fifths of the time
    assert budget.close(2e8, 1e9) == pytest.approx(3.2e8)
    budget.begin(10e9)
    budget.had_chance(-5e7, 0.0, 0.0)  # late
    assert budget.close(0, 1e9) == 0
