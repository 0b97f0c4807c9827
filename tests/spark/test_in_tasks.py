"""Records worked off in tasks by pyarrow and by Spark's SQL: the same partials, counts and faults."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from agent.wire import batch_bytes
from engine.dataflow import Pipeline
from engine.dataflow.arrow import partial_schema, row_kernel
from spark_jobs.entries import BATCH
from spark_jobs.in_tasks import by_tasks
from spark_jobs.records import by_spark
from spark_jobs.results import Work
from tests.spark.batches import batch, differences, pipeline_of

PIPELINE = Pipeline.parse(
    pipeline_of(
        {"op": "window", "size_s": 3_000_000},
        {"op": "filter", "where": "i % 3 <> 0"},
        {"op": "map", "set": {"z": "x / 2"}},
        {"op": "aggregate", "by": ["c", "s"], "compute": {"n": "count(*)", "sum": "sum(z)", "p": "quantile(z, 0.5)"}},
    )
)


def frames_of_entries() -> tuple[pa.Table, dict[int, list[str]]]:
    """Frames that enter at every operator, and one at each whose body is another's."""
    rows, wanted = [], {}
    records = batch(1, 400, huge=False)
    for entry in range(4):
        bodies = [batch_bytes(part.combine_chunks()) for part in (records.slice(0, 150), records.slice(150))]
        bodies.append(batch_bytes(pa.table({"other": [entry]})))
        for number, body in enumerate(bodies):
            name = f"{10 * entry + number}-0"
            told = {"partition": entry % 2, "id": name, "agent": "a", "life": "l", "seq": 1, "kind": "records"}
            rows.append(told | {"query": "q", "plan": "p", "entry": entry, "epoch": 1, "extra": "{}", "body": body})
            wanted.setdefault(entry, []).append(f"{entry % 2}/{name}")
        if entry < 3:
            records = row_kernel(PIPELINE, entry).run(records)
    return pa.Table.from_pylist(rows, schema=BATCH), wanted


def test_tasks_and_sql_work_records_off_alike(spark: Any) -> None:
    table, wanted = frames_of_entries()
    frames = spark.createDataFrame(table).repartition(2).persist()
    works = Work(), Work()
    mine, my_faults = by_tasks(frames, PIPELINE, wanted, works[0])
    theirs, their_faults = by_spark(frames, PIPELINE, wanted, works[1], few=False)
    frames.unpersist()
    schema = partial_schema(PIPELINE)
    assert mine.schema == schema
    assert not (wrong := differences(mine, theirs, ["window_start", "c", "s"])), "\n".join(wrong)
    assert works[0].counts == works[1].counts
    assert my_faults.keys() == their_faults.keys() == {f"{entry % 2}/{10 * entry + 2}-0" for entry in range(4)}


def test_frames_that_are_not_wanted_are_left_alone(spark: Any) -> None:
    table, wanted = frames_of_entries()
    work = Work()
    some, _ = by_tasks(spark.createDataFrame(table), PIPELINE, {0: wanted[0][:1]}, work)
    assert work.counts[0][0] == 150
    none, faults = by_tasks(spark.createDataFrame(table), PIPELINE, {0: ["0/99-9"]}, Work())
    assert (some.num_rows > 0, none.num_rows, faults) == (True, 0, {})
