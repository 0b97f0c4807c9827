"""The stream processor's half of a query: drained records go on at the operator they were drained before.

Records of entry k join what comes out of operator k - 1, up to and with the partial aggregation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from agent.wire import FrameKind, WireError, table_of
from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import WINDOW_START
from spark_jobs.input.arrivals import Arrival
from spark_jobs.plans import aggregate_of, row_operator
from spark_jobs.results import OperatorWork

__all__ = [
    "BadBody",
    "carry_rows",
    "entry_schema",
    "partial_of_records",
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
    assert pipeline.aggregate is not None
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


def read_conforming(body: bytes | pa.Buffer, schema: pa.Schema) -> pa.Table:
    """The table of a body, its columns those of `schema`.

    Raises
    ------
    BadBody
    """
    try:
        table = table_of(body)
        columns = {field.name: field.type for field in table.schema}
        allowed = {field.name: field.type for field in schema}
        if columns != allowed or len(table.schema) != len(columns):
            raise BadBody(f"columns {_words(columns)}; allowed: {_words(allowed)}")
        table = table.select(schema.names)
        table.validate(full=True)
        if WINDOW_START in schema.names and table[WINDOW_START].null_count:
            raise BadBody(f"{WINDOW_START} is null; allowed: the beginning of a window")
    except (WireError, pa.ArrowException) as error:
        raise BadBody(str(error)) from error
    return pa.Table.from_arrays(table.columns, schema=schema)


def partial_of_records(pipeline: Pipeline, entries: Mapping[int, Sequence[pa.Table]], work: OperatorWork) -> pa.Table:
    """Partial aggregates of records by entry; an entry may have none, where all of its frames were quarantined."""
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


def _words(columns: Mapping[str, pa.DataType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())[:500] or "(none)"
