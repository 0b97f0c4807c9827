"""Agents on a testbed: the stream processor's side finishes what agents leave, once, and times every epoch."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from agent.runtime.reports import Framer
from agent.wire import FrameKind, encode_frame
from engine.dataflow.arrow.kernels import aggregate_kernel, kernel, whole
from lab.benchmarks.jarvis_real import LogLines, log_pipeline
from lab.testbed.agent_process import QUERY, EpochReceiver, secret_hash
from lab.testbed.command import main
from lab.testbed.testbed import missing_needs

needs_testbed = pytest.mark.skipif(bool(missing_needs()), reason=f"no testbed: {'; '.join(missing_needs())}")
BEGIN_US = 1_700_000_000_000_000


def lines(count: int) -> pa.Table:
    source = LogLines(count)
    source.poll(BEGIN_US, 0)
    return pa.Table.from_batches(source.poll(BEGIN_US + 1_000_000, count))


def post(name: str, epoch_us: int, table: pa.Table, partial: pa.Table) -> bytes:
    """Half of an epoch as it came, the other half as partial rows, and the mark."""
    pipeline = log_pipeline()
    framer = Framer(name, epoch_us, 1000)
    framer.tables(FrameKind.RECORDS, QUERY, pipeline.digest, 0, [table])
    framer.tables(FrameKind.PARTIALS, QUERY, pipeline.digest, pipeline.aggregate or 0, [partial])
    framer.mark(QUERY, pipeline.digest, pipeline.source_operators, epoch_us + 1_000_000, final=False)
    numbered = (replace(frame, life="first", seq=number) for number, frame in enumerate(framer.frames, start=1))
    return b"".join(map(encode_frame, numbered))


def partial_of(table: pa.Table) -> pa.Table:
    pipeline = log_pipeline()
    for k in range(pipeline.aggregate or 0):
        table = kernel(pipeline, k).run(table)
    return aggregate_kernel(pipeline).partial(table)


def test_records_and_partial_rows_make_the_result_of_the_query_run_whole():
    table = lines(2_000)
    receiver = EpochReceiver(log_pipeline(), ["one"], 1.0)
    data = post("one", BEGIN_US, table.slice(0, 900), partial_of(table.slice(900)))
    for _ in range(2):  # the second time they are duplicates
        reply = receiver.take(secret_hash("one"), data)
        assert reply.status == 200
    (window,), (epoch,) = receiver.windows, receiver.epochs
    assert window["rows"] == whole(log_pipeline(), table).num_rows
    assert window["end_us"] == BEGIN_US + 1_000_000
    assert epoch["bytes"] == len(data)
    assert epoch["latency_s"] == pytest.approx(time.time() - BEGIN_US / 1e6 - 1.0, abs=60.0)


def test_window_waits_for_every_agent_and_strangers_are_refused():
    table = lines(200)
    receiver = EpochReceiver(log_pipeline(), ["one", "two"], 1.0)
    data = post("one", BEGIN_US, table.slice(0, 100), partial_of(table.slice(100)))
    assert receiver.take(secret_hash("three"), data).status == 401
    receiver.take(secret_hash("one"), data)
    assert not receiver.windows
    receiver.take(secret_hash("two"), post("two", BEGIN_US, table, partial_of(table.slice(0, 0))))
    assert len(receiver.windows) == 1


@needs_testbed
@pytest.mark.process
def test_wrong_options_of_agents_are_told_all_at_once(capsys: pytest.CaptureFixture[str]):
    assert main(["agents", "--seconds", "1", "--shares", "0", "3"]) == 2
    told = capsys.readouterr().err
    assert "--shares has 0; allowed" in told and "--shares has 3; allowed" in told and "--seconds is 1; allowed" in told
