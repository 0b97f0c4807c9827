"""Checkpoints of open windows: after the agent's death they equal its processed records."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agent.runtime.query.windows import Checkpoints, OpenWindows
from agent.wire import MAX_BODY_BYTES, FrameKind, table_of
from engine.dataflow.arrow.kernels import aggregate_kernel
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.configs import query_config
from tests.agent.runtime.doubles import TableSource
from tests.agent.runtime.epochs import (
    PIPELINE,
    QUERY,
    by_hand,
    config,
    expected_of,
    frames_of,
    run_to_the_end,
    runtime_of,
)
from tests.agent.runtime.pipelines import probe_records, probes_pipeline


def take(reference: ReferenceProcessor, spool) -> None:
    for seq, data in list(spool.unsent(2**30)):
        reference.take(data)
        spool.acknowledged(seq)


@pytest.mark.parametrize("slide_s", [10, 2])
@pytest.mark.parametrize("restarts", [False, True])
def test_agent_that_dies_after_a_checkpoint_loses_nothing(tmp_path, slide_s, restarts):
    pipeline = probes_pipeline(slide_s=slide_s)
    records = probe_records(pipeline, 4000, disorder_s=3)
    settings = config(
        queries=(query_config(QUERY, pipeline, by_hand(0.6, 1, 1, 0.9)),), checkpoint_share=1.0, sub_epochs=3
    )
    reference, behind, epochs = ReferenceProcessor([pipeline]), 0, 0
    source = TableSource(records, [37])
    runtime, spool = runtime_of(tmp_path, source, settings)
    while not source.done:
        if restarts and epochs % 5 == 4:
            spool.close()
            source = TableSource(records, [37])
            runtime, spool = runtime_of(tmp_path, source, settings)
        runtime.run_epoch()
        epochs += 1
        take(reference, spool)
        for last, copies in reference.checkpoints.values():
            if last == reference.epochs[-1] and copies:
                behind += 1
                dead = reference.result(QUERY, pipeline, dead=True)
                assert rows_of(dead) == expected_of(records.slice(0, source.position_at), pipeline)
    assert behind > 5
    runtime.run_epoch()
    take(reference, spool)
    assert rows_of(reference.result(QUERY, pipeline)) == expected_of(records, pipeline), "copies are not counted"
    assert not any(copy.num_rows for _, copies in reference.checkpoints.values() for copy in copies)


def test_copies_stay_within_their_share_of_what_is_sent(tmp_path):
    records = probe_records(PIPELINE, 20_000, span_s=60)
    source = TableSource(records, [50])
    runtime, spool = runtime_of(tmp_path, source, config(0.5, 1, 1, 1, checkpoint_share=0.1))
    run_to_the_end(runtime, source)
    sizes = {kind: sum(len(frame.body) for frame in frames_of(spool) if frame.kind is kind) for kind in FrameKind}
    assert 0 < sizes[FrameKind.CHECKPOINT] <= 0.1 * (sizes[FrameKind.RECORDS] + sizes[FrameKind.PARTIALS])


def test_checkpoint_share_of_zero_sends_no_checkpoints(tmp_path):
    source = TableSource(probe_records(PIPELINE, 4000), [50])
    runtime, spool = runtime_of(tmp_path, source, config(0.5, 1, 1, 1, checkpoint_share=0.0))
    run_to_the_end(runtime, source)
    assert all(frame.kind is not FrameKind.CHECKPOINT for frame in frames_of(spool))


def test_removed_window_removes_its_checkpoint(tmp_path):
    source = TableSource(probe_records(PIPELINE, 4000), [100])
    runtime, spool = runtime_of(tmp_path, source, config(0.5, 1, 1, 1, checkpoint_share=1.0))
    reference = ReferenceProcessor([PIPELINE])
    runtime.run_epoch()
    take(reference, spool)
    assert reference.checkpoints
    runtime.apply(config(queries=()))
    runtime.run_epoch()
    take(reference, spool)
    assert not reference.checkpoints


def test_a_large_copy_travels_in_parts():
    rows = 60_000
    kernel = aggregate_kernel(PIPELINE)
    table = PIPELINE.operators[PIPELINE.aggregate].input_schema.empty_table()
    columns = {name: pa.nulls(rows, table.schema.field(name).type) for name in table.column_names}
    columns["dst"] = pa.array([f"host-{i:060d}" for i in range(rows)])
    columns["window_start"] = pa.array([0] * rows, pa.int64()).cast(table.schema.field("window_start").type)
    windows = OpenWindows(kernel.merge, 10_000_000, 2**40)
    windows.add(kernel.partial(pa.table(columns, table.schema)))
    windows.end_epoch(0, 0)
    checkpoints = Checkpoints()
    assert checkpoints.due(windows, 1.0) == []
    checkpoints.sent(100 * 2**20)
    bodies = checkpoints.due(windows, 1.0)
    assert len(bodies) > 1
    assert max(map(len, bodies)) <= MAX_BODY_BYTES
    assert sum(table_of(body).num_rows for body in bodies) == rows
    assert checkpoints.due(windows, 1.0) == [], "nothing was sent since"
