"""Epochs of the whole runtime, single behaviours; `test_exactness` has the properties."""

from __future__ import annotations

import errno
import os

import pyarrow as pa
import pytest

from agent.runtime import QueryConfig, Runtime, RuntimeConfig, Spool
from agent.wire import FrameKind, decode_frames, table_of
from engine.dataflow.arrow import whole
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.doubles import ManualClock, TableSource
from tests.agent.runtime.pipelines import AGENT, probe_records, probes_pipeline

QUERY = "here/probes"
PIPELINE = probes_pipeline()
LIMIT = 64 * 2**20


def config(*load_factors: float, version: int = 1, budget_cores: float = 8.0, **more) -> RuntimeConfig:
    queries = more.pop("queries", (QueryConfig(QUERY, PIPELINE, load_factors or (1.0,) * 4),))
    return RuntimeConfig(version, AGENT, queries, budget_cores=budget_cores, **more)


def unlimited() -> float:
    return 64.0


def runtime_of(tmp_path, source, settings=None, clock=None, limit=LIMIT):
    spool = Spool(tmp_path / "spool", limit, sync=False)
    return Runtime(settings or config(), {"probes": source}, spool, clock or ManualClock(), quota=unlimited), spool


def frames_of(spool):
    return [frame for _, data in spool.unsent(2**30) for frame, _ in decode_frames(data)]


def processed_by(spool, *pipelines) -> ReferenceProcessor:
    reference = ReferenceProcessor(pipelines or (PIPELINE,))
    for _, data in spool.unsent(2**30):
        reference.take(data)
    return reference


def run_to_the_end(runtime, source, clock=None) -> None:
    while not source.done:
        assert runtime.run_epoch()
        if clock is not None:
            clock.pass_s(1)
    assert runtime.run_epoch()


def expected_of(records, pipeline=PIPELINE):
    return rows_of(whole(pipeline, records))


@pytest.mark.parametrize("factors", [(1, 1, 1, 1), (0, 0, 0, 0), (0.5, 0.5, 0.5, 0.5), (1, 1, 0, 1), (1, 0.3)])
def test_results_do_not_depend_on_load_factors(tmp_path, factors):
    records = probe_records(PIPELINE, 3000)
    source = TableSource(records, [70])
    runtime, spool = runtime_of(tmp_path, source, config(*factors))
    run_to_the_end(runtime, source)
    reference = processed_by(spool)
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)
    assert reference.total("records_in", entry=0) == 3000
    assert reference.late == 0


def test_order_of_frames_in_an_epoch(tmp_path):
    source = TableSource(probe_records(PIPELINE, 2000), [2000])
    runtime, spool = runtime_of(tmp_path, source, config(0.5, 1, 1, 1, batch_records=300))
    run_to_the_end(runtime, source)
    kinds = [frame.kind.value for frame in frames_of(spool)][:6]
    assert kinds == ["records", "records", "records", "records", "partials", "mark"]
    assert frames_of(spool)[-1].kind is FrameKind.COUNTERS
    sizes = [table_of(frame.body).num_rows for frame in frames_of(spool) if frame.kind is FrameKind.RECORDS]
    assert sizes == [250, 250, 250, 250]


def test_a_window_is_sent_when_the_watermark_passes_its_end(tmp_path):
    records = probe_records(PIPELINE, 400, span_s=40, disorder_s=0)
    source = TableSource(records, [1])
    runtime, spool = runtime_of(tmp_path, source)
    seen: list[int] = []
    while not source.done:
        runtime.run_epoch()
        watermark = source.watermark_us()
        seen = [
            table_of(f.body)["window_start"].cast(pa.int64()) for f in frames_of(spool) if f.kind is FrameKind.PARTIALS
        ]
        starts = {start for column in seen for start in column.to_pylist()}
        assert all(start + 10_000_000 <= watermark for start in starts)
        ended = {start for start in _windows_of(records) if start + 10_000_000 <= watermark}
        assert starts == ended
    assert len(seen) >= 4


def _windows_of(records) -> set[int]:
    return {row // 10_000_000 * 10_000_000 for row in records["ts"].cast(pa.int64()).to_pylist()}


def test_late_records_make_another_partial(tmp_path):
    records = probe_records(PIPELINE, 2000, disorder_s=15)
    source = TableSource(records, [10], lies_us=12_000_000)
    runtime, spool = runtime_of(tmp_path, source)
    run_to_the_end(runtime, source)
    reference = processed_by(spool)
    assert reference.late > 0
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)


