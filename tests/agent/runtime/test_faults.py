"""Faults around the runtime: no room, failing operators and sources, clocks that step."""

from __future__ import annotations

import errno
import os

import pyarrow as pa
import pytest

from agent.runtime import Runtime, Spool
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.configs import query_config
from tests.agent.runtime.doubles import ManualClock, TableSource
from tests.agent.runtime.epochs import (
    LIMIT,
    PIPELINE,
    QUERY,
    by_hand,
    config,
    expected_of,
    processed_by,
    run_to_the_end,
    runtime_of,
    unlimited,
)
from tests.agent.runtime.pipelines import probe_records, probes_pipeline


def test_a_full_spool_holds_replayable_sources_and_sheds_live_ones(tmp_path):
    records = probe_records(PIPELINE, 40_000, span_s=400)
    source, live = TableSource(records, [500]), TableSource(records, [100], replayable=False)
    quick = probes_pipeline(source="live")
    queries = (query_config(QUERY, PIPELINE, by_hand(0.0)), query_config("here/live", quick, by_hand(0.0)))
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


def test_full_disk_pauses_the_runtime_until_there_is_room(tmp_path, monkeypatch):
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [20])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    write = os.write

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agent.runtime.write_ahead_log.os.write", full)
    assert not runtime.run_epoch()
    polled = source.polled
    assert not runtime.run_epoch()
    assert source.polled == polled
    assert runtime.state()["spool"]["state"] == "disk-full"
    assert "No space left on device" in runtime.state()["faults"][0]
    monkeypatch.setattr("agent.runtime.write_ahead_log.os.write", write)
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

    (chain,) = runtime._registry.pipelines.values()
    monkeypatch.setattr(chain.stages[1].kernel, "run", fails)
    run_to_the_end(runtime, source)
    assert "operator ok: no such luck" in runtime.state()["queries"][0]["faults"]
    assert rows_of(processed_by(spool).result(QUERY, PIPELINE)) == expected_of(records)


def test_a_source_that_fails_is_shown_and_the_others_go_on(tmp_path, monkeypatch, caplog):
    records = probe_records(PIPELINE, 200)
    source, broken = TableSource(records, [50]), TableSource(records, [50])
    other = probes_pipeline(source="broken")
    queries = (
        query_config(QUERY, PIPELINE, by_hand()),
        query_config("here/broken", other, by_hand()),
        query_config("here/none", probes_pipeline(source="none"), by_hand()),
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


def test_epochs_missed_in_a_sleep_are_skipped(tmp_path):
    clock = ManualClock()
    source = TableSource(probe_records(PIPELINE, 1000), [1])
    runtime, spool = runtime_of(tmp_path, source, clock=clock)
    runtime.run_epoch()
    clock.pass_s(3600)
    for _ in range(10):
        clock.pass_s(runtime.tick())
    assert len(processed_by(spool).epochs) == 2


def test_epochs_after_missed_ones_begin_where_they_would_have(tmp_path):
    clock = ManualClock()
    source = TableSource(probe_records(PIPELINE, 1000), [1])
    runtime, spool = runtime_of(tmp_path, source, clock=clock)

    def run(epochs):
        for _ in range(10 * epochs):
            clock.pass_s(runtime.tick())

    run(3)
    clock.pass_s(7.4)
    run(3)
    epochs = processed_by(spool).epochs
    assert len(epochs) == 6
    assert (epochs[-1] - epochs[0]) % 1_000_000 == 0
