"""Columns that lists of what people asked for share."""

from __future__ import annotations

from apps.ui.tables import Column
from apps.ui.times import time_tag

__all__ = ["asked_columns"]


def asked_columns() -> list[Column]:
    """Who asked and when, of rows with `requested_by` and `created_at`."""
    return [
        Column("by", "Asked by", lambda row: row.requested_by or "–", csv=lambda row: str(row.requested_by or "")),
        Column(
            "created",
            "Asked",
            lambda row: time_tag(row.created_at),
            sort="created_at",
            csv=lambda row: row.created_at,
            high_first=True,
        ),
    ]
