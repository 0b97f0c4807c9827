"""Which columns of a result name a group, and which are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from apps.results.bodies import is_number

__all__ = ["WINDOW", "group_columns", "number_columns"]

WINDOW = "window_start"


def group_columns(pipeline: Mapping[str, Any] | None, schema: pa.Schema) -> list[str]:
    """The columns that the last aggregate grouped by, under the names they have in the result.

    Without a pipeline, or where it renamed them beyond recognition, every column that is no number.
    """
    names: list[str] = []
    for operator in (pipeline or {}).get("operators", ()):
        names = _after(operator["expression"], names)
    found = [name for name in schema.names if name in names and name != WINDOW]
    if found or names:
        return found
    return [name for name in schema.names if not is_number(schema.field(name).type) and name != WINDOW]


def _after(expression: Mapping[str, Any], names: list[str]) -> list[str]:
    """The group's columns behind one more operator."""
    kind = expression.get("op")
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
