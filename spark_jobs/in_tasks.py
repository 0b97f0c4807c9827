"""Records that stay with Spark, worked off by the pyarrow translation inside its tasks.

A task unpacks its frames, runs the operators over all of them at once and gives back one row: its partial aggregates as
an Arrow stream, what the operators counted, and what is wrong with frames. Records never become rows of the JVM, which
costs several times what the operators do. Only what a task gave back counts, so one that runs twice counts once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from agent.wire import batch_bytes, table_of
from engine.dataflow.pipeline import Pipeline
from spark_jobs.operators import aggregate_of
from spark_jobs.records import BadBody, by_driver, conforming
from spark_jobs.results import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["by_tasks"]

_GIVEN = pa.schema([("partial", pa.binary()), ("counts", pa.string()), ("faults", pa.string())])
_Unpack = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def by_tasks(
    frames: DataFrame, pipeline: Pipeline, wanted: Mapping[int, Sequence[str]], work: Work
) -> tuple[pa.Table, dict[str, str]]:
    """Partial aggregates of records, and what is wrong with frames by id; parameters as of `records.by_spark`."""
    from pyspark.sql import functions as sql

    named = frames.where(sql.col("kind") == "records").select(
        sql.concat_ws("/", sql.col("partition").cast("string"), "id").alias("id"), "body"
    )
    entries = {name: entry for entry, names in wanted.items() for name in names}
    schema = "partial binary, counts string, faults string"
    given = named.mapInArrow(_work_off(json.dumps(pipeline.document), entries), schema).toArrow()
    faults: dict[str, str] = {}
    for counts, said in zip(given["counts"].to_pylist(), given["faults"].to_pylist(), strict=True):
        faults |= json.loads(said)
        for index, records_in, records_out in json.loads(counts):
            work.add(index, records_in, records_out)
    aggregate = aggregate_of(pipeline)
    parts = [table_of(body) for body in given["partial"].to_pylist() if body is not None]
    return aggregate.merge(parts or [aggregate.partial_schema.empty_table()]), faults


def _work_off(document: str, entries: Mapping[str, int]) -> _Unpack:
    """What a task does; a frame is told by its id, the operator it enters at by `entries`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipeline = _pipeline(document)
        tables: dict[int, list[pa.Table]] = defaultdict(list)
        faults: dict[str, str] = {}
        for batch in batches:
            for name, body in zip(batch["id"].to_pylist(), batch["body"], strict=True):
                if (entry := entries.get(name)) is None:
                    continue
                try:
                    table = conforming(body.as_buffer(), pipeline.operators[entry].input_schema)
                except BadBody as fault:
                    faults[name] = str(fault)
                else:
                    tables[entry].append(table)
        if tables or faults:
            yield _given(pipeline, tables, faults)

    return run


def _given(pipeline: Pipeline, tables: Mapping[int, Sequence[pa.Table]], faults: Mapping[str, str]) -> pa.RecordBatch:
    work = Work()
    partial = batch_bytes(by_driver(pipeline, tables, work)) if tables else None
    counts = [[index, *both] for index, both in work.counts.items()]
    row = {"partial": partial, "counts": json.dumps(counts), "faults": json.dumps(faults)}
    return pa.RecordBatch.from_pylist([row], schema=_GIVEN)


@lru_cache(maxsize=100)
def _pipeline(document: str) -> Pipeline:
    """The pipeline of a document; a worker keeps it from batch to batch."""
    return Pipeline.parse(json.loads(document))
