"""Records processed in tasks by pyarrow and by Spark's SQL: the same partials and counts; order of senders."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from agent.wire import batch_bytes
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import aggregate_kernel, partial_schema, row_kernel
from spark_jobs.input.arrivals import Arrival, arrivals_of, order_frames
from spark_jobs.input.entries import ENTRY_SCHEMA
from spark_jobs.records import process_by_sql
from spark_jobs.results import OperatorWork
from spark_jobs.tasks import SenderOrder, TaskResult, process_in_tasks
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
    """Frames that enter at every operator, and one at each whose body is another's; ids of the good ones by entry."""
    rows: list[dict[str, Any]] = []
    wanted: dict[int, list[str]] = {}
    records = batch(1, 400, huge=False)
    for entry in range(4):
        bodies = [batch_bytes(part.combine_chunks()) for part in (records.slice(0, 150), records.slice(150))]
        for body in (*bodies, batch_bytes(pa.table({"other": [entry]}))):
            rows.append(row(len(rows) + 1, entry=entry, body=body))
            if body in bodies:
                wanted.setdefault(entry, []).append(f"0/{rows[-1]['id']}")
        if entry < 3:
            records = row_kernel(PIPELINE, entry).run(records)
    return pa.Table.from_pylist(rows, schema=ENTRY_SCHEMA), wanted


def row(seq: int, **more: Any) -> dict[str, Any]:
    told = {"partition": 0, "id": f"{seq}-0", "agent": "a", "life": "l", "seq": seq, "kind": "records", "query": "q"}
    return told | {"plan": PIPELINE.digest, "entry": 0, "epoch": 1, "extra": "{}", "body": b""} | more


def merged(results: list[TaskResult]) -> pa.Table:
    return aggregate_kernel(PIPELINE).merge([result.partial for result in results])


def counts(results: list[TaskResult]) -> dict[int, list[int]]:
    work = OperatorWork()
    for result in results:
        for index, records_in, records_out in result.counts:
            work.add(index, records_in, records_out)
    return work.counts


def test_tasks_and_sql_give_the_same_partials(spark: Any) -> None:
    table, wanted = frames_of_entries()
    frames = spark.createDataFrame(table).coalesce(1).persist()
    rest, results = process_in_tasks(frames, iter, [PIPELINE], {}, [])
    work = OperatorWork()
    theirs, faults = process_by_sql(frames, PIPELINE, wanted, work, few=False)
    frames.unpersist()
    mine = merged(results)
    assert mine.schema == partial_schema(PIPELINE)
    assert not (wrong := differences(mine, theirs, ["window_start", "c", "s"])), "\n".join(wrong)
    assert (counts(results), faults) == (work.counts, {})
    kept = {arrival.id for arrival in arrivals_of(rest) if arrival.body is not None}
    assert kept == {f"0/{seq}-0" for seq in (3, 6, 9, 12)}
    assert rest.num_rows == table.num_rows
    assert rest["size"].to_pylist() == [len(body) for body in table["body"].to_pylist()]


def test_frame_that_a_task_leaves_keeps_its_body(spark: Any) -> None:
    body = batch_bytes(batch(1, 30, huge=False).combine_chunks())
    rows = [
        row(5, body=body),  # counted before
        row(6, body=body),
        row(7, kind="mark", body=b"mark"),
        row(8, body=body, plan="another"),
        row(9, body=body),  # waits in the driver already
        row(10, body=body),
        row(10, body=body, id="11-0"),  # came twice
        row(12, body=body),  # behind a gap
    ]
    frames = spark.createDataFrame(pa.Table.from_pylist(rows, schema=ENTRY_SCHEMA)).coalesce(1)
    waits = Arrival("0/9-0", "a", "l", 9, "records", "q", PIPELINE.digest, 0, 1, "{}", body, len(body))
    rest, results = process_in_tasks(frames, iter, [PIPELINE], {("a", "l"): 5}, [waits])
    assert counts(results)[0][0] == 2 * 30
    assert {arrival.seq: arrival.body for arrival in arrivals_of(rest) if arrival.body} == {
        7: b"mark",
        8: body,
        12: body,
    }
    none, nothing = process_in_tasks(frames.where("seq > 11"), iter, [PIPELINE], {}, [])
    assert (none["body"].to_pylist(), nothing) == ([body], [])


def test_a_frame_that_is_due_in_a_task_is_due_in_the_driver_and_counts_once() -> None:
    """Frames lost, repeated and out of order in every way: a body is used once, by a task or by the driver."""
    draw = random.Random(7)
    for _ in range(300):
        position, waiting, counted = 0, [], []
        for step in range(6):
            order = SenderOrder.of({("a", "l"): position} if position else {}, waiting)
            numbers = [max(1, position + draw.randint(-2, 6)) for _ in range(draw.randint(0, 8))]
            dues = [order.is_due(("a", "l"), seq) for seq in numbers]
            arrivals = [
                Arrival(f"0/1-{n}", "a", "l", seq, "records", "q", "p", 0, 1, "", None if due is not False else b"b", 1)
                for n, (seq, due) in enumerate(zip(numbers, dues, strict=True))
            ]
            in_task = [seq for seq, due in zip(numbers, dues, strict=True) if due]
            ordered = order_frames([*waiting, *arrivals], {("a", "l"): position} if position else {}, step)
            in_driver = [frame.seq for frame in ordered.due if frame.body is not None]
            assert sorted([*in_task, *in_driver]) == sorted(frame.seq for frame in ordered.due)
            assert all(frame.body is not None for frame in ordered.early)
            counted += [*in_task, *in_driver]
            position, waiting = ordered.positions.get(("a", "l"), 0), ordered.early
        assert len(counted) == len(set(counted))
