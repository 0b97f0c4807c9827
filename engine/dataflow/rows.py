"""Stateless operators by pyarrow: functions from batch to batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.evaluation import array_of, evaluator
from engine.dataflow.lookup import lookup
from engine.dataflow.numbers import finite
from engine.dataflow.operators import (
    BucketsSpec,
    FilterSpec,
    JoinSpec,
    MapSpec,
    ParseSpec,
    ProjectSpec,
    Spec,
    WindowSpec,
)
from engine.dataflow.reading import reader
from engine.dataflow.types import WINDOW_START

__all__ = ["RowFunction", "finite_columns", "row_function"]

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
    arrays = [values if one == name else batch.column(one) for one in schema.names]
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
    """What a source sends may hold NaN and infinities: the first operator of a pipeline reads them as null."""
    floats = [i for i, column in enumerate(schema) if pa.types.is_floating(column.type)]
    if not floats:
        return None

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        for i in floats:
            batch = batch.set_column(i, batch.schema.field(i), finite(batch.column(i)))
        return batch

    return run
