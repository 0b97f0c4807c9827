"""Order of merges at a relay: by slack, from the delays of its agents; in bounded time and without starvation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config import AgentConfig
from agent.relay.relay import Relay
from agent.runtime import Spool
from agent.runtime.downstream import Delay
from agent.wire import (
    COUNTERS,
    SWEEPS,
    Frame,
    FrameKind,
    batch_bytes,
    decode_frames,
    encode_frame,
    variation_extra,
)
from engine.klink.policies import Klink, QueryView
from engine.klink.settings import ScheduleSettings
from engine.klink.slack import forwarding_messages
from tests.agent.relay.test_relay import PIPELINE, partial, relay_config, secret_hash

CHILD, OTHER = "child-a", "child-b"
SECOND = 1_000_000
QUERIES = ("eu/a", "eu/b", "eu/c")


class SlowClock:
    """A clock that stands still but for CPU time: 10 ms each time that somebody looks."""

    def __init__(self) -> None:
        self.us, self.cpu_ns = 100 * SECOND, 0

    def wall_us(self) -> int:
        return self.us

    def monotonic_ns(self) -> int:
        return self.us * 1000

    def process_cpu_ns(self) -> int:
        return self.thread_cpu_ns()

    def thread_cpu_ns(self) -> int:
        self.cpu_ns += 10_000_000
        return self.cpu_ns


class Site:
    """A relay that is called by hand."""

    def __init__(self, folder: Path, children: tuple[str, ...] = (CHILD,), **schedule: Any) -> None:
        self.folder, self.clock = folder, SlowClock()
        told = [
            {"agent": child, "secret_hash": secret_hash(child), "queries": dict.fromkeys(QUERIES, PIPELINE.digest)}
            for child in children
        ]
        config = relay_config(1, children=told)
        self.config: AgentConfig = replace(config, epoch_s=1.0, schedule=ScheduleSettings(**schedule))
        self.seqs = dict.fromkeys(children, 0)
        self.spool = Spool(folder / "relay", 64 * 2**20, sync=False)
        self.relay = Relay(self.config, self.spool, self.clock)

    def post(self, child: str, *frames: Frame) -> dict[str, Any]:
        data = []
        for frame in frames:
            self.seqs[child] += 1
            data.append(encode_frame(replace(frame, agent=child, life="life", seq=self.seqs[child])))
        reply = self.relay.take(secret_hash(child), b"".join(data))
        assert reply.status == 200, reply.document
        return dict(reply.document)

    def mark(self, query: str, us: int, **more: Any) -> Frame:
        says = {"watermarks": {str(k): us for k in range(4)}, "closing_epoch_us": us, "final": False} | more
        return Frame(FrameKind.MARK, "", "", 1, query, PIPELINE.digest, epoch=us, extra=says)

    def sent(self) -> list[Frame]:
        """Frames that one epoch sends on."""
        self.relay.send_on()
        found = []
        for seq, data in list(self.spool.unsent()):
            found += [frame for frame, _ in decode_frames(data)]
            self.spool.acknowledged(seq)
        return found

    def marked(self) -> list[str]:
        return [frame.query for frame in self.sent() if frame.kind == FrameKind.MARK]

    def session(self, query: str) -> dict[str, Any]:
        (found,) = [report for report in self.merging()["queries"] if report["query"] == query]
        return dict(found)

    def merging(self) -> dict[str, Any]:
        return dict(self.relay.report()["relay"]["merging"])


def row(query: str, ts_us: int) -> Frame:
    """A partial row of the query's window at that time."""
    (frame, _) = next(iter(decode_frames(partial("x", 1, ts_us))))
    return replace(frame, query=query)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.spool.close()


def told(*streams: tuple[str, Delay]) -> dict[str, Any]:
    return {"delay": {stream: delay.note() for stream, delay in streams}}


def test_messages_equal_those_of_the_model(site: Site) -> None:
    """Section 4: the agent sees the watermarks first, the relay's part of the aggregate comes after its operators."""
    assert PIPELINE.aggregate is not None
    names = [operator.id for operator in PIPELINE.operators[: PIPELINE.aggregate + 1]]
    shared = [*((name, "agent") for name in names), (names[-1], "relay")]
    assert forwarding_messages(shared) == [("agent", "relay", ["delay"]), ("relay", "agent", [f"cost:{names[-1]}"])]
    first = site.post(CHILD, row(QUERIES[0], 500_000), site.mark(QUERIES[0], 5 * SECOND))
    assert "forwarded" not in first, "nothing was merged yet"
    site.sent()
    (cost,) = site.post(CHILD, site.mark(QUERIES[0], 6 * SECOND))["forwarded"]
    assert set(cost) == {"query", "plan", f"cost:{names[-1]}"}
    assert (cost["query"], cost["plan"]) == (QUERIES[0], PIPELINE.digest)
    assert cost[f"cost:{names[-1]}"] == pytest.approx(0.01), "10 ms for the one row that was merged"


