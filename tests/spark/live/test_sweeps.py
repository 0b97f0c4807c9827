"""Swept windows become delay statistics: each window once, in any order, from any clock."""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agent.wire import REFINEMENTS, SWEEPS, FrameKind, batch_bytes, decode_frames, table_of
from engine.dataflow.pipeline import Pipeline
from engine.jarvis.group_law import distinct
from engine.klink.watermarks import SweepHistory
from spark_jobs.records import read_conforming
from spark_jobs.statistics import history, sweep_report
from spark_jobs.statistics.history import HISTORY, StatisticsState, ring_lengths, sweep_rows
from spark_jobs.statistics.sweep_report import ALL, SweepReport, differs, event_costs, watermark_rows
from spark_jobs.statistics.updates import RESEND_MS, sent_schema
from tests.agent.relay.test_relay import CHILDREN, run_child
from tests.agent.relay.test_relay import PIPELINE as AGENT_PIPELINE
from tests.agent.relay.test_relay import QUERY as AGENT_QUERY
from tests.spark.live.agents import SECOND, START_US, SmallAgent
from tests.spark.live.sweep_rows import FLOW, PERIOD_S, PLAN, QUERY, ringed, seen_ms, sweep, table, told
from tests.spark.live.world import World


def row_of(rings: pa.Table, agent: str = "a1", flow: tuple[str, str] = FLOW) -> dict[str, Any]:
    (found,) = [row for row in watermark_rows(rings, {})[flow] if row["agent"] == agent]
    return found


