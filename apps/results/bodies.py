"""Rows of a window as they are kept and shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import zstandard

from agent.wire import batch_bytes, table_of

__all__ = ["as_json", "body_of", "is_number", "rows_json", "table_in"]


def body_of(table: pa.Table) -> bytes:
    """The table as a row keeps it."""
    return zstandard.compress(batch_bytes(table))


def table_in(body: bytes | memoryview) -> pa.Table:
    """What `body_of` was given; PostgreSQL hands out a memoryview."""
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


def rows_json(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Every row as {column: value}."""
    for row in table.to_pylist():
        yield {name: as_json(value) for name, value in row.items()}
