"""Bytes on the wire: rows by their groups, overhead by frame and epoch, and the least of them."""

from __future__ import annotations

from collections import Counter
from math import exp

import numpy as np
import pytest

from agent.wire import FrameKind, decode_frames, table_of
from engine.errors import DocumentError
from engine.jarvis.baselines import SourcePipeline
from engine.jarvis.partition import command
from engine.jarvis.wire_bytes import Overhead, PartialRows, WireBytes
from tests.agent.runtime.doubles import ManualClock, TableSource
from tests.agent.runtime.epochs import PIPELINE, config, runtime_of
from tests.agent.runtime.pipelines import probe_records

PROBLEM = {"relay": [0.5, 0.2], "cost": [1e-6, 4e-6], "sizes": [80, 80, 60], "budget": 0.0025, "n_records": 1000}


def answer(**more) -> dict:
    return command(PROBLEM | more, {})


def test_rows_of_an_aggregate_grow_with_its_groups():
    # 1000 us for the filter leave 1500 us: 0.75 of 500 records reach the aggregate
    result = answer(aggregate={"groups": 100, "bytes": 60})
    assert result["p"] == pytest.approx([1.0, 0.75])
    rows = 100 * (1 - exp(-3.75))
    assert result["sent"] == pytest.approx(
        {"drained": 125 * 80, "output": rows * 60, "overhead": 0.0, "checkpoints": 0.0}
    )
    assert result["objective"] == pytest.approx(10_000 + 5858.89, abs=0.01)
    # by 0.2 records out per record, rows of 375 records were thought to be 75
    assert answer()["objective"] == pytest.approx(10_000 + 75 * 60)


def test_groups_seen_among_records_hold_at_another_share():
    seen = 100 * (1 - exp(-5))
    result = answer(aggregate={"groups": seen, "seen_records": 500, "bytes": 60})
    assert result["sent"]["output"] == pytest.approx(100 * (1 - exp(-3.75)) * 60)


def test_rows_of_a_window_leave_once():
    result = answer(aggregate={"groups": 100, "bytes": 60, "window_epochs": 10})
    assert result["sent"]["output"] == pytest.approx(100 * (1 - exp(-37.5)) * 60 / 10)


def test_overhead_counts_frames_windows_and_checkpoints():
    aggregate = {"groups": 100, "bytes": 60, "window_epochs": 10}
    overhead = {"epoch_bytes": 1000, "frame_bytes": 100, "frame_records": 50, "window_bytes": 30}
    sent = answer(aggregate=aggregate, overhead=overhead)["sent"]
    rows = 100 * (1 - exp(-37.5)) / 10
    # the drained path's frame, a tenth of one of rows, and those that are full
    assert sent["overhead"] == pytest.approx(1000 + 100 * (1 + 0.1 + (125 + rows) / 50) + 3)
    assert sent["checkpoints"] == pytest.approx(0.1 * (10_000 + rows * 60))
    sent = answer(aggregate=aggregate, overhead={"checkpoint_share": 1.0})["sent"]
    assert sent["checkpoints"] == pytest.approx(100 * (1 - exp(-375 * 10 / 2 / 100)) * 60)


def test_overhead_alone_adds_to_the_plan_as_it_was():
    plain, result = answer(), answer(overhead={"frame_bytes": 0, "window_bytes": 7, "epoch_bytes": 10})
    assert result["objective"] == pytest.approx(plain["objective"] + 10)
    for name in ("e", "p", "cpu", "plans", "theta", "unique"):
        assert result[name] == plain[name], name
    assert result["shadow_price"] == pytest.approx(plain["shadow_price"])


def test_an_aggregate_that_saves_nothing_at_this_share_is_not_run():
    # a tenth of its input is 50 records, each its own group of 400 bytes
    result = answer(budget=0.0012, aggregate={"groups": 1000, "bytes": 400})
    assert (result["p"], result["plans"], result["shadow_price"]) == ([1.0, 0.0], [1, 1], 0.0)
    assert result["objective"] == 500 * 80


def test_nothing_is_better_than_the_plan():
    draw = np.random.default_rng(3)
    for _ in range(60):
        operators = int(draw.integers(1, 5))
        relay, cost = draw.uniform(0.1, 1.5, operators), draw.lognormal(0, 1, operators)
        partials = PartialRows(float(draw.lognormal(5, 2)), float(draw.uniform(10, 200)), draw.choice([None, 5.0]))
        overhead = Overhead(10.0, 200.0, 100.0, 50.0, float(draw.uniform(0, 0.3)))
        wire = WireBytes(relay, cost, draw.uniform(10, 120, operators + 1), 1000.0, partials, overhead)
        budget_s = draw.uniform(0, 1.2) * wire.cpu_s[-1]
        plan = wire.best(budget_s)
        assert plan.cpu_s <= budget_s * (1 + 1e-12)
        for shares in draw.dirichlet([0.4] * (operators + 1), 200):
            if shares @ wire.cpu_s <= budget_s:
                assert wire.sent(dict(enumerate(shares))).total >= plan.sent.total * (1 - 1e-9)