def drawn(count: int, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [draw.choice([0.02, 0.1, 0.4, 3.0]) + draw.random() for _ in range(count)]


def test_figures_are_those_that_an_agent_would_find_itself() -> None:
    delays = drawn(500)
    history = SweepHistory(HISTORY)
    for i, delay in enumerate(delays):
        history.add(1000.0 * i, 1000.0 * round(delay, 6))
    found, own = row_of(ringed(told("a1", delays))), history.forecast(0.0, 0.95)
    assert found["mean_s"] == pytest.approx(own.mean_ms / 1000)
    assert found["variance_s2"] == pytest.approx((own.deviation_ms / 1000) ** 2)
    assert (found["epochs"], found["sweeps"], found["period_s"]) == (HISTORY, HISTORY, PERIOD_S)
    kept = sorted(delays[-HISTORY:])
    assert [found["least_s"], found["most_s"]] == pytest.approx([kept[0], kept[-1]], abs=1e-6)
    at = dict(zip(found["levels"], found["values_s"], strict=True))
    assert at[0.5] == pytest.approx(statistics.median(kept), abs=1e-6)
    assert at[0.95] == pytest.approx(own.most_ms / 1000, rel=0.02)
    assert all(lower <= higher for lower, higher in pairwise(found["values_s"]))
    assert found["latency_mean_s"] == pytest.approx(1.0 + statistics.fmean(kept))
    assert kept[-6] + 1.0 <= found["latency_p99_s"] <= kept[-3] + 1.0
    assert found["measured_us"] == START_US + 499 * PERIOD_S * SECOND


def usual(count: int, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [max(0.0, draw.gauss(0.3, 0.06)) for _ in range(count)]


@pytest.mark.parametrize("late_s", [7.0, 12.0])
@pytest.mark.parametrize("windows", [4, 19, 40, HISTORY])
def test_late_start_does_not_shift_figures(windows: int, late_s: float) -> None:
    delays = [late_s, *usual(windows - 1)]
    history = SweepHistory(HISTORY)
    for i, delay in enumerate(delays):
        history.add(1000.0 * i, 1000.0 * round(delay, 6))
    own = history.forecast(0.0, 0.95)
    for agent in ("a1", ALL):
        found = row_of(ringed(told("a1", delays)), agent)
        assert found["mean_s"] == pytest.approx(own.mean_ms / 1000)
        assert found["variance_s2"] == pytest.approx((own.deviation_ms / 1000) ** 2)
        assert abs(found["mean_s"] - statistics.fmean(delays[1:])) < 0.02, "of 17 ms to 3 s by the plain mean"
        assert found["variance_s2"] < 0.08**2
        assert found["most_s"] == late_s, "quantiles keep every delay"


def test_starts_of_a_fleet_do_not_shift_the_figures_of_all() -> None:
    """Each of ten agents starts late once: too many epochs to be outliers among those of all agents together."""
    delays = {f"a{i}": usual(100, seed=i) for i in range(10)}
    starts = [told(agent, [12.0, *own], first=10 * i) for i, (agent, own) in enumerate(delays.items())]
    found = row_of(ringed(*starts, last=200), ALL)
    every = [delay for own in delays.values() for delay in own]
    assert found["mean_s"] == pytest.approx(statistics.fmean(every), abs=0.01)
    assert found["variance_s2"] == pytest.approx(statistics.pvariance(every), rel=0.1)


@pytest.mark.parametrize(("windows", "moments", "quantiles"), [(1, False, False), (2, False, False), (3, True, False),
                                                                (29, True, False), (30, True, True)])  # fmt: skip
def test_the_period_alone_then_moments_then_quantiles(windows: int, moments: bool, quantiles: bool) -> None:
    for agent in ("a1", ALL):
        found = row_of(ringed(told("a1", drawn(windows))), agent)
        assert (found["period_s"], found["epochs"]) == (PERIOD_S, windows)
        known = {name for name in ("mean_s", "variance_s2", "least_s", "most_s") if found[name] is not None}
        assert bool(known) == moments and len(known) in (0, 4)
        assert (found["levels"] is not None) == (found["values_s"] is not None) == quantiles


def test_agents_merge_by_deadline() -> None:
    """mu and chi of each window are means over the agents that swept it; windows count alike, agents do not."""
    rings = ringed(told("a1", [1.0, 2.0, 3.0, 4.0]), told("a2", [3.0, 6.0], first=2))
    mu, chi = [1.0, 2.0, 3.0, 5.0], [1.0, 4.0, 9.0, (16 + 36) / 2]
    found = row_of(rings, ALL)
    assert (found["epochs"], found["sweeps"]) == (4, 6)
    assert found["mean_s"] == pytest.approx(statistics.fmean(mu))
    assert found["variance_s2"] == pytest.approx(statistics.fmean(chi) - statistics.fmean(mu) ** 2)
    assert row_of(rings, "a2")["epochs"] == 2 and row_of(rings, "a2")["mean_s"] is None


def test_small_variances_of_large_delays_do_not_cancel() -> None:
    delays = [1e6 + 1e-3 * (i % 2) for i in range(100)]
    for agent in ("a1", ALL):
        assert row_of(ringed(told("a1", delays)), agent)["variance_s2"] == pytest.approx(0.25e-6, rel=1e-6)
    assert row_of(ringed(told("a1", [0.5] * 50)))["variance_s2"] == 0.0


def test_clock_skew_and_intervals_are_counted() -> None:
    start = START_US + SECOND
    rows = [
        sweep(0, -0.5),
        sweep(1, 0.5, least_us=START_US, most_us=START_US + 6 * SECOND, mean_us=start),
        sweep(2, 1.5, least_us=START_US, most_us=START_US + 11 * SECOND, mean_us=start),
        sweep(3, 0.5, least_us=None, most_us=START_US + 99 * SECOND),
    ]
    found = row_of(ringed(sweep_rows(table(*rows), "a1", seen_ms(3))))
    assert (found["sweeps"], found["clamped"], found["expected"], found["within"]) == (4, 1, 2, 1)
    assert found["least_s"] == 0.0


def test_order_batches_and_duplicates_do_not_matter() -> None:
    parts = [told(agent, drawn(20, i), first=20 * i) for agent in ("a1", "a2") for i in range(30)]
    once, draw = ringed(pa.concat_tables(parts), last=600), random.Random(3)
    for _ in range(5):
        mixed = parts + draw.sample(parts, 10)
        draw.shuffle(mixed)
        cuts = sorted(draw.sample(range(1, len(mixed)), 6))
        pieces = [pa.concat_tables(mixed[a:b]) for a, b in pairwise([0, *cuts, len(mixed)])]
        again = ringed(*pieces, last=600)
        assert again.sort_by("place").equals(once.sort_by("place"))
    assert ring_lengths(once).tolist() == [HISTORY, HISTORY]


def test_window_keeps_its_last_report() -> None:
    first, again = told("a1", [1.0, 2.0, 3.0]), sweep_rows(table(sweep(1, 7.0)), "a1", seen_ms(3))
    for parts in ((first, again), (again, first)):
        assert row_of(ringed(*parts))["mean_s"] == pytest.approx((1 + 7 + 3) / 3)


@pytest.mark.parametrize("jump", [10_000_000, -10_000_000])
def test_windows_of_a_jumped_clock_are_pushed_out(jump: int) -> None:
    """Deadlines years ahead, or that go back: the newest are those that arrived last."""
    wrong = pa.concat_tables(sweep_rows(table(sweep(jump + i, 9.0)), "a1", seen_ms(i)) for i in range(500))
    mixed = row_of(ringed(wrong, told("a1", [1.0] * 100, first=500), last=600))
    assert (mixed["mean_s"], mixed["measured_us"]) == (pytest.approx(7.0), START_US + 599 * PERIOD_S * SECOND)
    right = row_of(ringed(wrong, told("a1", [1.0] * HISTORY, first=500), last=900))
    assert (right["mean_s"], right["variance_s2"], right["epochs"]) == (1.0, 0.0, HISTORY)


def test_plans_queries_and_streams_never_mix() -> None:
    rings = ringed(
        told("a1", [1.0] * 3),
        told("a1", [2.0] * 3, plan="p2"),
        told("a1", [3.0] * 3, query="here/r"),
        told("a1", [4.0] * 3, stream="acks"),
    )
    found = watermark_rows(rings, {})
    assert {flow: {(row["agent"], row["stream"], row["mean_s"]) for row in rows} for flow, rows in found.items()} == {
        FLOW: {(agent, *figure) for agent in ("a1", ALL) for figure in (("probes", 1.0), ("acks", 4.0))},
        (QUERY, "p2"): {("a1", "probes", 2.0), (ALL, "probes", 2.0)},
        ("here/r", PLAN): {("a1", "probes", 3.0), (ALL, "probes", 3.0)},
    }


def test_silent_agents_are_dropped_after_an_hour_and_all_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rings = ringed(told("a1", [1.0] * 3), told("a2", [1.0] * 3, first=700), last=703)
    assert rings["place"].to_pylist() == ["a1", "a2"]
    rings = ringed(told("a2", [1.0], first=723), rings=rings, last=723)
    assert rings["place"].to_pylist() == ["a2"]
    monkeypatch.setattr(history, "_MAX_ROWS", 100)
    many = ringed(pa.concat_tables(told(f"a{i}", [float(j) for j in range(60)]) for i in range(2)))
    assert ring_lengths(many).tolist() == [50, 50]
    assert row_of(many, "a0")["least_s"] == 10.0, "the newest stay"
    more = ringed(pa.concat_tables(told(f"a{i}", [1.0] * 60) for i in range(10)))
    assert ring_lengths(more).tolist() == [30] * 10, "as many as quantiles need"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": ""}, "query has null, empty or too long texts; allowed: 1 to 200"),
        ({"stream": "x" * 121}, "stream has"),
        ({"plan": None}, "plan has"),
        ({"deadline_us": None}, "deadline_us has null"),
        ({"period_us": 0}, "period_us has null, too small or too large values; allowed: 1 to"),
        ({"emitted_us": 2**60}, "emitted_us has"),
        ({"delay_s": -0.1}, "delay_s has null, negative"),
        ({"delay_s": math.nan}, "delay_s has"),
        ({"delay_s": math.inf}, "delay_s has"),
        ({"delay_s": None}, "delay_s has"),
    ],
)
def test_impossible_sweeps_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sweep_rows(table(sweep(0, 0.1), sweep(1, 0.1) | change), "a1", 1)


