"""Rows of results, to be compared."""

from __future__ import annotations

from typing import Any


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows sorted by what they are grouped by, sums of floats rounded: their order of adding differs."""
    plain = [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]
    return sorted(plain, key=lambda row: repr([row[name] for name in sorted(row)]))
