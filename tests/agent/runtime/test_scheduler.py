"""Scheduling at an agent: the policies as stories, and their safeguards."""

from __future__ import annotations

import pytest

from agent.runtime.session import RunSpans
from tests.agent.runtime.scheduler_bench import START_S, SchedulerBench

WINDOWED = {"slow": (10, 40.0), "quick": (4, 10.0), "far": (20, 10.0)}


def watched(**settings) -> SchedulerBench:
    """Three queries whose watermarks have been half a second late, for five windows each."""
    desk = SchedulerBench(WINDOWED, **settings)
    for second in range(4, 105, 2):
        for name, (window_s, _) in WINDOWED.items():
            if second % window_s == 0:
                desk.at(second + 0.5)
                desk.mark(name, second)
    return desk


def test_with_no_watermark_here_the_least_slack_goes_first():
    desk = watched()
    desk.at(105)
    for name in WINDOWED:
        desk.come(name, 5)
    # windows end at 108 (quick), 110 (slow: 200 ms of work) and 120
    assert desk.run() == ["quick", "slow", "far"]


def test_a_watermark_that_is_here_goes_first_the_one_that_is_late_for_its_work():
    desk = watched()
    desk.at(105)
    desk.come("slow", 5)
    desk.come("quick", 5)
    desk.at(110.5)
    desk.come("far", 5)
    desk.mark("slow", 110)
    desk.mark("quick", 108)
    desk.at(111)
    # quick is 3 s late for 50 ms, slow is 1 s late for 200 ms; the window of far is open yet
    assert desk.run() == ["quick", "slow", "far"]
    assert [desk.pipeline(name).watermark_us % 1_000_000_000 // 1_000_000 for name in WINDOWED] == [110, 108, 100]


def test_a_turn_lasts_a_cycle_unless_there_is_nothing_to_do():
    desk = SchedulerBench({"a": (4, 30.0), "b": (4, 30.0)}, policy="round-robin")
    desk.come("a", 10)
    desk.come("b", 5)
    assert desk.run() == ["a", "b", "a", "b", "a"], "120 ms are four records"
    assert desk.pipeline("a").waiting() == desk.pipeline("b").waiting() == 0


def test_queries_are_compared_once_for_all_turns_of_a_cycle(monkeypatch):
    desk = SchedulerBench({"a": (4, 1.0), "b": (4, 1.0), "c": (4, 1.0), "d": (4, 1.0)})
    compared = []
    order = desk.scheduler._policy.order

    def counted(views, *given):
        compared.append(sorted(view.id for view in views))
        return order(views, *given)

    monkeypatch.setattr(desk.scheduler._policy, "order", counted)
    for name in "dbca":
        desk.come(name, 2)
    assert desk.run() == ["a", "b", "c", "d"]
    assert compared == [["here/a", "here/b", "here/c", "here/d"]]


def test_a_turn_goes_on_after_a_pause_within_its_cycle():
    desk = SchedulerBench({"a": (4, 20.0), "b": (4, 20.0)}, policy="round-robin")
    desk.come("a", 10)
    desk.come("b", 10)
    assert desk.run(0.04) == ["a"]
    assert desk.run(0.10) == ["a", "b"]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("stimulus-time", ["late", "early", "last"]),
        ("fcfs", ["early", "late", "last"]),
        ("round-robin", ["early", "last", "late"]),
    ],
)
def test_other_policies_order_queries_by_their_rule(policy, order):
    desk = SchedulerBench(dict.fromkeys(order, (10, 10.0)), policy=policy)
    desk.at(5)
    desk.come("early", 3)
    desk.at(6)
    desk.come("late", 3, event_s=2)
    desk.at(7)
    desk.come("last", 3)
    desk.at(8)
    assert desk.run() == order


def test_policy_knows_when_the_oldest_record_will_overflow():
    desk = watched()
    desk.at(105)
    desk.take_up()  # an epoch of a second
    desk.come("slow", 2)
    desk.come("quick", 2)
    expires_s = [desk.session(name).view(0).expires_ms / 1e3 - START_S for name in ("slow", "quick")]
    # limits are 3.3 and 1.32 s; at an epoch's end those go that would wait for longer by the next one's
    assert expires_s == pytest.approx([107.3, 106.0], abs=1e-3)
    assert desk.session("far").view(0).expires_ms is None


def test_without_windows_records_are_due_when_they_come():
    desk = SchedulerBench({"rows": (None, 10.0), "count": (10, 10.0)})
    desk.at(1)
    desk.mark("count", 1)
    desk.come("count", 5)
    desk.come("rows", 5)
    assert desk.run() == ["rows", "count"]


def test_starved_query_runs_first():
    desk = SchedulerBench({"late": (2, 60.0), "far": (100, 60.0)}, starvation_s=1.0)
    turns = []
    for second in (1, 2, 3, 4, 5):
        desk.at(second)
        desk.mark("late", second)
        desk.come("late", 20)
        desk.come("far", 2)
        turns.append(desk.run(0.25))
    assert turns == [["late"], ["far", "late"], ["late"], ["far", "late"], ["late"]]
    assert desk.scheduler.report()["starved"] == 2


def test_where_all_wait_too_long_every_other_turn_is_by_the_policy():
    desk = SchedulerBench({"due": (2, 120.0), "b": (100, 120.0), "c": (100, 120.0)}, starvation_s=0.5)
    for name in ("b", "c", "due"):
        desk.come(name, 4)
    desk.at(2)
    desk.mark("due", 2)
    assert desk.run() == ["b", "due", "c", "due", "b", "c", "b", "c", "b", "c"]