def test_no_windows_are_nothing() -> None:
    empty = ringed(sweep_rows(table(), "a1", 1))
    assert empty.num_rows == 0 and watermark_rows(empty, {}) == {}


# -- what a source record costs


def learned(*rows: dict[str, Any]) -> pa.Table:
    shared = {"query": QUERY, "plan": PLAN, "sent_ms": 0, "agent": "a1", "input_records": 1000.0}
    return pa.Table.from_pylist([shared | row for row in rows], schema=sent_schema(REFINEMENTS))


def test_a_source_record_costs_what_its_part_of_every_operator_does() -> None:
    chain = [
        {"operator": "pairs", "entry": 2, "cost_s": 20e-6, "group_cost_s": 50e-6, "groups": 300.0, "relay": None},
        {"operator": "window", "entry": 0, "cost_s": 1e-6, "relay": 1.0},
        {"operator": "good", "entry": 1, "cost_s": 4e-6, "relay": 0.5},
    ]
    groups_s = 50e-6 * distinct(500.0, 300.0) / 500.0
    (cost,) = event_costs(learned(*chain)).values()
    assert cost == pytest.approx((1e-6 + 4e-6 + 0.5 * (20e-6 + groups_s), 1000.0))
    lacking = [chain[0], chain[1], chain[2] | {"relay": None}]
    assert event_costs(learned(*lacking)) == {} == event_costs(learned(chain[0] | {"cost_s": None}))
    other = {"agent": "a2", "operator": "window", "entry": 0, "cost_s": 3e-6, "input_records": 3000.0}
    costs = event_costs(learned(chain[1], other))
    rings = ringed(told("a1", [1.0] * 3), told("a2", [1.0] * 3), told("a3", [1.0] * 3))
    found = {row["agent"]: row["event_cost_s"] for row in watermark_rows(rings, costs)[FLOW]}
    assert found == {"a1": 1e-6, "a2": 3e-6, "a3": None, ALL: pytest.approx(2.5e-6)}


