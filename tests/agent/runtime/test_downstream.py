"""Query that continues at another node: slack includes the cost there, and the node gets the delays of its
watermarks.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.config import ParentConfig
from tests.agent.runtime.scheduler_bench import SchedulerBench
from tests.agent.runtime.test_stream_tracker import swept, tracker

TWINS = {"a": (10, 10.0), "b": (10, 10.0)}


def key(desk: SchedulerBench, name: str) -> tuple[str, str]:
    chain = desk.pipeline(name)
    return chain.query, chain.plan


def watched(desk: SchedulerBench, delays_s: dict[str, float], windows: int = 4) -> None:
    for number in range(windows + 1):
        for name, delay_s in sorted(delays_s.items(), key=lambda item: item[1]):
            desk.at(number * 10 + 0.5 + delay_s)
            desk.mark(name, number * 10 + 0.5)


def test_downstream_cost_counts_as_work_of_the_query() -> None:
    desk = SchedulerBench(TWINS)
    watched(desk, {"a": 1.0, "b": 1.0})
    desk.at(45)
    for name in TWINS:
        desk.come(name, 5)
    assert desk.run() == ["a", "b"], "equals, by name"
    for name in TWINS:
        desk.come(name, 5)
    before = desk.session("b").view(desk.clock.wall_us())
    desk.scheduler.downstream = {key(desk, "b"): 0.5, ("here/a", "another plan"): 9.0}
    desk.take_up()
    after = desk.session("b").view(desk.clock.wall_us())
    rows = desk.pipeline("b").stages[0].selectivity * desk.pipeline("b").stages[1].selectivity
    assert rows > 0
    assert after.work_ms - before.work_ms == pytest.approx(5 * rows * 500.0)
    assert before.slack_ms - after.slack_ms == pytest.approx(5 * rows * 500.0)
    assert desk.run() == ["b", "a"], "less time is left for what goes on"
    desk.scheduler.downstream = {}
    desk.take_up()
    assert desk.session("b").downstream_cost_s == 0.0


def test_delays_are_sent_to_a_relay_after_a_window_was_passed() -> None:
    desk = SchedulerBench({"a": (10, 10.0), "whole": (None, 10.0)})
    watched(desk, {"a": 1.0})
    assert desk.scheduler.delays(desk.pipeline("a")) == {}, "nobody goes on with it"
    desk.config = replace(desk.config, parent=ParentConfig("http://127.0.0.1:1"))
    desk.take_up()
    found = desk.scheduler.delays(desk.pipeline("a"))
    assert set(found) == {"probes"} and set(found["probes"]) == {"period_s", "epochs", "mean_s", "variance_s2"}
    assert desk.scheduler.delays(desk.pipeline("a")) == {}, "it was told"
    assert desk.scheduler.delays(desk.pipeline("whole")) == {}, "without windows there is none"
    desk.at(60)
    desk.mark("a", 55)
    assert desk.scheduler.delays(desk.pipeline("a")) != {}


def test_only_the_period_is_sent_until_three_windows_were_seen() -> None:
    stream = tracker()
    assert stream.take_delay() is None
    last = swept(stream, 1.0, 3.0)
    first = stream.take_delay()
    assert first is not None and first.note() == {"period_s": 10.0, "epochs": 2}
    swept(stream, 2.0, first=last + 1)
    then = stream.take_delay()
    assert then is not None
    assert (then.epochs, then.mean_s, then.variance_s2) == (3, pytest.approx(2.0), pytest.approx(2.0 / 3.0))
    assert stream.take_delay() is None
