"""Joins with static tables by pyarrow: the place of each record's key in the table, then a take."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.operators import JoinSpec, StaticTable

__all__ = ["lookup"]


def lookup(spec: JoinSpec, schema: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The join as a function from batch to batch of `schema`."""
    assert spec.table is not None
    data = spec.table.data.combine_chunks()
    place = _finder(spec, spec.table)
    taken = {name: data[theirs].combine_chunks() for name, theirs in spec.take}

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        places = place(batch)
        if spec.inner and places.null_count:
            found = pc.is_valid(places)
            batch, places = batch.filter(found), places.filter(found)
        arrays = [taken[one].take(places) if one in taken else batch.column(one) for one in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return run


def _finder(spec: JoinSpec, table: StaticTable) -> Callable[[pa.RecordBatch], pa.Array]:
    """The row of the table for every record, or null.

    Several keys become one whole number: each counts the distinct values of its column, as digits of a number do.
    """
    values = [table.data[theirs].combine_chunks() for _, theirs in spec.on]
    if len(values) == 1:
        (mine, _), (keys,) = spec.on[0], values
        return lambda batch: pc.index_in(batch.column(mine), value_set=keys, skip_nulls=True)
    digits = [keys.unique().drop_null() for keys in values]

    def code(columns: list[pa.Array]) -> pa.Array:
        total: pa.Array = pc.index_in(columns[0], value_set=digits[0]).cast(pa.int64())
        for column, digit in zip(columns[1:], digits[1:], strict=True):
            number = pc.index_in(column, value_set=digit).cast(pa.int64())
            total = pc.add(pc.multiply(total, len(digit)), number)
        return total

    codes = code(values)
    return lambda batch: pc.index_in(
        code([batch.column(mine) for mine, _ in spec.on]), value_set=codes, skip_nulls=True
    )