# -- telling


class Console:
    """The console's side of `SweepReport`, batch by batch."""

    def __init__(self) -> None:
        self.sweeping, self.state = SweepReport(10_000), StatisticsState()

    def step(self, last: int, *tables: pa.Table, live: Any = (FLOW,)) -> list[dict[str, Any]]:
        self.state = replace(self.state, step=self.state.step + 1, now_ms=seen_ms(last))
        waiting = [self.state.sweeps] if self.state.sweeps is not None else []
        if tables:
            self.state.sweeps = pa.concat_tables([*waiting, *tables])
        rows = []
        for update in self.sweeping.updates(self.state, live):
            assert (update.kind, update.query, update.plan) == (FrameKind.WATERMARKS, *FLOW)
            rows += table_of(update.body).to_pylist()
        return rows


def test_report_is_sent_on_change_and_repeated_periodically() -> None:
    console = Console()
    first = console.step(1, told("a1", [0.5, 0.6]))
    assert [(row["agent"], row["mean_s"]) for row in first] == [("a1", None), (ALL, None)]
    assert console.step(2, told("a1", [0.5], first=2)) == [], "it is not time"
    assert [row["epochs"] for row in console.step(4, told("a1", [0.5] * 2, first=3))] == [5, 5]
    written = console.state.swept.step
    assert console.step(6) == [], "nothing has changed"
    assert console.state.swept.step == written, "and nothing is written again"
    both = console.step(8, told("a1", [0.5] * 4, first=5), told("a2", [9.0] * 4, first=5))
    assert [row["agent"] for row in both] == ["a1", "a2", ALL]
    resent = console.step(8 + RESEND_MS // 1000 // PERIOD_S)
    assert resent == both


def test_many_windows_are_gathered_before_a_report_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_report, "_MAX_ROWS", 5)
    console = Console()
    console.step(1, told("a1", [0.5, 0.6]))
    assert console.step(2, told("a1", [0.5] * 4, first=2)) == []
    assert console.state.sweeps is not None, "two steps are no ten seconds, and four windows not many"
    assert console.step(2, told("a1", [0.5], first=6)) == []
    assert console.state.sweeps is None and ring_lengths(console.state.swept.rings).tolist() == [7]
    assert [row["epochs"] for row in console.step(4)] == [7, 7]


def test_no_report_for_plans_that_are_not_live() -> None:
    console = Console()
    assert console.step(2, told("a1", [0.5] * 3), live=()) == []
    assert len(console.step(4)) == 2


