"""Joins of two streams by pyarrow: records of one window matched by equal keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.operators import StreamJoinSpec
from engine.dataflow.rows import finite_columns, row_function
from engine.dataflow.types import AGENT, WINDOW_START, Type, arrow_schema

__all__ = ["joined", "side_of", "side_schema"]


def side_schema(spec: StreamJoinSpec) -> pa.Schema:
    """Records of the other stream as they wait to be matched."""
    return arrow_schema({**dict(spec.columns), WINDOW_START: Type.TIMESTAMP})


def side_of(spec: StreamJoinSpec, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Records of the other stream in their windows; what was no number is null. A column of agents stays."""
    columns = arrow_schema(dict(spec.columns))
    finite = finite_columns(columns)
    schema = side_schema(spec)
    if AGENT in rows.schema.names:
        columns, schema = (one.append(pa.field(AGENT, pa.string())) for one in (columns, schema))
    batch = rows.select(columns.names)
    return row_function(spec.window, schema)(batch if finite is None else finite(batch))


def joined(spec: StreamJoinSpec, schema: pa.Schema, records: pa.RecordBatch, side: pa.RecordBatch) -> pa.Table:
    """Records matched with what `side_of` made of the other stream's, in no order.

    Where records of one agent alone match, both have the column `AGENT`; without it all are of one agent.
    """
    pairs = [(WINDOW_START, WINDOW_START), *spec.on]
    if spec.within_agent and AGENT in records.schema.names:
        pairs.append((AGENT, AGENT))
    mine, theirs = [list(names) for names in zip(*pairs, strict=True)]
    side = _first(side, theirs, spec)
    keys = {f"_key_{i}": side.column(name) for i, name in enumerate(theirs)}
    taken = {f"_taken_{i}": side.column(name) for i, (_, name) in enumerate(spec.take)}
    how = "inner" if spec.inner else "left outer"
    found = pa.Table.from_batches([records]).join(
        pa.table(keys | taken), mine, right_keys=list(keys), join_type=how, use_threads=False
    )
    place = {name: f"_taken_{i}" for i, (name, _) in enumerate(spec.take)}
    return pa.Table.from_arrays([found[place.get(name, name)] for name in schema.names], schema=schema)


def _first(side: pa.RecordBatch, keys: Sequence[str], spec: StreamJoinSpec) -> pa.RecordBatch:
    """The first records of every key, as many as a record may match. Those without a whole key match nothing."""
    for name in keys:
        if side.column(name).null_count:
            side = side.filter(pc.is_valid(side.column(name)))
    if not side.num_rows:
        return side
    sizes = (
        pa.Table.from_batches([side])
        .group_by(list(keys), use_threads=False)
        .aggregate([([], "count_all")])["count_all"]
    )
    if pc.max(sizes).as_py() <= spec.most:
        return side
    order = [(name, "ascending") for name in dict.fromkeys([*keys, *spec.order])]
    side = side.take(pc.sort_indices(side, sort_keys=order))
    begins = np.ones(side.num_rows, bool)
    begins[1:] = False
    for name in keys:
        codes = side.column(name).dictionary_encode().indices.to_numpy()
        begins[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(begins)
    number = np.arange(side.num_rows) - np.repeat(starts, np.diff(np.append(starts, side.num_rows)))
    return side.filter(pa.array(number < spec.most))
