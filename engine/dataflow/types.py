"""The five types of a column, and their form in Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import pyarrow as pa

__all__ = ["AGENT", "ARROW", "NUMERIC", "WINDOW_START", "Columns", "Type", "arrow_schema"]

#: The column that a window operator adds: the beginning of the record's window.
WINDOW_START: Final = "window_start"
#: The column that tells records of agents apart where a join matches within one; no column of a document is named so.
AGENT: Final = "_agent"


class Type(StrEnum):
    """What a column or an expression holds. Every type has null."""

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
