"""Stateless operators by pyarrow: functions from batch to batch, with joins of static tables and parsing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.arrow.expressions import array_of, cast, evaluator, finite
from engine.dataflow.expressions.patterns import name_groups
from engine.dataflow.operators import (
    BucketsSpec,
    FilterSpec,
    JoinSpec,
    MapSpec,
    ParseSpec,
    ProjectSpec,
    Spec,
    StaticTable,
    WindowSpec,
)
from engine.dataflow.types import ARROW, WINDOW_START, Type, timestamp_us

__all__ = ["RowFunction", "finite_columns", "lookup", "reader", "row_function"]

_BLANK: Final = " \t\n\r"


def lookup(spec: JoinSpec, schema: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The join as a function from batch to batch of `schema`."""
    assert spec.table is not None
    data = spec.table.data.combine_chunks()
    place = _finder(spec, spec.table)
    taken = {name: data[theirs].combine_chunks() for name, theirs in spec.take}

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        places = place(batch)
        if spec.inner and places.null_count:
            present = pc.is_valid(places)
            batch, places = batch.filter(present), places.filter(present)
        arrays = [taken[column].take(places) if column in taken else batch.column(column) for column in schema.names]
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


_Read = Callable[[pa.Array], tuple[list[pa.Array], pa.Array]]


def reader(spec: ParseSpec, schema: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The parse as a function from batch to batch of `schema`."""
    read = _json(spec) if spec.form == "json" else _patterns(spec)
    names = [name for name, _ in spec.into]

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns, sound = read(batch.column(spec.column))
        made = dict(zip(names, columns, strict=True))
        arrays = [made[column] if column in made else batch.column(column) for column in schema.names]
        parsed = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return parsed.filter(sound) if spec.drop_faulty else parsed

    return run


def _patterns(spec: ParseSpec) -> _Read:
    """Each distinct pattern is run once; a record is sound if one of them is found."""
    texts = list(dict.fromkeys(text for text, _ in spec.patterns))
    arrow = [name_groups(text) for text in texts]
    wanted = [
        (texts.index(text), group - 1, _converter(kind))
        for (text, group), (_, kind) in zip(spec.patterns, spec.into, strict=True)
    ]
    nothing = pa.scalar(None, pa.string())

    def read(lines: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        groups = [pc.extract_regex(lines, pattern) for pattern in arrow]
        valid = [pc.is_valid(match) for match in groups]
        columns = []
        for which, group, convert in wanted:
            values = pc.struct_field(groups[which], group)
            columns.append(
                convert(values if not groups[which].null_count else pc.if_else(valid[which], values, nothing))
            )
        return columns, reduce(pc.or_, valid)

    return read


def _converter(kind: Type) -> Callable[[pa.Array], pa.Array]:
    return cast(Type.STRING, kind) if kind != Type.STRING else lambda values: values


def _json(spec: ParseSpec) -> _Read:
    """Line by line: no reader of whole columns forgives a single bad line."""
    wanted = [(name, _JSON[kind], ARROW[kind]) for name, kind in spec.into]

    def read(lines: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        objects = [_object(line) for line in lines.to_pylist()]
        records = [{} if record is None else record for record in objects]
        columns = [pa.array([value(record.get(name)) for record in records], kind) for name, value, kind in wanted]
        return columns, pa.array([record is not None for record in objects], pa.bool_())

    return read


def _refuse(_: str) -> None:
    raise ValueError("NaN and Infinity are no JSON")


def _object(line: str | None) -> dict[str, Any] | None:
    try:
        value = None if line is None else _decode(line.lstrip(_BLANK))[0]
        if line is not None and "\\u" in line:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


#: Reads the value that a text begins with. What follows is not looked at: Spark does not either.
_decode = json.JSONDecoder(parse_constant=_refuse).raw_decode


def _whole(value: Any) -> int | None:
    fits = type(value) is int and -(2**63) <= value < 2**63
    return value if fits else None


def _number(value: Any) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) != float("inf") else None


#: A value of another type than the column's is null, whatever it could be converted to.
_JSON: Final[Mapping[Type, Callable[[Any], Any]]] = {
    Type.INT64: _whole,
    Type.FLOAT64: _number,
    Type.STRING: lambda value: value if isinstance(value, str) else None,
    Type.BOOL: lambda value: value if isinstance(value, bool) else None,
    Type.TIMESTAMP: lambda value: timestamp_us(value) if isinstance(value, str) else None,
}

RowFunction = Callable[[pa.RecordBatch], pa.RecordBatch]


def row_function(spec: Spec, schema: pa.Schema) -> RowFunction:
    """The operator as a function to batches of `schema`."""
    match spec:
        case WindowSpec():
            return _window(spec, schema)
        case FilterSpec(where):
            condition = evaluator(where)
            return lambda batch: batch.filter(array_of(condition(batch), batch))
        case MapSpec(columns) | ProjectSpec(_, columns):
            return _computed(dict(columns), schema)
        case JoinSpec():
            return lookup(spec, schema)
        case ParseSpec():
            return reader(spec, schema)
        case BucketsSpec():
            return _buckets(spec, schema)
    raise TypeError(f"{type(spec).__name__} is no stateless operator")


def _computed(columns: dict[str, Any], schema: pa.Schema) -> RowFunction:
    """A map or a project: columns of the schema are computed, or taken over."""
    made = {name: evaluator(node) for name, node in columns.items()}
    names = list(schema.names)

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [array_of(made[name](batch), batch) if name in made else batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return run


def _with(batch: pa.RecordBatch, name: str, values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in `schema`, with one column set."""
    arrays = [values if column == name else batch.column(column) for column in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _window(spec: WindowSpec, schema: pa.Schema) -> RowFunction:
    kind = pa.timestamp("us", "UTC")

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.column(spec.time).null_count:
            batch = batch.filter(pc.is_valid(batch.column(spec.time)))
        time_us = batch.column(spec.time).view(pa.int64()).to_numpy()
        start_us = np.floor_divide(time_us, spec.slide_us) * spec.slide_us  # downwards, before 1970 too
        if spec.copies > 1:
            batch = batch.take(pa.array(np.tile(np.arange(batch.num_rows), spec.copies)))
            back = np.repeat(np.arange(spec.copies) * spec.slide_us, len(start_us))
            start_us = np.tile(start_us, spec.copies) - back
        return _with(batch, WINDOW_START, pa.array(start_us).view(kind), schema)

    return run


def _buckets(spec: BucketsSpec, schema: pa.Schema) -> RowFunction:
    bounds = np.array(spec.bounds)

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.column(spec.column)
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        numbers = np.searchsorted(bounds, values, side="right")
        mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        return _with(batch, spec.into, pa.array(numbers, pa.int64(), mask=mask), schema)

    return run


def finite_columns(schema: pa.Schema) -> RowFunction | None:
    """Function that turns NaN and infinities of a source's records into null, for a pipeline's first operator."""
    floats = [i for i, column in enumerate(schema) if pa.types.is_floating(column.type)]
    if not floats:
        return None

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        for i in floats:
            batch = batch.set_column(i, batch.schema.field(i), finite(batch.column(i)))
        return batch

    return run
