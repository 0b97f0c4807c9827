"""Updates for the console: figures that moved, and otherwise the same every five minutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

__all__ = ["MOVED", "RESEND_MS", "FlowKey", "Rows", "has_moved", "rows_by_flow", "select_updates", "sent_schema"]

RESEND_MS = 300_000
MOVED = 0.05  # of a figure: less is not worth telling

FlowKey = tuple[str, str]  #: query and plan
Rows = list[dict[str, Any]]


def sent_schema(told: pa.Schema) -> pa.Schema:
    """What a state keeps of rows that were told last."""
    return pa.schema([("query", pa.string()), ("plan", pa.string()), ("sent_ms", pa.int64()), *told])


def select_updates(
    found: Mapping[FlowKey, Rows], sent: pa.Table, now_ms: int, differs: Callable[[Rows, Rows], bool]
) -> tuple[dict[FlowKey, Rows], pa.Table]:
    """What of `found` is to be told now, and what will have been told then; what is not found is forgotten."""
    told = rows_by_flow(sent)
    fresh = {flow: rows for flow, rows in found.items() if _is_news(rows, told.get(flow), now_ms, differs)}
    kept = {flow: rows for flow, rows in told.items() if flow in found} | {
        flow: [dict(zip(("query", "plan"), flow, strict=True)) | row | {"sent_ms": now_ms} for row in rows]
        for flow, rows in fresh.items()
    }
    return fresh, pa.Table.from_pylist([row for rows in kept.values() for row in rows], schema=sent.schema)


def rows_by_flow(table: pa.Table) -> dict[FlowKey, Rows]:
    """Rows by their query and plan."""
    found: dict[FlowKey, Rows] = defaultdict(list)
    for row in table.to_pylist():
        found[row["query"], row["plan"]].append(row)
    return found


def has_moved(new: float | None, old: float | None, by: float | None = None) -> bool:
    """Whether a figure came, went, or moved by more than 5 % of itself, or of `by`."""
    if new is None or old is None:
        return new is not old
    return abs(new - old) > MOVED * abs(old if by is None else by)


def _is_news(rows: Rows, told: Rows | None, now_ms: int, differs: Callable[[Rows, Rows], bool]) -> bool:
    return not told or now_ms - told[0]["sent_ms"] >= RESEND_MS or differs(rows, told)