def test_windows_days_ahead_are_sent_at_once_and_once(tmp_path):
    records, day_us = probe_records(PIPELINE, 600, disorder_s=0), 86_400_000_000
    at = records["ts"].cast(pa.int64()).to_pylist()
    moved = pa.array([us + 5 * day_us if i % 7 == 0 else us for i, us in enumerate(at)])
    index = records.schema.get_field_index("ts")
    records = records.set_column(index, records.schema.field(index), moved.cast(records.schema.field(index).type))
    source = TableSource(records, [5])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    assert source.watermark_us() < min(at) + 10_000_000, "no window has ended"
    sent = [table_of(frame.body) for frame in frames_of(spool) if frame.kind is FrameKind.PARTIALS]
    starts = [start for table in sent for start in table["window_start"].cast(pa.int64()).to_pylist()]
    assert starts and min(starts) > max(at) + day_us, "the others are still open"
    spool.close()
    runtime, spool = runtime_of(tmp_path, source)  # what was sent is not open any more
    run_to_the_end(runtime, source)
    reference = processed_by(spool)
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)


def test_a_load_factor_changes_without_a_flush(tmp_path):
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [10])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    runtime.apply(config(1, 1, 1, 0.0, version=2))
    run_to_the_end(runtime, source)
    reference = processed_by(spool)
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)
    assert not reference.finals
    by_version = {row["config_version"]: row["load_factor"] for row in reference.counters if row["operator"] == "stats"}
    assert by_version == {1: 1.0, 2: 0.0}


def test_a_changed_plan_is_flushed_with_a_final_mark(tmp_path):
    other = probes_pipeline(where="err = 1")
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [10])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    at = source.position()["at"]
    runtime.apply(config(version=2, queries=(QueryConfig(QUERY, other, (1.0,) * 4),)))
    run_to_the_end(runtime, source)
    reference = processed_by(spool, PIPELINE, other)
    assert reference.finals == [(QUERY, PIPELINE.digest)]
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records.slice(0, at))
    assert rows_of(reference.result(QUERY, other)) == expected_of(records.slice(at), other)


def test_a_removed_query_takes_its_leave_even_after_a_restart(tmp_path):
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [10])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    at = source.position()["at"]
    runtime, spool = runtime_of(tmp_path, TableSource(records, [10]), config(queries=()))
    runtime.run_epoch()
    runtime.run_epoch()
    reference = processed_by(spool)
    assert reference.finals == [(QUERY, PIPELINE.digest)]
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records.slice(0, at))


def test_no_budget_means_everything_overflows_to_the_stream_processor(tmp_path):
    records = probe_records(PIPELINE, 500)
    source = TableSource(records, [50])
    runtime, spool = runtime_of(tmp_path, source, config(budget_cores=0.0), ManualClock(cpu_step_ns=1000))
    run_to_the_end(runtime, source)
    reference = processed_by(spool)
    assert reference.total("records_overflow") == reference.total("records_in") == 500
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)
    assert runtime.state()["queries"][0]["state"] == "steady"  # the last epoch had nothing to do


def test_the_budget_is_kept_and_shared_fairly_by_weight(tmp_path):
    others = [probes_pipeline(where=f"rtt_us > {i}") for i in range(3)]
    queries = tuple(
        QueryConfig(f"here/q{i}", pipeline, (1.0,) * 4, weight=weight)
        for i, (pipeline, weight) in enumerate(zip(others, (1.0, 1.0, 2.0), strict=True))
    )
    records = probe_records(PIPELINE, 600_000)
    source = TableSource(records, [20_000])  # so many that every sub-epoch's records are worth a run
    clock = ManualClock(cpu_step_ns=5_000_000)
    runtime, spool = runtime_of(tmp_path, source, config(queries=queries, budget_cores=0.7), clock)
    while not source.done:
        assert runtime.run_epoch()
        clock.pass_s(1)
    epochs = len(processed_by(spool, *others).epochs)
    assert clock.cpu_ns / (epochs * 1e9) < 1.1
    used = [processed_by(spool, *others).total("cpu_ns", query=query.query) for query in queries]
    assert used[0] == pytest.approx(used[1], rel=0.2)
    assert used[2] > 1.5 * used[0]