def test_records_that_were_given_up_without_a_turn_count_as_waiting():
    desk = SchedulerBench({"late": (2, 60.0), "far": (100, 60.0)}, starvation_s=2.0)
    for second in (1, 2, 3, 4):
        desk.at(second)
        desk.mark("late", second)
        desk.come("late", 20)
        desk.come("far", 2)
        assert desk.run(0.2)[0] == ("far" if second == 3 else "late")
        desk.pipeline("far").overflow_older(2**62)


def test_memory_mode_holds_from_the_bound_until_enough_is_free():
    desk = SchedulerBench({"due": (2, 100.0), "many": (100, 1.0)}, memory_bytes=65_536, release_share=0.5, release_s=60)
    desk.at(1)
    desk.mark("due", 1)
    desk.mark("many", 1)
    desk.come("due", 5)
    desk.come("many", 2000)
    assert desk.scheduler._waiting_bytes() > 65_536
    assert desk.run(0.5) == ["many"]
    report = desk.scheduler.report()
    assert (report["mode"], report["memory_bound"]) == ("memory", 65_536)
    assert "then what frees memory best" in report["reason"]
    assert desk.run(2.0)[:2] == ["many", "due"]
    assert desk.scheduler.mode == "latency"


def test_memory_mode_ends_when_the_backlog_overflows():
    desk = SchedulerBench({"due": (2, 100.0), "many": (100, 1.0)}, memory_bytes=65_536, release_s=60)
    desk.come("due", 5)
    desk.come("many", 2000)
    desk.run(0.5)
    assert desk.scheduler.mode == "memory"
    for name in ("due", "many"):
        desk.pipeline(name).overflow_older(2**62)
    desk.take_up()
    assert desk.scheduler.mode == "latency"


@pytest.mark.parametrize("policy", ["stimulus-time", "fcfs", "round-robin"])
def test_the_other_policies_know_no_memory_mode(policy):
    desk = SchedulerBench({"many": (100, 1.0), "few": (2, 10.0)}, policy=policy, memory_bytes=65_536)
    desk.come("few", 1)
    desk.come("many", 2000)
    desk.run(0.01)
    assert desk.scheduler.mode == "latency"


def test_above_saturation_windows_that_are_much_too_late_go_first_by_deadline():
    desk = watched()
    desk.at(105)
    for name in WINDOWED:
        desk.come(name, 200)
    for _ in range(3):
        assert desk.scheduler.mode == "latency"
        desk.scheduler.epoch_over(0.5e9, 0.5e9)
    assert desk.scheduler.mode == "saturated"
    desk.at(121)
    desk.mark("far", 120)
    desk.mark("quick", 120)
    desk.mark("slow", 120)
    assert desk.run(0.2) == ["quick"], "its window ended at 108"
    assert "more work than CPU time" in desk.scheduler.report()["reason"]
    for _ in range(3):
        desk.scheduler.epoch_over(0.2e9, 0.5e9)
    assert desk.scheduler.mode == "latency"


def test_busy_core_with_a_small_backlog_is_not_saturated():
    desk = SchedulerBench({"a": (4, 1.0)})
    desk.come("a", 10)  # 10 ms of 500
    for _ in range(10):
        desk.scheduler.epoch_over(0.5e9, 0.5e9)
    assert desk.scheduler.mode == "latency"


def test_fault_of_the_policy_is_reported_and_queries_run_round_robin(monkeypatch, caplog):
    desk = SchedulerBench({"a": (4, 40.0), "b": (4, 40.0), "c": (4, 40.0)})

    def fail(*_):
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(desk.scheduler._policy, "order", fail)
    for name in "abc":
        desk.come(name, 6)
    assert desk.run() == ["a", "b", "c", "a", "b", "c"]
    assert desk.scheduler.report()["reason"] == "queries take turns: ZeroDivisionError: no such luck"
    assert desk.scheduler.faults == ["queries take turns: ZeroDivisionError: no such luck"]
    assert len(caplog.records) == 1
    desk.take_up()
    assert desk.scheduler.faults == []


def test_fault_in_a_forecast_does_not_stop_the_scheduler(monkeypatch):
    desk = watched()
    monkeypatch.setattr(desk.session("quick").tracker, "_known_forecast", lambda _: 1 / 0)
    desk.come("quick", 5)
    desk.mark("quick", 108)
    assert desk.run() == ["quick"]
    assert "ZeroDivisionError" in desk.scheduler.faults[0]


def test_spans_cover_the_time_a_query_ran():
    desk = SchedulerBench({"a": (4, 60.0), "b": (4, 60.0)}, policy="round-robin")
    desk.come("a", 4)
    desk.come("b", 1)
    desk.run()
    told = [desk.scheduler.epoch_report(desk.pipeline(name), 0, desk._labels.now_us(), 1)[0]["t"] for name in "ab"]
    assert told == [[[0.0, 120.0], [180.0, 120.0]], [[120.0, 60.0]]]
    assert desk.scheduler.epoch_report(desk.pipeline("a"), 0, desk._labels.now_us(), 1)[0]["t"] == [], "told once"


def test_at_most_forty_spans_are_reported_with_the_nearest_joined():
    spans = RunSpans()
    for i in range(100):
        spans.add(i * 10_000_000, i * 10_000_000 + 2_000_000 + (i == 50) * 7_500_000)
    told = spans.take(0)
    assert len(told) == 40
    assert told[0][0] == 0
    assert sum(told[-1]) == 992.0
    assert [500.0, 12.0] in told or any(begin <= 500 and begin + length >= 512 for begin, length in told)