def test_child_gets_costs_of_its_own_queries_only(tmp_path: Path) -> None:
    site = Site(tmp_path, (CHILD, OTHER))
    only = {child: replace(site.config.relay.by_agent[child], queries=dict([pair])) for child, pair in
            ((CHILD, (QUERIES[0], PIPELINE.digest)), (OTHER, (QUERIES[1], PIPELINE.digest)))}  # fmt: skip
    site.relay.apply(replace(site.config, relay=replace(site.config.relay, children=tuple(only.values()))))
    site.post(CHILD, row(QUERIES[0], 500_000), site.mark(QUERIES[0], 5 * SECOND))
    site.sent()
    assert "forwarded" not in site.post(OTHER, site.mark(QUERIES[1], 6 * SECOND))
    site.spool.close()


def test_the_least_slack_goes_first_and_the_rest_waits_for_the_next_epoch(site: Site) -> None:
    """A window ends at 101 s, a second from now, in each. Delays that agents told say which mark is expected first."""
    now_us = site.clock.us
    for query, mean_s in zip(QUERIES, (3.0, 0.2, 1.0), strict=True):
        delay = told(("probes", Delay(1.0, 50, mean_s, 1e-4)))
        site.post(CHILD, site.mark(query, now_us, **delay))
    site.relay._config = replace(site.config, budget_cores=0.001)
    assert [site.marked() for _ in range(4)] == [["eu/b"], ["eu/c"], ["eu/a"], []]
    assert [site.session(query)["slack_s"] for query in QUERIES] == pytest.approx([4.0, 1.2, 2.0], abs=0.01)
    assert site.merging()["left_over"] == 0
    assert site.session("eu/b")["delays"] == {CHILD: {"probes": Delay(1.0, 50, 0.2, 1e-4).note()}}


def test_policy_is_informed_of_saturation(site: Site) -> None:
    """Five epochs one after the other that left queries over; an epoch that did all ends it."""

    class Asked(Klink):
        """The default, which remembers what it was told."""

        def pick(self, views: Sequence[QueryView], now_ms: float, saturated: bool = False) -> int | None:
            told.append(saturated)
            return super().pick(views, now_ms, saturated)

    told: list[bool] = []
    site.relay._turns._policy = Asked()
    few, enough = (replace(site.config, budget_cores=cores) for cores in (0.001, 1.0))
    for config in [few] * 7 + [enough] * 2:
        for query in QUERIES:
            site.post(CHILD, site.mark(query, site.clock.us))
        site.relay._config = config
        site.marked()
        site.clock.us += 1000
    assert told == [False] * 5 + [True] * 2 + [True] * 3 + [False] * 3
    policy = site.relay._turns._policy
    site.relay.apply(replace(site.config, schedule=ScheduleSettings(starvation_s=9.0)))
    assert site.relay._turns._policy is policy, "it keeps what it has seen of windows"
    site.relay.apply(replace(site.config, schedule=ScheduleSettings(policy="fcfs")))
    assert site.relay._turns._policy is not policy


def test_an_epoch_has_its_bound_and_its_budget_is_used(site: Site) -> None:
    for query in QUERIES:
        site.post(CHILD, site.mark(query, site.clock.us))
    site.relay._config = replace(site.config, budget_cores=0.015)
    assert len(site.marked()) == 2
    assert site.merging()["left_over"] == 1
    assert len(site.marked()) == 1


def test_a_window_that_all_have_passed_goes_before_one_that_is_still_awaited(site: Site) -> None:
    us = site.clock.us
    for query in QUERIES:
        site.post(CHILD, site.mark(query, us))
    site.sent()
    site.clock.us += 4 * SECOND
    site.post(CHILD, row("eu/a", us - 1), site.mark("eu/b", us + 1), site.mark("eu/c", us + SECOND))
    site.relay._config = replace(site.config, budget_cores=0.001)
    assert site.marked() == ["eu/c"]
    assert (site.session("eu/c")["windows"], site.session("eu/c")["latency_most_s"]) == (1, 3.0)
    assert site.session("eu/b")["windows"] == 0 and site.session("eu/b")["latency_mean_s"] is None