def test_cheap_records_of_small_polls_wait_for_one_run_in_an_epoch(tmp_path):
    records, step_ns = probe_records(PIPELINE, 3000), 1000
    source = TableSource(records, [100])
    runtime, spool = runtime_of(tmp_path, source, clock=ManualClock(cpu_step_ns=step_ns))
    for _ in range(3):  # ten polls in each
        assert runtime.run_epoch()
    reference = processed_by(spool)
    assert reference.total("cpu_ns") == 3 * 4 * step_ns  # each run looks at the clock once
    assert reference.total("records_overflow") == 0
    assert source.done


def test_what_one_query_leaves_goes_to_the_other(tmp_path):
    idle = probes_pipeline(source="idle")
    queries = (QueryConfig(QUERY, PIPELINE, (1.0,) * 4), QueryConfig("here/idle", idle, (1.0,) * 4))
    records = probe_records(PIPELINE, 5000)
    source, quiet = TableSource(records, [500]), TableSource(records.slice(0, 0), [1])
    spool = Spool(tmp_path / "spool", LIMIT, sync=False)
    clock = ManualClock(cpu_step_ns=100_000)
    settings = config(queries=queries, budget_cores=0.5)
    runtime = Runtime(settings, {"probes": source, "idle": quiet}, spool, clock, quota=unlimited)
    run_to_the_end(runtime, source, clock)
    reference = processed_by(spool, PIPELINE, idle)
    assert reference.total("records_overflow") == 0
    busy = next(row for row in reference.counters if row["query"] == QUERY)
    assert busy["granted_cpu_ns"] > 0.4e9
    assert 0 < busy["idle_ns"] < 1e9


def test_a_full_spool_holds_replayable_sources_and_sheds_live_ones(tmp_path):
    records = probe_records(PIPELINE, 40_000, span_s=400)
    source, live = TableSource(records, [500]), TableSource(records, [100], replayable=False)
    quick = probes_pipeline(source="live")
    queries = (QueryConfig(QUERY, PIPELINE, (0.0,)), QueryConfig("here/live", quick, (0.0,)))
    spool = Spool(tmp_path / "spool", 2**20, sync=False)
    settings = config(queries=queries)
    runtime = Runtime(settings, {"probes": source, "live": live}, spool, ManualClock(), quota=unlimited)
    reference = ReferenceProcessor((PIPELINE, quick))
    while runtime.run_epoch():
        pass
    held = source.polled
    assert runtime.state()["spool"]["state"] == "full"
    for _ in range(5):
        assert not runtime.run_epoch()
    assert source.polled == held
    assert spool.used_bytes <= spool.limit_bytes
    assert runtime.state()["queries"][0]["state"] == "waiting for room"
    assert runtime.state()["sources"]["live"]["shed"] >= 500
    while not source.done:  # the sender comes back, and all goes on by itself
        for seq, data in list(spool.unsent()):
            reference.take(data)
            spool.committed(seq)
        runtime.run_epoch()
    runtime.run_epoch()
    for _, data in spool.unsent():
        reference.take(data)
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)
    shed = reference.total("records_shed", query="here/live")
    assert shed > 0
    assert reference.records["here/live", quick.digest] + shed == live.position_at


def test_a_full_disk_is_waited_for(tmp_path, monkeypatch):
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [20])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    write = os.write

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agent.runtime.wal.os.write", full)
    assert not runtime.run_epoch()
    polled = source.polled
    assert not runtime.run_epoch()
    assert source.polled == polled
    assert runtime.state()["spool"]["state"] == "disk-full"
    assert "No space left on device" in runtime.state()["faults"][0]
    monkeypatch.setattr("agent.runtime.wal.os.write", write)
    run_to_the_end(runtime, source)
    assert runtime.state()["faults"] == []
    reference = processed_by(spool)
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records)


def test_an_operator_that_fails_leaves_the_records_to_the_stream_processor(tmp_path, monkeypatch, caplog):
    records = probe_records(PIPELINE, 500)
    source = TableSource(records, [50])
    runtime, spool = runtime_of(tmp_path, source)

    def fails(rows):
        raise pa.ArrowInvalid("no such luck")

    (chain,) = runtime._chains.values()
    monkeypatch.setattr(chain.stages[1].kernel, "run", fails)
    run_to_the_end(runtime, source)
    assert "operator ok: no such luck" in runtime.state()["queries"][0]["faults"]
    assert rows_of(processed_by(spool).result(QUERY, PIPELINE)) == expected_of(records)


