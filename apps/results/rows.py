"""Rows of a window as they are stored and shown, and the kinds of their columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import zstandard

from agent.wire import batch_bytes, table_of
from engine.dataflow.types import ExpressionDocument, PipelineDocument

__all__ = ["WINDOW", "as_json", "body_of", "group_columns", "is_number", "number_columns", "rows_json", "table_in"]


def body_of(table: pa.Table) -> bytes:
    """The table as a row keeps it."""
    return zstandard.compress(batch_bytes(table))


def table_in(body: bytes | memoryview) -> pa.Table:
    """Bytes of a stored body; PostgreSQL hands out a memoryview."""
    return table_of(zstandard.decompress(bytes(body)))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type can be compared with a threshold and drawn over time."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def as_json(value: Any) -> Any:
    """A value of a column as JSON has it: times as ISO 8601, what is no finite number as null."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def rows_json(table: pa.Table) -> Iterator[dict[str, object]]:
    """Every row as {column: value}."""
    for row in table.to_pylist():
        yield {name: as_json(value) for name, value in row.items()}


WINDOW = "window_start"


def group_columns(pipeline: PipelineDocument | None, schema: pa.Schema) -> list[str]:
    """The columns that the last aggregate grouped by, under the names they have in the result.

    Without a pipeline, or where it renamed them beyond recognition, every column that is no number.
    """
    names: list[str] = []
    for operator in pipeline["operators"] if pipeline else ():
        names = _after(operator["expression"], names)
    groups = [name for name in schema.names if name in names and name != WINDOW]
    if groups or names:
        return groups
    return [name for name in schema.names if not is_number(schema.field(name).type) and name != WINDOW]


def _after(expression: ExpressionDocument, names: list[str]) -> list[str]:
    """The group's columns behind one more operator."""
    kind = expression["op"]
    if kind == "aggregate":
        return list(expression.get("by", ()))
    if kind == "project":
        return [new for new, old in expression.get("columns", {}).items() if str(old).strip() in names]
    if kind == "map":
        return [name for name in names if name not in expression.get("set", {})]
    return names


def number_columns(schema: pa.Schema, groups: list[str]) -> list[str]:
    """The columns that can be watched and drawn."""
    return [field.name for field in schema if is_number(field.type) and field.name not in groups]
