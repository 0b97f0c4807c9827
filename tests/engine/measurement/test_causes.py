"""Causes of late results: the measured chain first, the estimate's busiest server only where it explains nothing."""

from __future__ import annotations

import pytest

from engine.measurement.causes import (
    AgentReport,
    BusyServer,
    LatenessCause,
    StreamReport,
    busy_server_cause,
    lateness_causes,
)

CALM = StreamReport("ready", behind_s=1.5, frames=12, trigger_s=2.0)
BUSY = BusyServer("stream", 0.93)
AGENT = AgentReport("agent-1", used_cores=0.05, budget_cores=0.2, delay_s=0.4)


def kinds(causes: list[LatenessCause]) -> list[str]:
    return [cause.kind for cause in causes]


def test_lag_of_the_stream_processor_explains_a_late_query() -> None:
    stream = StreamReport("ready", behind_s=71.0, frames=4812, trigger_s=2.0)
    causes = lateness_causes(78.7, stream, [AGENT], server=BUSY)
    assert causes == [LatenessCause("stream_behind", seconds=71.0, amount=4812.0)]


def test_lag_that_is_a_small_part_of_the_latency_explains_nothing() -> None:
    stream = StreamReport("ready", behind_s=6.0, frames=30, trigger_s=2.0)
    assert kinds(lateness_causes(78.7, stream, [AGENT])) == ["unexplained"]


@pytest.mark.parametrize("state", ["away", "failed", "starting", "stopping", "warming"])
def test_stream_processor_that_does_not_run_comes_first(state: str) -> None:
    silent = AgentReport("agent-1", silent_s=300.0)
    causes = lateness_causes(78.7, StreamReport(state), [silent])
    assert kinds(causes) == ["stream_away", "agent_silent"] and causes[0].state == state


def test_stream_processor_of_which_nothing_is_known_is_no_cause() -> None:
    assert kinds(lateness_causes(78.7, StreamReport("unknown"), [AGENT])) == ["unexplained"]


def test_silent_agent_explains_a_watermark_that_waits_for_it() -> None:
    silent = AgentReport("agent-2", silent_s=55.0, used_cores=0.2, budget_cores=0.2)
    causes = lateness_causes(60.0, CALM, [AGENT, silent], watermark_behind_s=58.0, waiting_for=["agent-2"])
    assert kinds(causes) == ["agent_silent", "watermark_held"]  # what it reported before says nothing of its budget now


def test_frames_that_wait_at_a_relay_are_named_with_it() -> None:
    relay = AgentReport("relay-1", is_relay=True, delay_s=40.0, frames=300)
    assert lateness_causes(60.0, CALM, [AGENT, relay])[0] == LatenessCause(
        "frames_waiting", "relay-1", seconds=40.0, amount=300.0, state="relay"
    )
    full = AgentReport("agent-3", spool="full", frames=9000)
    assert lateness_causes(60.0, CALM, [full])[0] == LatenessCause(
        "frames_waiting", "agent-3", amount=9000.0, state="agent"
    )


def test_the_longest_delay_of_several_is_named_first() -> None:
    stream = StreamReport("ready", behind_s=20.0, frames=90, trigger_s=2.0)
    slow = AgentReport("agent-1", delay_s=45.0)
    causes = lateness_causes(70.0, stream, [slow])
    assert [(cause.kind, cause.seconds) for cause in causes] == [("frames_waiting", 45.0), ("stream_behind", 20.0)]


@pytest.mark.parametrize(
    "agent",
    [
        AgentReport("agent-3", used_cores=0.14, budget_cores=0.15),
        AgentReport("agent-3", used_cores=0.05, budget_cores=0.15, overflowing=True),
    ],
)
def test_agent_without_budget_left_is_starved(agent: AgentReport) -> None:
    causes = lateness_causes(30.0, CALM, [AGENT, agent], server=BusyServer("stream", 0.03))
    assert kinds(causes) == ["agent_starved"] and causes[0].subject == "agent-3"


def test_source_of_which_nothing_comes_is_named_with_its_agent() -> None:
    idle = AgentReport("agent-1", idle=(("console-log", "no file yet"),))
    assert lateness_causes(30.0, CALM, [idle]) == [
        LatenessCause("source_silent", "console-log", state="no file yet at agent-1")
    ]


def test_watermark_is_held_by_those_it_waits_for() -> None:
    causes = lateness_causes(30.0, CALM, [AGENT], watermark_behind_s=28.0, waiting_for=["agent-1", "agent-2"])
    assert causes == [LatenessCause("watermark_held", "agent-1, agent-2", seconds=28.0)]
    assert kinds(lateness_causes(30.0, CALM, [AGENT], watermark_behind_s=5.0, waiting_for=["agent-1"])) == [
        "unexplained"
    ]
    assert kinds(lateness_causes(30.0, CALM, [AGENT], watermark_behind_s=28.0)) == ["unexplained"]


def test_busiest_server_is_named_only_where_the_chain_explains_nothing() -> None:
    assert lateness_causes(30.0, CALM, [AGENT], server=BUSY) == [LatenessCause("node_busy", "stream", amount=0.93)]
    stream = StreamReport("ready", behind_s=29.0, trigger_s=2.0)
    assert kinds(lateness_causes(30.0, stream, [AGENT], server=BUSY)) == ["stream_behind"]


def test_server_at_three_percent_is_never_a_cause() -> None:
    assert busy_server_cause(BusyServer("n3", 0.03)) is None
    assert kinds(lateness_causes(30.0, CALM, [AGENT], server=BusyServer("n3", 0.03))) == ["unexplained"]
    assert busy_server_cause(BusyServer("n3", 0.6, excess_s=2.0)) is not None
