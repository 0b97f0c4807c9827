"""A first small batch through every part, so that the first real one is not the slow one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import redis

from agent.wire import COUNTERS, FrameKind, batch_bytes
from engine.dataflow.pipeline import Pipeline
from spark_jobs.console import ConsoleClient
from spark_jobs.input.entries import ENTRY_SCHEMA, SPANS, Read
from spark_jobs.outbox import Outbox, Quarantine
from spark_jobs.plans import Plans, aggregate_of
from spark_jobs.state import StreamState
from spark_jobs.statistics.refinement import RefinementReport
from spark_jobs.statistics.subintervals import StatisticsReport
from spark_jobs.step import BatchStep, StepContext
from spark_jobs.store import StateStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["warm_up"]

_QUERY, _AGENT = "warm/up", "warm-up"
_DOCUMENT: dict[str, Any] = {
    "source": {"id": "numbers", "time": "ts", "columns": {"ts": "timestamp", "name": "string", "n": "int64"}},
    "operators": [
        {"id": "window", "expression": {"op": "window", "size_s": 1}},
        {"id": "positive", "expression": {"op": "filter", "where": "n > 0"}},
        {
            "id": "names",
            "expression": {"op": "aggregate", "by": ["name"], "compute": {"n": "count(*)", "p": "quantile(n, 0.5)"}},
        },
        {"id": "some", "expression": {"op": "filter", "where": "n > 0"}},
    ],
}


def warm_up(spark: SparkSession, folder: Path) -> None:
    """Process a made-up batch in every way; nothing of it remains or is reported."""
    shutil.rmtree(folder, ignore_errors=True)
    pipeline = Pipeline.parse(_DOCUMENT)
    batch = _batch(pipeline)
    parts = _parts(folder, lambda spans: iter([batch for _ in spans]))
    item = {"query": _QUERY, "plan": pipeline.digest, "pipeline": _DOCUMENT, "agents": [_AGENT]}
    parts.plans.adopt({"queries": [item]})
    spans = spark.createDataFrame([(0, "0-0", "1-4")], SPANS).coalesce(1)
    state = StreamState()
    statistics = StatisticsReport(0, parts.family_cpu_ns, RefinementReport(0, parts.plans.windowed_entry))
    for few in (True, False):
        step = BatchStep(state.successor(0), parts, spans, give_up=False)
        step.take_in(few=few)
        step.results()
        statistics.frames(step.state, step.works, parts.plans)
        parts.store.save(step.state)
    shutil.rmtree(folder, ignore_errors=True)


def _parts(folder: Path, read: Read) -> StepContext:
    """Everything there is, on its own folder; the addresses are never asked."""
    console, quarantine = ConsoleClient("http://127.0.0.1", ""), Quarantine(folder / "quarantine")
    plans, outbox = Plans(folder / "plans", console), Outbox(folder / "outbox", console, quarantine)
    return StepContext(StateStore(folder / "states"), plans, outbox, quarantine, redis.Redis(), read, at_hand_bytes=0)


def _batch(pipeline: Pipeline) -> pa.RecordBatch:
    rows = pa.table({"n": [1, 2], "name": ["a", "b"], "ts": pa.array([1, 2], pa.timestamp("us", "UTC"))})
    windowed = rows.append_column("window_start", pa.array([0, 0], pa.timestamp("us", "UTC")))
    assert pipeline.aggregate is not None
    entered = windowed.select(pipeline.operators[pipeline.aggregate].input_schema.names)
    counters = {field.name: "warm" if field.type == pa.string() else 0 for field in COUNTERS}
    bodies = [
        (FrameKind.RECORDS, 0, rows.select(pipeline.source.schema.names)),
        (FrameKind.PARTIALS, pipeline.aggregate, aggregate_of(pipeline).partial(entered)),
        (FrameKind.COUNTERS, 0, pa.Table.from_pylist([counters], schema=COUNTERS)),
        (FrameKind.MARK, 0, None),
    ]
    marks = json.dumps({"watermarks": {"0": 2_000_000}})
    entries = [
        {
            "partition": 0,
            "id": f"1-{number}",
            "agent": _AGENT,
            "life": "1",
            "seq": number,
            "kind": kind.value,
            "query": _QUERY,
            "plan": pipeline.digest,
            "entry": entry,
            "epoch": 1,
            "extra": marks,
            "body": batch_bytes(table.combine_chunks()) if table is not None else b"",
        }
        for number, (kind, entry, table) in enumerate(bodies, start=1)
    ]
    return pa.RecordBatch.from_pylist(entries, schema=ENTRY_SCHEMA)
