"""The five types of a column: their form in Arrow, and the text that is read as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NotRequired, TypedDict

import pyarrow as pa

__all__ = [
    "AGENT",
    "ARROW",
    "FLOAT_PATTERN",
    "INT_PATTERN",
    "NUMERIC",
    "TIMESTAMP_PATTERN",
    "WINDOW_START",
    "Columns",
    "ExpressionDocument",
    "PipelineDocument",
    "PipelineOperatorDocument",
    "SourceDocument",
    "TableDocument",
    "Type",
    "arrow_schema",
    "timestamp_us",
]

#: The column that a window operator adds: the beginning of the record's window.
WINDOW_START: Final = "window_start"
#: The column that tells records of agents apart where a join matches within one; no column of a document is named so.
AGENT: Final = "_agent"

#: What a text must look like to be converted to a timestamp, in UTC. RE2, Java and Python read this pattern alike.
TIMESTAMP_PATTERN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?\z"
#: What a text must look like to be converted to a number.
INT_PATTERN: Final = r"^-?[0-9]{1,19}\z"
FLOAT_PATTERN: Final = r"^-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\z"


class Type(StrEnum):
    """Type of a column or an expression. Every type has null."""

    INT64 = "int64"  #: whole numbers of 64 bits
    FLOAT64 = "float64"  #: finite numbers; there is neither NaN nor infinity
    STRING = "string"  #: Unicode text
    BOOL = "bool"
    TIMESTAMP = "timestamp"  #: microseconds since 1970 UTC


Columns = Mapping[str, Type]
NUMERIC: Final = frozenset({Type.INT64, Type.FLOAT64})
ARROW: Final[Mapping[Type, pa.DataType]] = {
    Type.INT64: pa.int64(),
    Type.FLOAT64: pa.float64(),
    Type.STRING: pa.string(),
    Type.BOOL: pa.bool_(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
}


def arrow_schema(columns: Columns) -> pa.Schema:
    """The columns as an Arrow schema."""
    return pa.schema([(name, ARROW[kind]) for name, kind in columns.items()])


_PYTHON_PATTERN = re.compile(TIMESTAMP_PATTERN.replace(r"\z", r"\Z"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_us(text: str) -> int | None:
    """Microseconds since 1970, or None for what is no instant."""
    if not _PYTHON_PATTERN.match(text):
        return None
    try:
        instant = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (instant - _EPOCH) // timedelta(microseconds=1)


#: The expression of an operator; which fields it has beside `op` goes by that.
ExpressionDocument = TypedDict(
    "ExpressionDocument",
    {
        "op": str,
        "size_s": float,
        "slide_s": float | None,
        "where": str,
        "set": dict[str, str],
        "columns": dict[str, str],
        "table": str,
        "stream": str,
        "time": str,
        "on": dict[str, str],
        "take": dict[str, str],
        "by": list[str],
        "compute": dict[str, str],
        "column": str,
        "as": str,
        "pattern": str,
        "separator": str,
        "assign": str,
        "into": Any,
        "from": float,
        "to": float,
        "width": float,
        "bounds": list[float],
        "how": str,
        "most": int,
        "within": str,
        "on_error": str,
    },
    total=False,
)


class PipelineOperatorDocument(TypedDict):
    """An operator of a pipeline document."""

    id: str
    kind: NotRequired[str]
    expression: ExpressionDocument


class SourceDocument(TypedDict):
    """The source of a pipeline document."""

    id: str
    time: str
    columns: dict[str, str]


class TableDocument(TypedDict):
    """A static table of a pipeline document."""

    columns: dict[str, str]
    rows: list[list[Any]]
    order: NotRequired[list[str]]


class PipelineDocument(TypedDict):
    """A pipeline as JSON that was read without fault (`engine.dataflow.pipeline.Pipeline`)."""

    source: SourceDocument
    tables: NotRequired[dict[str, TableDocument]]
    operators: list[PipelineOperatorDocument]
