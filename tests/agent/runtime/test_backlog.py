"""Backlog over epochs: its age, its size, its order against the watermark, and restarts."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from agent.runtime import Runtime, Spool
from agent.wire import FrameKind, table_of
from engine.klink.settings import ScheduleSettings
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.configs import query_config
from tests.agent.runtime.doubles import SECOND_US, ManualClock, TableSource
from tests.agent.runtime.epochs import (
    ALL,
    PIPELINE,
    QUERY,
    by_hand,
    config,
    expected_of,
    frames_of,
    processed_by,
    runtime_of,
    unlimited,
)
from tests.agent.runtime.hosts import Host
from tests.agent.runtime.pipelines import probe_records, probes_pipeline

RECORDS = probe_records(PIPELINE, 1000)


def settings(budget_cores: float = 0.0, most_s: float = 3.0, **more):
    """Windows of 10 s, of which records may wait so long."""
    schedule = ScheduleSettings(backlog_periods=1.0, backlog_most_s=most_s)
    return config(budget_cores=budget_cores, schedule=schedule, **more)


def epochs(runtime: Runtime, clock: ManualClock, count: int) -> None:
    for _ in range(count):
        assert runtime.run_epoch()
        clock.pass_s(1)


def counted(spool: Spool, name: str) -> list[int]:
    """By epoch, of the first operator."""
    return [row[name] for row in processed_by(spool).counters if row["entry"] == 0]


@pytest.mark.parametrize(("most_s", "waiting"), [(0.0, 0), (0.9, 0), (1.5, 100), (2.5, 200), (3.5, 300)])
def test_no_record_waits_longer_than_the_limit(tmp_path, most_s, waiting):
    clock = ManualClock(cpu_step_ns=1000)
    runtime, spool = runtime_of(tmp_path, TableSource(RECORDS, [10]), settings(most_s=most_s), clock)
    epochs(runtime, clock, 6)
    queued, overflow = counted(spool, "records_queued"), counted(spool, "records_overflow")
    assert queued[-1] == waiting
    assert sum(overflow) == 600 - waiting
    (chain,) = runtime._registry.pipelines.values()
    assert chain.arrived_us is None or clock.wall_us() - chain.arrived_us <= most_s * SECOND_US


def test_backlog_is_bounded_in_bytes_and_the_oldest_overflows_first(tmp_path):
    clock, limit = ManualClock(cpu_step_ns=1000), 2**16
    others = (PIPELINE, probes_pipeline(where="err = 1"))
    queries = tuple(query_config(f"here/{i}", other, ALL) for i, other in enumerate(others))
    runtime, spool = runtime_of(tmp_path, TableSource(RECORDS, [10]), settings(queries=queries), clock, limit=limit)
    chains = list(runtime._registry.pipelines.values())
    for _ in range(5):
        assert runtime.run_epoch()
        clock.pass_s(1)
        spool.committed(spool.last_seq)
        assert sum(chain.queued_bytes for chain in chains) <= limit / 8 / 2
        assert abs(chains[0].waiting() - chains[1].waiting()) <= 10
    assert chains[0].arrived_us == chains[1].arrived_us or chains[0].waiting() != chains[1].waiting()
    assert all(chain.waiting() for chain in chains)


def test_sources_have_the_room_that_is_left(tmp_path):
    """New and queued records share an epoch's bytes: they might all be sent on at once."""
    clock, limit = ManualClock(cpu_step_ns=1000), 2**18
    source = TableSource(probe_records(PIPELINE, 4000), [4000])
    runtime, spool = runtime_of(tmp_path, source, settings(), clock, limit=limit)
    (chain,) = runtime._registry.pipelines.values()
    for _ in range(3):
        before = chain.queued_bytes
        epochs(runtime, clock, 1)
        came = counted(spool, "bytes_in")[-1]
        assert 0 < came <= limit / 8 - before
    assert chain.queued_bytes