def test_starved_merge_runs_first(tmp_path: Path) -> None:
    site = Site(tmp_path, starvation_s=2.0)
    site.relay._config = replace(site.config, budget_cores=0.001)
    late = told(("probes", Delay(1.0, 50, 1000.0, 1e-4)))
    site.post(CHILD, site.mark("eu/a", site.clock.us, **late))
    order = []
    for _ in range(6):
        for query in ("eu/b", "eu/c"):
            site.post(CHILD, site.mark(query, site.clock.us))
        order += site.marked()
        site.clock.us += SECOND
    assert "eu/a" in order[:4], "its slack is a quarter of an hour, that of the others none"
    site.spool.close()


def test_wrong_delays_are_counted_and_their_marks_count_all_the_same(site: Site) -> None:
    wrong = {"delay": {"probes": {"period_s": -1, "epochs": "x"}}}
    site.post(CHILD, site.mark("eu/a", 5 * SECOND, **wrong), site.mark("eu/b", 5 * SECOND, delay=[1, 2]))
    assert sorted(site.marked()) == ["eu/a", "eu/b"]
    assert site.relay.report()["faults"] == ["2 delays that agents told could not be used"]
    assert site.session("eu/a")["delays"] == {}


def test_a_delay_goes_with_its_agent(tmp_path: Path) -> None:
    site, delay = Site(tmp_path, (CHILD, OTHER)), told(("probes", Delay(1.0, 50, 0.5, 0.01)))
    for child in (CHILD, OTHER):
        site.post(child, site.mark("eu/a", site.clock.us, **delay), site.mark("eu/b", site.clock.us, **delay))
    site.post(OTHER, site.mark("eu/a", site.clock.us, final=True))
    assert set(site.session("eu/a")["delays"]) == {CHILD} and set(site.session("eu/b")["delays"]) == {CHILD, OTHER}
    fewer = replace(site.config.relay, children=(site.config.relay.by_agent[OTHER],))
    site.relay.apply(replace(site.config, relay=fewer))
    assert site.session("eu/a")["delays"] == {} and set(site.session("eu/b")["delays"]) == {OTHER}
    site.spool.close()


def test_a_restart_and_a_query_that_ends_leave_nothing_behind(site: Site) -> None:
    site.post(CHILD, row("eu/a", 99 * SECOND), row("eu/a", 200 * SECOND), site.mark("eu/a", 100 * SECOND))
    site.spool.close()
    site.spool = Spool(site.folder / "relay", 64 * 2**20, sync=False)
    site.relay = Relay(site.config, site.spool, site.clock)
    assert site.session("eu/a")["rows"] == 2
    assert [frame.kind for frame in site.sent()] == [FrameKind.PARTIALS, FrameKind.MARK]
    assert site.session("eu/a")["rows"] == 1
    none = (replace(site.config.relay.by_agent[CHILD], queries={}),)
    site.relay.apply(replace(site.config, relay=replace(site.config.relay, children=none)))
    site.post(CHILD, site.mark("eu/a", 101 * SECOND, final=True))
    assert [frame.kind for frame in site.sent()] == [FrameKind.PARTIALS, FrameKind.MARK]
    assert site.merging()["queries"] == [] and site.sent() == []


def test_rows_before_the_first_mark_are_held(site: Site) -> None:
    site.post(CHILD, *(row("eu/a", 500_000 + i) for i in range(40)))
    assert site.sent() == [] and site.sent() == []
    assert site.session("eu/a")["row_cost_s"] == pytest.approx(0.01 / 40)
    assert site.session("eu/a")["slack_s"] is None


def test_sweeps_and_counters_pass_on_with_their_origin(site: Site) -> None:
    sweeps, counters = (
        Frame(kind, "", "", 1, body=batch_bytes(schema.empty_table()))
        for kind, schema in ((FrameKind.SWEEPS, SWEEPS), (FrameKind.COUNTERS, COUNTERS))
    )
    site.post(CHILD, sweeps, counters)
    assert [(frame.kind, frame.agent, frame.extra) for frame in site.sent()] == [
        (kind, "relay", {"origin": CHILD}) for kind in (FrameKind.SWEEPS, FrameKind.COUNTERS)
    ]


def test_counters_keep_what_they_say_of_variation(site: Site) -> None:
    varied = variation_extra([[3.0] * 6], [[]])
    site.post(CHILD, Frame(FrameKind.COUNTERS, "", "", 1, extra=varied, body=batch_bytes(COUNTERS.empty_table())))
    (passed,) = site.sent()
    assert passed.extra == {**varied, "origin": CHILD}