@pytest.mark.parametrize(
    ("change", "is_news"),
    [
        ({}, False),
        ({"mean_s": 0.57}, False),  # less than 5 % of the mean and a deviation
        ({"mean_s": 0.58}, True),
        ({"variance_s2": 1.1}, False),
        ({"variance_s2": 1.3}, True),
        ({"mean_s": None, "variance_s2": None}, True),
        ({"levels": None}, True),
        ({"latency_p99_s": 2.2}, True),
        ({"event_cost_s": None}, True),
        ({"event_cost_s": 1.04e-5}, False),
        ({"agent": "a2"}, True),
        ({"stream": "acks"}, True),
        ({"sweeps": 9, "within": 3, "epochs": 7, "measured_us": 8, "most_s": 9.0}, False),
    ],
)
def test_report_differs_when_a_figure_moved(change: dict[str, Any], is_news: bool) -> None:
    row = {"agent": "a1", "stream": "probes", "period_s": 5.0, "mean_s": 0.5, "variance_s2": 1.0, "levels": [0.5]}
    row |= {"latency_mean_s": 1.5, "latency_p99_s": 2.0, "event_cost_s": 1e-5}
    assert differs([row | change], [row]) == is_news


# -- by way of Redis and Spark


def test_frames_count_once_across_duplicates_gaps_and_restarts(world: World, pairs: Pipeline) -> None:
    world.console.add(QUERY, pairs, ["a0", "relay"])
    agent, relay = SmallAgent("a0", QUERY, pairs), SmallAgent("relay", QUERY, pairs)
    named = {"plan": pairs.digest}

    def swept(by: SmallAgent, window: int, delay_s: float, **extra: Any) -> Any:
        body = batch_bytes(table(sweep(window, delay_s, **named)))
        return by._frame(FrameKind.SWEEPS, 0, 0, body=body, extra=extra)

    frames = [swept(agent, i, 0.5 + i) for i in range(6)]
    passed_on = [swept(relay, i, 1.0, origin="a1") for i in range(3)]
    bad = replace(frames[5], body=batch_bytes(pa.table({"colour": ["red"]})))
    world.put([frames[0], frames[2], frames[0], *passed_on])
    world.process()
    world.put([frames[1], frames[2], frames[3], frames[1], frames[4]])
    world.process()
    world.put([bad, *passed_on, *frames[:4]])
    sink = world.process()
    assert sink.facts.count("duplicates") >= 8
    assert ["columns colour: string" in reason for reason in world.quarantined()] == [True]
    rows = {row["place"]: row for row in world.statistics().swept.rings.to_pylist()}
    assert sorted(rows["a0"]["delay_us"]) == [500_000 + i * SECOND for i in range(5)]
    assert rows["a1"]["delay_us"] == [SECOND] * 3, "whom the relay speaks for"
    last = world.console.watermarks[-1]
    assert (last.query, last.plan) == (QUERY, pairs.digest)
    assert {row["agent"]: row["sweeps"] for row in table_of(last.body).to_pylist()} == {"a0": 5, "a1": 3, ALL: 8}


def test_sweeps_of_an_agent_are_read(tmp_path: Path) -> None:
    """The agent's own windows, by its own clock."""
    spool, _ = run_child(tmp_path, CHILDREN[0], [1.0, 1.0, 1.0])
    frames = [frame for _, data in spool.unsent() for frame, _ in decode_frames(data) if frame.kind == FrameKind.SWEEPS]
    spool.close()
    rows = [sweep_rows(read_conforming(frame.body, SWEEPS), "a1", time.time_ns() // 1_000_000) for frame in frames]
    rings = history.add_sweeps(history.RINGS.empty_table(), pa.concat_tables(rows), time.time_ns() // 1_000_000)
    ((flow, told),) = watermark_rows(rings, {}).items()
    assert flow == (AGENT_QUERY, AGENT_PIPELINE.digest)
    assert [(row["agent"], row["stream"], row["period_s"]) for row in told] == [
        (agent, AGENT_PIPELINE.source.id, 1.0) for agent in ("a1", ALL)
    ]
    assert told[0]["sweeps"] == told[0]["epochs"] == sum(table.num_rows for table in rows) >= 1
    assert told[0]["latency_mean_s"] >= 0.0