def test_the_watermark_waits_behind_the_records(tmp_path):
    clock = ManualClock(cpu_step_ns=1000)
    source = TableSource(probe_records(PIPELINE, 1000, disorder_s=0), [10])
    runtime, spool = runtime_of(tmp_path, source, settings(most_s=2.5), clock)
    epochs(runtime, clock, 5)
    (chain,) = runtime._registry.pipelines.values()
    assert chain.waiting() == 200
    marks = [frame.extra["watermarks"] for frame in frames_of(spool) if frame.kind is FrameKind.MARK]
    assert all(len(set(mark.values())) == 1 for mark in marks), "drained or not"
    sent = [
        table_of(frame.body)["ts"].cast(pa.int64()) for frame in frames_of(spool) if frame.kind is FrameKind.RECORDS
    ]
    newest = max(ts for column in sent for ts in column.to_pylist())
    assert newest < int(marks[-1]["0"]) <= chain.stimulus_us < source.watermark_us()
    assert runtime.state()["queries"][0]["watermark_us"] == int(marks[-1]["0"])
    assert runtime.state()["sources"]["probes"]["watermark_us"] == source.watermark_us()


def test_with_nothing_waiting_a_mark_passes_at_once(tmp_path):
    source = TableSource(RECORDS, [10])
    runtime, spool = runtime_of(tmp_path, source, settings(budget_cores=8.0))
    epochs(runtime, ManualClock(), 1)
    marks = [frame.extra["watermarks"] for frame in frames_of(spool) if frame.kind is FrameKind.MARK]
    assert int(marks[-1]["0"]) == source.watermark_us()


@pytest.mark.parametrize("restart", [False, True])
def test_backlog_of_a_removed_query_is_sent_before_its_final_mark(tmp_path, restart):
    clock, source = ManualClock(cpu_step_ns=1000), TableSource(RECORDS, [10])
    runtime, spool = runtime_of(tmp_path, source, settings(), clock)
    epochs(runtime, clock, 2)
    at = source.position_at
    assert counted(spool, "records_queued")[-1] == at == 200
    gone = replace(settings(), queries=())
    if restart:
        runtime.close()
        spool.close()
        runtime, spool = runtime_of(tmp_path, TableSource(RECORDS, [10]), gone, clock)
    else:
        runtime.apply(gone)
    epochs(runtime, clock, 2)
    reference = processed_by(spool)
    assert reference.finals == [(QUERY, PIPELINE.digest)]
    assert reference.late == 0
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(RECORDS.slice(0, at))


def test_backlog_survives_a_restart_with_its_age_and_marks(tmp_path):
    clock = ManualClock(cpu_step_ns=1000)
    runtime, spool = runtime_of(tmp_path, TableSource(RECORDS, [10]), settings(), clock)
    epochs(runtime, clock, 2)
    (before,) = runtime._registry.pipelines.values()
    for _ in range(2):  # the second time from one snapshot, as where the runtime is made anew
        runtime.close()
        runtime = Runtime(settings(), {"probes": TableSource(RECORDS, [10])}, spool, clock, quota=unlimited)
        (after,) = runtime._registry.pipelines.values()
        assert (after.queued, after.arrived_us, after.stimulus_us) == (
            before.queued,
            before.arrived_us,
            before.stimulus_us,
        )
        assert (after.watermark_us, after.deadline_us) == (before.watermark_us, before.deadline_us)
        spool.close()
        spool = Spool(tmp_path / "spool", 2**26, sync=False)
        runtime = Runtime(settings(), {"probes": TableSource(RECORDS, [10])}, spool, clock, quota=unlimited)
        before = after
    clock.pass_s(10)
    epochs(runtime, clock, 1)
    assert counted(spool, "records_overflow")[-1] >= 200, "it has waited too long meanwhile"
    assert processed_by(spool).late == 0


