"""Documents of the tests: one stream with a column of every type, and the operators that a test names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import row_kernel

COLUMNS = {"at": "timestamp", "i": "int64", "j": "int64", "x": "float64", "y": "float64", "s": "string", "b": "bool"}
TIME = pa.timestamp("us", "UTC")


def document(*expressions: dict[str, Any], columns: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    operators = [{"id": f"o{i}", "expression": expression} for i, expression in enumerate(expressions)]
    source = {"id": "stream", "time": "at", "columns": columns or COLUMNS}
    return {"source": source, "operators": operators} | more


def pipeline(*expressions: dict[str, Any], **more: Any) -> Pipeline:
    return Pipeline.parse(document(*expressions, **more))


def table(**columns: list[Any]) -> pa.Table:
    """The columns given, and null in all others; timestamps in microseconds."""
    length = len(next(iter(columns.values())))
    schema = pipeline({"op": "filter", "where": "true"}).source.schema
    arrays = []
    for field in schema:
        kind = pa.int64() if field.type == TIME else field.type
        arrays.append(pa.array(columns.get(field.name, [None] * length), kind).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def computed(expression: str, **columns: list[Any]) -> list[Any]:
    """Values of an expression over columns."""
    made = row_kernel(pipeline({"op": "project", "columns": {"made": expression}}), 0)
    return made.run(table(**(columns or {"i": [1]})))["made"].to_pylist()


def rows(given: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*[given[name].to_pylist() for name in names or given.schema.names], strict=True))
