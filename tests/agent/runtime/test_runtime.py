"""Epochs of the whole runtime, single behaviours; `test_exactness` has the properties."""

from __future__ import annotations

import pyarrow as pa
import pytest

from agent.runtime import Runtime
from agent.wire import FrameKind, table_of
from tests.agent.reference import rows_of
from tests.agent.runtime.configs import query_config
from tests.agent.runtime.doubles import ManualClock, TableSource
from tests.agent.runtime.epochs import (
    ALL,
    PIPELINE,
    QUERY,
    config,
    expected_of,
    frames_of,
    processed_by,
    run_to_the_end,
    runtime_of,
    unlimited,
)
from tests.agent.runtime.pipelines import probe_records, probes_pipeline


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


def test_changed_plan_is_flushed_with_a_final_mark(tmp_path):
    other = probes_pipeline(where="err = 1")
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [10])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    at = source.position()["at"]
    runtime.apply(config(version=2, queries=(query_config(QUERY, other, ALL),)))
    run_to_the_end(runtime, source)
    reference = processed_by(spool, PIPELINE, other)
    assert reference.finals == [(QUERY, PIPELINE.digest)]
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records.slice(0, at))
    assert rows_of(reference.result(QUERY, other)) == expected_of(records.slice(at), other)


def test_removed_query_is_flushed_also_after_a_restart(tmp_path):
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


@pytest.mark.parametrize("back", [False, True])
def test_configurations_between_two_epochs_flush_a_removed_plan_once(tmp_path, back):
    """A plan leaves with a restart, and the next configuration comes before an epoch has begun; it may take it back."""
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [10])
    runtime, spool = runtime_of(tmp_path, source)
    runtime.run_epoch()
    at = records.num_rows if back else source.position_at
    other = probes_pipeline(where="err = 1")
    queries = (query_config(QUERY, other, ALL),)
    source = TableSource(records, [10])
    runtime, spool = runtime_of(tmp_path, source, config(queries=queries))
    runtime.apply(config(version=2) if back else config(version=2, queries=queries))
    run_to_the_end(runtime, source)
    reference = processed_by(spool, PIPELINE, other)
    assert rows_of(reference.result(QUERY, PIPELINE)) == expected_of(records.slice(0, at))
    assert rows_of(reference.result(QUERY, other)) == expected_of(records.slice(at), other)
    assert len(reference.finals) == (0 if back else 1)


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


def test_new_runtime_on_the_same_spool_continues(tmp_path):
    """As where the agent is moved below a relay: the process stays, its work is made anew."""
    records = probe_records(PIPELINE, 1000)
    source = TableSource(records, [10])
    runtime, spool = runtime_of(tmp_path, source)
    for _ in range(3):
        runtime.run_epoch()
    runtime.close()
    source = TableSource(records, [10])
    runtime = Runtime(config(), {"probes": source}, spool, ManualClock(), quota=unlimited)
    assert source.position()["at"] == 300
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