def test_session_reports_the_backlog(tmp_path):
    clock = ManualClock(cpu_step_ns=1000)
    source = TableSource(probe_records(PIPELINE, 1000, span_s=100, disorder_s=0), [10])
    runtime, _ = runtime_of(tmp_path, source, settings(most_s=10.0), clock)
    (chain,) = runtime._registry.pipelines.values()
    began_us = clock.wall_us()
    assert (chain.deadline_us, chain.pending(), chain.arrived_us, chain.queued_bytes) == (None, None, None, 0)
    chain.mark(source.watermark_us(), clock.wall_us())
    deadline_us = chain.deadline_us
    assert 0 < deadline_us - source.watermark_us() <= 10 * SECOND_US
    assert chain.pending() is None, "its watermark has not come"
    while source.watermark_us() < deadline_us:
        epochs(runtime, clock, 1)
    mark, before = chain.pending()
    assert mark.watermark_us >= deadline_us
    assert mark.queued == before[0] <= chain.queued[0]
    assert chain.queued[1:] == before[1:] == [0, 0, 0]
    assert began_us <= chain.arrived_us <= mark.arrived_us < clock.wall_us()
    assert chain.queued_bytes > 0
    assert chain.sweeps == []


def test_sweeps_have_arrival_and_end_of_a_watermark(tmp_path, monkeypatch):
    host = Host(tmp_path, cores=0.5, rate_per_s=1000)
    host.epochs(8)
    (chain,) = host.runtime._registry.pipelines.values()
    found, take = [], chain.take_sweeps

    def seen(emitted_us):
        sweeps = take(emitted_us)
        found.extend(sweeps)
        return sweeps

    monkeypatch.setattr(chain, "take_sweeps", seen)
    host.epochs(25)
    deadlines = [row.deadline_us for row in found]
    assert 2 <= len(found) <= 3
    assert deadlines == list(range(deadlines[0], deadlines[-1] + 1, 10 * SECOND_US))
    for row in found:
        assert row.deadline_us <= row.arrived_us <= row.deadline_us + SECOND_US / 5
        assert row.arrived_us <= row.swept_us <= row.emitted_us
        assert row.period_us == 10 * SECOND_US
    assert any(row.queued and row.work_s > 0 for row in found)


def test_burst_is_processed_in_quieter_epochs(tmp_path):
    host = Host(tmp_path, cores=0.5, rate_per_s=1000, settings=by_hand(1, 1, 1, 1))
    host.epochs(6)
    host.source.rate_per_s = 9000  # above 1 CPU second in a second
    rows = host.epochs(1)
    host.source.rate_per_s = 1000
    rows += host.epochs(3)
    assert sum(row["o"] for row in rows) <= 90, "what was begun when the budget ended"
    assert host.reference.queued[host.runtime._config.agent, QUERY, PIPELINE.digest, "window"] == 0
    host.source.rate_per_s = 0
    host.epochs(13)
    assert rows_of(host.reference.result(QUERY, PIPELINE)) == expected_of(host.records())


def test_a_watermark_that_goes_back_is_ignored_and_said(tmp_path, monkeypatch):
    clock, source = ManualClock(), TableSource(RECORDS, [10])
    runtime, _ = runtime_of(tmp_path, source, settings(budget_cores=8.0), clock)
    epochs(runtime, clock, 2)
    held_us = source.watermark_us()
    truth = source.watermark_us
    with monkeypatch.context() as patched:
        patched.setattr(source, "watermark_us", lambda: held_us - 30 * SECOND_US)
        epochs(runtime, clock, 2)
        assert runtime.state()["sources"]["probes"]["watermark_us"] == held_us
        (fault,) = runtime.state()["sources"]["probes"]["faults"]
        assert fault == "its watermark went back (1 time): 30.0 s behind the one that holds"
    epochs(runtime, clock, 1)
    assert runtime.state()["sources"]["probes"]["faults"] == []
    assert runtime.state()["sources"]["probes"]["watermark_us"] == truth()


def test_source_without_a_watermark_for_a_while_keeps_the_last_one(tmp_path, monkeypatch):
    clock, source = ManualClock(), TableSource(RECORDS, [10])
    runtime, _ = runtime_of(tmp_path, source, settings(budget_cores=8.0), clock)
    epochs(runtime, clock, 2)
    held_us = source.watermark_us()
    monkeypatch.setattr(source, "watermark_us", lambda: 0)
    epochs(runtime, clock, 1)
    says = runtime.state()["sources"]["probes"]
    assert (says["watermark_us"], says["faults"]) == (held_us, [])
    assert ReferenceProcessor((PIPELINE,)).late == 0
