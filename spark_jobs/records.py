"""The stream processor's half of a query: drained records go on where they were drained, and streams are joined.

Records of entry k join what comes out of operator k - 1, up to and with the partial aggregation.

What matches is known when both streams have passed a window's end. A record that comes later may match any that came
before, so rows stay for as long as the window's result may be issued again, and it is then joined anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from agent.wire import FrameKind, WireError, table_of
from engine.dataflow.pipeline import Pipeline
from engine.dataflow.types import AGENT, WINDOW_START
from spark_jobs.input.arrivals import Arrival
from spark_jobs.plans import aggregate_of, row_operator, stream_join_of
from spark_jobs.state import FlowState, FlowWindow, JoinWindow, SideRows, StoredTable
from spark_jobs.windows import OperatorWork, admit_partials

__all__ = [
    "BadBody",
    "JoinRows",
    "absorb_rows",
    "partial_of",
    "partial_of_records",
    "read_body",
    "read_conforming",
    "read_partials",
    "side_of",
    "take_sides",
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


def read_partials(bodies: Sequence[pa.Buffer | bytes], pipeline: Pipeline) -> list[pa.Table | None]:
    """Rows of the bodies of many PARTIALS frames of one flow; None for those that `read_body` is to say the fault of.

    What rows are to be like is looked at once for all of them, since a frame has few.
    """
    tables: list[pa.Table | None] = []
    for body in bodies:
        try:
            tables.append(read_conforming(body, aggregate_of(pipeline).partial_schema))
        except BadBody:
            tables.append(None)
    sound = [table for table in tables if table is not None]
    if sound and aggregate_of(pipeline).partial_fault(pa.concat_tables(sound)):
        return [None] * len(bodies)
    return tables


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
        if not table.schema.equals(schema):
            columns = {field.name: field.type for field in table.schema}
            allowed = {field.name: field.type for field in schema}
            if columns != allowed or len(table.schema) != len(columns):
                raise BadBody(f"columns {_words(columns)}; allowed: {_words(allowed)}")
            table = pa.Table.from_arrays(table.select(schema.names).columns, schema=schema)
        table.validate(full=True)
        if WINDOW_START in schema.names and table[WINDOW_START].null_count:
            raise BadBody(f"{WINDOW_START} is null; allowed: the beginning of a window")
    except (WireError, pa.ArrowException) as error:
        raise BadBody(str(error)) from error
    return table.replace_schema_metadata(None) if table.schema.metadata else table


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


_MAX_MATCHED = 5_000_000  # rows that a join puts out at once


@dataclass
class JoinRows:
    """Rows of both sides of a join, not yet in their windows."""

    records: list[pa.Table] = field(default_factory=list)
    others: list[pa.Table] = field(default_factory=list)


def side_of(arrival: Arrival, pipeline: Pipeline) -> str:
    """The agent whose records a frame holds, where only those of one agent match.

    Raises
    ------
    BadBody
        It holds no records.
    """
    if arrival.kind != FrameKind.RECORDS:
        raise BadBody(f"{arrival.kind} of a query that joins streams; allowed: records")
    return str(arrival.says.get("origin") or arrival.agent) if stream_join_of(pipeline).within_agent else ""


def take_sides(
    pipeline: Pipeline, places: Mapping[str, Mapping[int, Sequence[pa.Table]]], work: OperatorWork
) -> JoinRows:
    """Records by place and entry, taken as far as the join."""
    rows, join = JoinRows(), stream_join_of(pipeline)
    assert pipeline.stream_join is not None and pipeline.other_entry is not None
    for place, entries in places.items():
        own = {entry: tables for entry, tables in entries.items() if entry != pipeline.other_entry}
        if own:
            rows.records.append(_named(carry_rows(pipeline, own, pipeline.stream_join, work), place))
        if others := entries.get(pipeline.other_entry):
            rows.others.append(_named(join.side(pa.concat_tables(others)), place))
    return rows


def _named(rows: pa.Table, place: str) -> pa.Table:
    return rows.append_column(AGENT, pa.repeat(pa.scalar(place), rows.num_rows)) if place else rows


def absorb_rows(flow: FlowState, pipeline: Pipeline, came: JoinRows, step: int, arrived_ms: int) -> None:
    """Keep rows with the windows they belong to. A window without records of the source has no result."""
    for begin_us, tables in admit_partials(flow, pipeline, came.records, arrived_ms).items():
        _keep(flow.sides.setdefault(begin_us, JoinWindow()).records, tables, step)
        empty = aggregate_of(pipeline).partial_schema.empty_table()
        flow.windows.setdefault(begin_us, FlowWindow(StoredTable.of(empty), step)).step = step
    for begin_us, tables in admit_partials(flow, pipeline, came.others, arrived_ms).items():
        _keep(flow.sides.setdefault(begin_us, JoinWindow()).others, tables, step)
        if begin_us in flow.windows:
            flow.windows[begin_us].step = step


def _keep(parts: list[SideRows], tables: Iterable[pa.Table], step: int) -> None:
    """Each part is at least twice as large as the next, so that no row is written anew often."""
    rows = pa.concat_tables(tables)
    while parts and (parts[-1].num_rows < 2 * rows.num_rows or parts[-1].step == step):
        rows = pa.concat_tables([parts.pop().rows, rows])
    parts.append(SideRows.of(rows.combine_chunks(), step))


def partial_of(flow: FlowState, pipeline: Pipeline, begin_us: int, work: OperatorWork) -> pa.Table:
    """Partial aggregates of a window: its two sides joined and processed, a part of the records at a time, for each
    record may be repeated for many matches.
    """
    assert pipeline.stream_join is not None
    sides = flow.sides[begin_us]
    records = pa.concat_tables([record.rows for record in sides.records])
    others = _rows(pipeline, sides.others, like=records)
    join, index = stream_join_of(pipeline), pipeline.stream_join
    at_once = max(1, _MAX_MATCHED // join.most)
    work.add(index, records.num_rows + others.num_rows, 0)
    partials = []
    for begin in range(0, records.num_rows, at_once):
        matches = join.run(records.slice(begin, at_once), others)
        work.add(index, 0, matches.num_rows)
        partials.append(partial_of_records(pipeline, {index + 1: [matches]}, work))
    return aggregate_of(pipeline).merge(partials)


def _rows(pipeline: Pipeline, parts: Sequence[SideRows], like: pa.Table) -> pa.Table:
    if parts:
        return pa.concat_tables([part.rows for part in parts])
    empty = stream_join_of(pipeline).side_schema.empty_table()
    return empty.append_column(AGENT, pa.array([], pa.string())) if AGENT in like.column_names else empty
