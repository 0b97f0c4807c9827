"""Updates for the console: figures that moved, and otherwise the same every five minutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from agent.wire import FrameKind
from agent.wire.schemas import compressed_bytes
from spark_jobs.plans import FlowKey

__all__ = ["RESEND_MS", "Rows", "Update", "has_moved", "rows_by_flow", "select_updates", "sent_schema"]

RESEND_MS = 300_000
MOVED = 0.05  # of a figure: less is not worth telling

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Update:
    """Content of one frame for the console, numbered when its batch is put into the outbox."""

    kind: FrameKind
    body: bytes
    query: str = ""
    plan: str = ""

    @classmethod
    def of_rows(cls, kind: FrameKind, schema: pa.Schema, flow: FlowKey, rows: Rows) -> Update:
        """Rows of one query and plan."""
        return cls(kind, compressed_bytes(pa.Table.from_pylist(rows, schema=schema)), *flow)


def sent_schema(columns: pa.Schema) -> pa.Schema:
    """Schema of the rows sent last, as a state keeps them."""
    return pa.schema([("query", pa.string()), ("plan", pa.string()), ("sent_ms", pa.int64()), *columns])


def select_updates(
    current: Mapping[FlowKey, Rows], sent: pa.Table, now_ms: int, differs: Callable[[Rows, Rows], bool]
) -> tuple[dict[FlowKey, Rows], pa.Table]:
    """Rows of `current` to send now, and the table of rows sent by then; flows not in `current` are dropped."""
    sent_rows = rows_by_flow(sent)
    fresh = {flow: rows for flow, rows in current.items() if _is_news(rows, sent_rows.get(flow), now_ms, differs)}
    kept = {flow: rows for flow, rows in sent_rows.items() if flow in current} | {
        flow: [dict(zip(("query", "plan"), flow, strict=True)) | row | {"sent_ms": now_ms} for row in rows]
        for flow, rows in fresh.items()
    }
    return fresh, pa.Table.from_pylist([row for rows in kept.values() for row in rows], schema=sent.schema)


def rows_by_flow(table: pa.Table) -> dict[FlowKey, Rows]:
    """Rows by their query and plan."""
    rows: dict[FlowKey, Rows] = defaultdict(list)
    for row in table.to_pylist():
        rows[row["query"], row["plan"]].append(row)
    return rows


def has_moved(new: float | None, old: float | None, by: float | None = None) -> bool:
    """Whether a figure came, went, or moved by more than 5 % of itself, or of `by`."""
    if new is None or old is None:
        return new is not old
    return abs(new - old) > MOVED * abs(old if by is None else by)


def _is_news(rows: Rows, sent_rows: Rows | None, now_ms: int, differs: Callable[[Rows, Rows], bool]) -> bool:
    return not sent_rows or now_ms - sent_rows[0]["sent_ms"] >= RESEND_MS or differs(rows, sent_rows)
