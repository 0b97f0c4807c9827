"""The stream processor's half of a query: drained records go on at the operator they were drained before.

Records of entry k join what comes out of operator k - 1, up to and with the partial aggregation. Small batches are
processed in the driver by the pyarrow translation of the operators, large ones by Spark from the SQL translation: both
mean the same, and a Spark job costs more than a few thousand records do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from agent.wire import FrameKind, WireError, table_of
from engine.dataflow import spark_sql
from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.input.arrivals import Arrival
from spark_jobs.plans import aggregate_of, row_operator
from spark_jobs.results import OperatorWork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BadBody",
    "carry_rows",
    "entry_schema",
    "join_by_sql",
    "process_at_driver",
    "process_by_sql",
    "read_body",
    "read_conforming",
]


class BadBody(ValueError):
    """A body that is no Arrow stream, or one of other columns than its entry asks for."""


def read_body(arrival: Arrival, pipeline: Pipeline) -> pa.Table:
    """The rows of a RECORDS, PARTIALS or CHECKPOINT frame.

    Raises
    ------
    BadBody
    """
    assert pipeline.aggregate is not None and arrival.body is not None
    if arrival.kind in (FrameKind.PARTIALS, FrameKind.CHECKPOINT):
        if arrival.entry != pipeline.aggregate:
            raise BadBody(f"partial aggregates of operator {arrival.entry}; allowed: {pipeline.aggregate}")
        table = read_conforming(arrival.body, aggregate_of(pipeline).partial_schema)
        if fault := aggregate_of(pipeline).partial_fault(table):
            raise BadBody(fault)
        return table
    return read_conforming(arrival.body, entry_schema(pipeline, arrival.entry))


def entry_schema(pipeline: Pipeline, entry: int) -> pa.Schema:
    """Schemas of records that enter at an operator.

    Raises
    ------
    BadBody
        Records may not enter there.
    """
    schema = pipeline.entry_schema(entry)
    if schema is None:
        allowed = [str(index) for index in range(len(pipeline.operators) + 1) if pipeline.entry_schema(index)]
        raise BadBody(f"records enter at operator {entry}; allowed: {', '.join(allowed)}")
    return schema


def read_conforming(body: bytes | pa.Buffer, *schemas: pa.Schema) -> pa.Table:
    """The table of a body, its columns those of one of `schemas`.

    Raises
    ------
    BadBody
    """
    try:
        table = table_of(body)
        columns = {field.name: field.type for field in table.schema}
        allowed = [{field.name: field.type for field in schema} for schema in schemas]
        if columns not in allowed or len(table.schema) != len(columns):
            raise BadBody(f"columns {_words(columns)}; allowed: {_words(allowed[0])}")
        schema = schemas[allowed.index(columns)]
        table = table.select(schema.names)
        table.validate(full=True)
        if WINDOW_START in schema.names and table[WINDOW_START].null_count:
            raise BadBody(f"{WINDOW_START} is null; allowed: the beginning of a window")
    except (WireError, pa.ArrowException) as error:
        raise BadBody(str(error)) from error
    return pa.Table.from_arrays(table.columns, schema=schema)


def process_at_driver(pipeline: Pipeline, entries: Mapping[int, Sequence[pa.Table]], work: OperatorWork) -> pa.Table:
    """Partial aggregates of records at the driver; an entry may have none, where all of its frames were quarantined."""
    assert pipeline.aggregate is not None
    if not any(entries.values()):
        return aggregate_of(pipeline).partial_schema.empty_table()
    rows = carry_rows(pipeline, entries, pipeline.aggregate, work)
    work.add(pipeline.aggregate, rows.num_rows, 0)
    return aggregate_of(pipeline).partial(rows)


def carry_rows(
    pipeline: Pipeline, entries: Mapping[int, Sequence[pa.Table]], until: int, work: OperatorWork
) -> pa.Table:
    """Rows that reach the operator `until`, of records that entered at it or before."""
    entries = {index: tables for index, tables in entries.items() if tables}
    rows: list[pa.Table] = []
    for index in range(min(entries, default=until), until):
        whole = pa.concat_tables([*rows, *entries.get(index, ())])
        after = row_operator(pipeline, index).run(whole)
        work.add(index, whole.num_rows, after.num_rows)
        rows = [after]
    rows = [*rows, *entries.get(until, ())]
    return pa.concat_tables(rows) if rows else pipeline.operators[until].input_schema.empty_table()


def process_by_sql(
    frames: DataFrame, pipeline: Pipeline, ids: Mapping[int, Sequence[str]], work: OperatorWork, *, few: bool
) -> tuple[pa.Table, dict[str, str]]:
    """Partial aggregates of the records that stayed with Spark, and the faults of frames by id.

    Parameters
    ----------
    frames
        The batch, with the columns of `spark_jobs.input.entries`.
    wanted
        Ids (partition/id) of the frames to take, by entry.
    few
        Whether one task does: spread over several, groups must be shuffled, which costs more than a few megabytes do.
    """
    assert pipeline.aggregate is not None
    faults = frames.sparkSession.sparkContext.accumulator({}, _FrameFaults())
    views = _Views(frames.sparkSession, pipeline)
    rows: DataFrame | None = None
    for index in range(min(ids), pipeline.aggregate + 1):
        if index in ids:
            entered = _unpacked(frames, pipeline.operators[index].input_schema, ids[index], faults)
            rows = entered if rows is None else rows.unionByName(entered)
        assert rows is not None
        if few and index == pipeline.aggregate:
            rows = rows.coalesce(1)
        rows = _counted(views.after(index, _counted(rows, f"in {index}")), f"out {index}")
    assert rows is not None
    schema = aggregate_of(pipeline).partial_schema
    partial = rows.toArrow().select(schema.names).cast(schema)
    views.drop()
    counts = _counts(rows)
    for index in range(min(ids), pipeline.aggregate + 1):
        out = counts(f"out {index}") if index < pipeline.aggregate else 0  # of an aggregate, what closed windows give
        work.add(index, counts(f"in {index}"), out)
    return partial, dict(faults.value)


def join_by_sql(
    spark: SparkSession, pipeline: Pipeline, records: pa.Table, others: pa.Table, work: OperatorWork
) -> pa.Table:
    """Partial aggregates of windows whose two sides Spark joins."""
    assert pipeline.aggregate is not None and pipeline.stream_join is not None
    views, index = _Views(spark, pipeline), pipeline.stream_join
    views.join_with(others)
    rows = spark.createDataFrame(records)
    for at in range(index, pipeline.aggregate + 1):
        rows = _counted(views.after(at, _counted(rows, f"in {at}")), f"out {at}")
    schema = aggregate_of(pipeline).partial_schema
    partial = rows.toArrow().select(schema.names).cast(schema)
    views.drop()
    counts = _counts(rows)
    for at in range(index, pipeline.aggregate + 1):
        more = others.num_rows if at == index else 0
        work.add(at, counts(f"in {at}") + more, counts(f"out {at}") if at < pipeline.aggregate else 0)
    return partial


def _counted(rows: DataFrame, name: str) -> DataFrame:
    """The same rows, counted while they pass."""
    from pyspark.sql import functions as sql

    return rows.observe(name, sql.count(sql.lit(1)).alias("n"))


def _counts(done: DataFrame) -> Callable[[str], int]:
    """Counters of the way to `done`.

    It is asked of the plan that was executed: an `Observation` hears nothing of `toArrow`.
    """
    metrics = done._jdf.queryExecution().observedMetrics()
    return lambda name: metrics.apply(name).getLong(0) if metrics.contains(name) else 0


class _Views:
    """Views under names of this flow's own, so that several may be computed side by side."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark, self._pipeline = spark, pipeline
        self._prefix = f"sluice_{uuid4().hex}"
        self._names: list[str] = []
        self._other = ""
        self._tables = {
            name: self._view(name, spark.createDataFrame(table.data)) for name, table in pipeline.tables.items()
        }

    def after(self, index: int, rows: DataFrame) -> DataFrame:
        """Output of an operator; partial aggregates where it is the aggregate."""
        view = self._view(str(index), rows)
        if index == self._pipeline.aggregate:
            return self._spark.sql(spark_sql.partial(self._pipeline, view))
        return self._spark.sql(spark_sql.select(self._pipeline, index, view, self._tables, self._other))

    def join_with(self, rows: pa.Table) -> None:
        """The other side of the join of streams."""
        self._other = self._view("other", self._spark.createDataFrame(rows))

    def drop(self) -> None:
        for name in self._names:
            self._spark.catalog.dropTempView(name)

    def _view(self, name: str, rows: DataFrame) -> str:
        view = f"{self._prefix}_{name}"
        rows.createOrReplaceTempView(view)
        self._names.append(view)
        return view


class _FrameFaults(AccumulatorParam[dict[str, str]]):
    """Faults of frames by id: a task that runs twice reports the same for the same frame."""

    def zero(self, value: dict[str, str]) -> dict[str, str]:
        return {}

    def addInPlace(self, value1: dict[str, str], value2: dict[str, str]) -> dict[str, str]:  # noqa: N802 - Spark's
        return value1 | value2


def _unpacked(
    frames: DataFrame, schema: pa.Schema, ids: Sequence[str], faults: Accumulator[dict[str, str]]
) -> DataFrame:
    """The records of some frames of a batch."""
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    wanted_ids = frozenset(ids)

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, body in zip(batch["id"].to_pylist(), batch["body"].to_pylist(), strict=True):
                if name not in wanted_ids:
                    continue
                try:
                    yield from read_conforming(body, schema).to_batches()
                except BadBody as fault:
                    faults.add({name: str(fault)})

    named = frames.where(sql.col("kind") == "records").select(
        sql.concat_ws("/", sql.col("partition").cast("string"), "id").alias("id"), "body"
    )
    return named.mapInArrow(unpack, from_arrow_schema(schema))


def _words(columns: Mapping[str, pa.DataType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())[:500] or "(none)"