def test_a_source_that_fails_is_shown_and_the_others_go_on(tmp_path, monkeypatch, caplog):
    records = probe_records(PIPELINE, 200)
    source, broken = TableSource(records, [50]), TableSource(records, [50])
    other = probes_pipeline(source="broken")
    queries = (
        QueryConfig(QUERY, PIPELINE, ()),
        QueryConfig("here/broken", other, ()),
        QueryConfig("here/none", probes_pipeline(source="none"), ()),
    )

    def fails(now_us, most):
        raise OSError("the device is gone")

    def forgets():
        raise OSError("the device is gone")

    monkeypatch.setattr(broken, "poll", fails)
    monkeypatch.setattr(broken, "watermark_us", forgets)
    spool = Spool(tmp_path / "spool", LIMIT, sync=False)
    runtime = Runtime(
        config(queries=queries), {"probes": source, "broken": broken}, spool, ManualClock(), quota=unlimited
    )
    run_to_the_end(runtime, source)
    assert runtime.state()["sources"]["broken"]["faults"] == ["the device is gone"]
    assert runtime.state()["queries"][2]["state"] == "refused"
    assert "'none' is not configured" in runtime.state()["queries"][2]["faults"][0]
    assert rows_of(processed_by(spool, PIPELINE, other).result(QUERY, PIPELINE)) == expected_of(records)


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_clock_steps_neither_stall_nor_multiply_epochs(tmp_path, step_s):
    clock = ManualClock()
    source = TableSource(probe_records(PIPELINE, 100), [1])
    runtime, spool = runtime_of(tmp_path, source, clock=clock)
    clock.pass_s(runtime.tick())
    clock.step_s(step_s)
    for _ in range(49):
        waits_s = runtime.tick()
        assert waits_s <= 0.1 + 1e-6
        clock.pass_s(waits_s)
    epochs = processed_by(spool).epochs
    assert len(epochs) == 5
    assert epochs == sorted(set(epochs))
    told = [fault.partition(":")[0] for fault in runtime.state()["faults"]]
    assert told == (["clock stepped back"] if step_s < 0 else [])


def test_epochs_missed_in_a_sleep_are_not_made_up_for(tmp_path):
    clock = ManualClock()
    source = TableSource(probe_records(PIPELINE, 1000), [1])
    runtime, spool = runtime_of(tmp_path, source, clock=clock)
    runtime.run_epoch()
    clock.pass_s(3600)
    for _ in range(10):
        clock.pass_s(runtime.tick())
    assert len(processed_by(spool).epochs) == 2


def test_close_ends_the_epoch_under_way(tmp_path):
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [30])
    runtime, spool = runtime_of(tmp_path, source)
    for _ in range(3):
        runtime.tick()
    runtime.close()
    spool.close()
    source = TableSource(records, [30])
    runtime, spool = runtime_of(tmp_path, source)
    assert source.position()["at"] == 120
    run_to_the_end(runtime, source)
    assert rows_of(processed_by(spool).result(QUERY, PIPELINE)) == expected_of(records)


def test_wide_records_are_cut_to_what_a_frame_may_hold(tmp_path):
    table = probe_records(PIPELINE, 1200)
    table = table.set_column(table.schema.get_field_index("src"), "src", pa.array(["a" * 6000] * 1200))
    source = TableSource(table, [1200])
    runtime, spool = runtime_of(tmp_path, source, config(0.0, batch_records=1200))
    run_to_the_end(runtime, source)
    records = [frame for frame in frames_of(spool) if frame.kind is FrameKind.RECORDS]
    assert len(records) == 2
    assert sum(table_of(frame.body).num_rows for frame in records) == 1200


def test_records_larger_than_an_epoch_may_take_pass_one_by_one(tmp_path):
    table = probe_records(PIPELINE, 3)
    table = table.set_column(table.schema.get_field_index("src"), "src", pa.array(["a" * 20_000] * 3))
    source = TableSource(table, [1])
    runtime, spool = runtime_of(tmp_path, source, config(0.0), limit=2**16)
    for _ in range(40):
        runtime.run_epoch()
        spool.committed(spool.last_seq)
        if source.done:
            break
    assert source.done
