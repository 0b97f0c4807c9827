"""The watermark of a query is the minimum over its agents and their paths; silent agents are left out and named."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.plans import LivePlan
from spark_jobs.state import AgentMarks, FlowState
from spark_jobs.windows import (
    advance_watermark,
    closing_epoch_us,
    excuse_pauses,
    forget_passed,
    take_mark,
    watermark_progress,
)


def agent(watermark: int | None = None, seen_ms: int = 1000, **more: Any) -> AgentMarks:
    marks = AgentMarks(since_ms=0)
    if watermark is not None:
        take_mark(marks, {"watermarks": {"0": watermark + 5, "1": watermark}} | more, watermark - 1, seen_ms)
    return marks


def found(agents: dict[str, AgentMarks], before: int | None = None, now_ms: int = 1000) -> Any:
    return watermark_progress(agents, agents, before_us=before, now_ms=now_ms, idle_after_ms=500)


def test_the_slowest_path_of_the_slowest_agent_decides() -> None:
    result = found({"a": agent(30), "b": agent(20), "c": agent(40)})
    assert (result.watermark_us, result.waiting_for, result.excluded) == (20, ("b",), ())


def test_agent_without_any_frame_holds_the_watermark_until_it_is_silent() -> None:
    agents = {"a": agent(30), "b": agent()}
    early = found(agents, now_ms=400)
    assert (early.watermark_us, early.waiting_for) == (None, ("b",))
    late = found(agents)
    assert (late.watermark_us, late.excluded) == (30, ("b",))


def test_agents_are_waited_for_from_the_first_arrival_on() -> None:
    """A first batch is empty where the stream processor starts before its agents."""
    flow, plan = FlowState("q", "p"), LivePlan("q", "p", ("a", "b"), idle_after_ms=500)
    for now_ms in (0, 10_000):
        advance_watermark(flow, plan, now_ms)
    assert (flow.waiting_for, flow.excluded) == (["a", "b"], [])


def test_silent_agent_is_excluded_until_it_sends_again() -> None:
    agents = {"a": agent(30), "b": agent(10, seen_ms=400)}
    assert found(agents).watermark_us == 30
    take_mark(agents["b"], {"watermarks": {"0": 12}}, 11, 1000)
    back = found(agents, before=30)
    assert (back.watermark_us, back.waiting_for, back.excluded) == (30, ("b",), ())


def arrive(agents: dict[str, AgentMarks], *arrivals: tuple[int, str], idle_after_ms: int = 500) -> None:
    """Marks in the order in which Redis stored them, a batch of them."""
    excuse_pauses(agents, arrivals, idle_after_ms)
    for seen_ms, name in arrivals:
        agents.setdefault(name, AgentMarks(since_ms=seen_ms))
        take_mark(agents[name], {"watermarks": {"0": seen_ms}}, seen_ms, seen_ms)


def test_after_a_pause_of_all_agents_none_is_silent_before_it_had_its_time() -> None:
    """The console was away, or the machine slow: the first agent to be heard again closes no window of the others."""
    agents: dict[str, AgentMarks] = {}
    arrive(agents, (1000, "a"), (1010, "b"))
    arrive(agents, (9000, "a"))
    assert found(agents, now_ms=9000).excluded == ()
    arrive(agents, (9200, "a"))
    assert found(agents, now_ms=9500).waiting_for == ("b",)
    assert found(agents, now_ms=9501).excluded == ("b",), "others went on arriving without a mark of its own"


def test_pause_within_a_batch_is_nobodys_silence() -> None:
    """A stream processor that catches up reads what came before and after it at once, but not all of it."""
    agents: dict[str, AgentMarks] = {}
    arrive(agents, (1000, "a"), (1010, "b"))
    arrive(agents, (1500, "a"), (1510, "b"), (9000, "a"))
    assert found(agents, now_ms=9000).excluded == ()


def test_an_agent_that_went_before_a_pause_is_not_waited_for_again() -> None:
    agents: dict[str, AgentMarks] = {}
    arrive(agents, (1000, "a"), (1010, "b"), (1400, "a"), (1800, "a"))
    assert found(agents, now_ms=1800).excluded == ("b",)
    arrive(agents, (9000, "a"))
    assert found(agents, now_ms=9000).excluded == ("b",)


def test_an_agent_that_stays_away_is_excused_once_where_others_are_heard_seldom() -> None:
    agents: dict[str, AgentMarks] = {}
    arrive(agents, (1000, "a"), (1010, "b"))
    arrive(agents, (1700, "a"))
    assert found(agents, now_ms=1700).excluded == ()
    arrive(agents, (2400, "a"))
    assert found(agents, now_ms=2400).excluded == ("b",)


def test_silence_of_all_agents_keeps_the_watermark() -> None:
    assert found({"a": agent(30, seen_ms=1)}, before=5).watermark_us == 5


def test_a_watermark_far_ahead_counts_as_its_arrival() -> None:
    day_us, now_us = 86_400_000_000, 1_700_000_000_000_000
    right = agent(now_us - 5, seen_ms=now_us // 1000)
    ahead = agent(now_us + day_us, seen_ms=now_us // 1000)
    years_ahead = agent(now_us + 1000 * day_us, seen_ms=now_us // 1000)
    assert (right.watermark_us, ahead.watermark_us, years_ahead.watermark_us) == (now_us - 5, now_us + day_us, now_us)
    take_mark(years_ahead, {"watermarks": {"0": now_us + 1}}, now_us, now_us // 1000)
    assert years_ahead.watermark_us == now_us + 1, "its clock is right again"


def test_watermark_never_goes_back() -> None:
    assert found({"a": agent(10)}, before=50).watermark_us == 50


def test_an_agent_that_ended_holds_nothing() -> None:
    result = found({"a": agent(10, final=True), "b": agent(30)})
    assert (result.watermark_us, result.ended) == (30, False)
    assert found({"a": agent(10, final=True), "b": agent(30, final=True)}).ended


@pytest.mark.parametrize("paths", [None, {}, {"0": "1"}, {"0": True}, [1], {"x": 1}, {"0": 2**53}])
def test_a_mark_without_watermarks_is_refused(paths: Any) -> None:
    with pytest.raises(ValueError, match=r"a mark's watermarks (is|has) .*allowed: "):
        take_mark(AgentMarks(0), {"watermarks": paths}, 1, 1)


@pytest.mark.parametrize("more", [{"closing_epoch_us": "soon"}, {"closing_epoch_us": 2**60}, {"left_out": "a1"}])
def test_a_mark_that_no_result_could_carry_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"a mark's {next(iter(more))} is .*; allowed: "):
        take_mark(AgentMarks(0), {"watermarks": {"0": 1}} | more, 1, 1)


def test_a_window_closes_with_the_first_mark_behind_it_of_the_last_agent() -> None:
    one, two = agent(10), agent(12)
    for watermark in (20, 30):
        take_mark(one, {"watermarks": {"0": watermark}, "closing_epoch_us": watermark - 3}, 0, 1)
    take_mark(two, {"watermarks": {"0": 40}, "closing_epoch_us": 35}, 0, 1)
    assert closing_epoch_us([one, two], 11) == 17
    assert closing_epoch_us([one, two], 15) == 35
    assert closing_epoch_us([one], 99) is None
    forget_passed(one, 25)
    assert one.closings == [(30, 27)]
    forget_passed(one, 99)
    assert one.closings == [(30, 27)]