def test_more_budget_saves_by_the_shadow_price():
    aggregate = {"groups": 100, "bytes": 60}
    result, more = answer(aggregate=aggregate), answer(aggregate=aggregate, budget=0.0026)
    assert result["shadow_price"] == pytest.approx((result["objective"] - more["objective"]) / 1e-4, rel=0.02)
    assert answer(aggregate=aggregate, budget=1.0)["shadow_price"] == 0.0


def test_an_epoch_is_predicted_by_groups_also_where_it_overflows():
    pipeline = SourcePipeline([0.5, 0.2], [1e-6, 4e-6], [80, 80, 60], ["filter", "aggregate"], PartialRows(100, 60))
    assert pipeline.epoch([1.0, 0.75], 1.0, 1000).bytes_sent == pytest.approx(10_000 + 5858.89, abs=0.01)
    # half of the CPU time that it takes: half of the records overflow, 187.5 reach the aggregate
    over = pipeline.epoch([1.0, 0.75], 0.00125, 1000)
    assert over.bytes_sent == pytest.approx(40_000 + 5000 + 6000 * (1 - exp(-1.875)))
    assert pipeline.epoch([1.0, 0.75], 0.0, 1000).bytes_sent == 80_000


def test_every_fault_is_told_at_once():
    with pytest.raises(DocumentError) as refused:
        answer(
            sizes=None,
            aggregate={"groups": 50, "seen_records": 20, "bytes": -1, "window_epochs": 0.5, "rows": 1},
            overhead={"checkpoint_share": 2},
        )
    faults = {fault.path: fault.message for fault in refused.value.faults}
    assert faults["aggregate.groups"] == "groups is 50; allowed: at most 20, as seen_records is"
    assert faults["aggregate"] == "aggregate is given without sizes; allowed: with sizes, as it counts bytes"
    assert faults.keys() == {
        "aggregate", "aggregate.groups", "aggregate.bytes", "aggregate.window_epochs", "aggregate.rows",
        "overhead", "overhead.checkpoint_share",
    }  # fmt: skip
    with pytest.raises(DocumentError, match="aggregate is given without operators"):
        answer(relay=[], cost=[], sizes=[80], aggregate={"groups": 5, "bytes": 1})
    with pytest.raises(DocumentError, match="n_records"):
        answer(n_records=1e308, sizes=[80, 80, 60], aggregate={"groups": 5, "bytes": 1})


class AgentRun:
    """A runtime with four operators over windows of ten epochs, each with so many records: frames by kind."""

    def __init__(self, tmp_path, load_factors: tuple[float, ...], records: int, epochs: int = 40) -> None:
        source = TableSource(probe_records(PIPELINE, records * epochs, span_s=epochs), [records // 10])
        clock = ManualClock()
        runtime, spool = runtime_of(tmp_path, source, config(*load_factors), clock)
        while not source.done:
            assert runtime.run_epoch()
            clock.pass_s(1)
        self.bytes, self.frames, self.rows = Counter[FrameKind](), Counter[FrameKind](), Counter[FrameKind]()
        for _, data in spool.unsent(2**30):
            for frame, raw in decode_frames(data):
                self.bytes[frame.kind] += len(raw)
                self.frames[frame.kind] += 1
                self.rows[frame.kind] += table_of(frame.body).num_rows if frame.body else 0
        self.epochs = self.frames[FrameKind.MARK]


def test_defaults_are_what_the_agent_sends(tmp_path):
    runs = [AgentRun(tmp_path / str(records), (1, 1, 1, 0.5), records) for records in (200, 400)]
    run, default = runs[0], Overhead()
    every_epoch = (run.bytes[FrameKind.MARK] + run.bytes[FrameKind.COUNTERS]) / run.epochs
    assert every_epoch == pytest.approx(default.epoch_bytes, rel=0.1)
    assert run.bytes[FrameKind.SWEEPS] / run.frames[FrameKind.SWEEPS] == pytest.approx(default.window_bytes, rel=0.1)
    assert run.frames[FrameKind.SWEEPS] == run.epochs / 10
    points = [(run.rows[FrameKind.RECORDS], run.bytes[FrameKind.RECORDS]) for run in runs]
    (rows, size), (more_rows, more_size) = points
    beside = (size - rows * (more_size - size) / (more_rows - rows)) / runs[0].frames[FrameKind.RECORDS]
    assert beside == pytest.approx(default.frame_bytes, rel=0.1)
