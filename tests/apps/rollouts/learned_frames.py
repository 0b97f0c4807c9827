"""Frames of the refinement job, as the stream processor sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from agent.wire import REFINEMENTS, WATERMARKS, Frame, FrameKind, batch_bytes
from tests.apps.rollouts.fleet import Fleet

__all__ = ["FIGURES", "frame_of", "rows_of", "sweeping", "watermarks_of"]

#: (cost, relay, bytes before, bytes after) of window, good and rtt.
FIGURES: dict[str, tuple[float, float, float, float]] = {
    "window": (1e-6, 1.0, 86.0, 90.0),
    "good": (4e-6, 0.86, 90.0, 90.0),
    "rtt": (90e-6, 0.1, 90.0, 60.0),
}


def rows_of(
    agent: Any, figures: Mapping[str, tuple[float, float, float, float]] = FIGURES, **changes: Any
) -> list[dict[str, Any]]:
    """The rows of an agent, one for each operator."""
    rows = []
    for entry, (operator, (cost, relay, before, after)) in enumerate(figures.items()):
        row: dict[str, Any] = dict.fromkeys(REFINEMENTS.names)
        row |= {"agent": str(agent.pk), "operator": operator, "fingerprint": operator, "entry": entry}
        row |= {"config_version": 1, "epochs": 30.0, "records": 3000, "cost_s": cost, "relay": relay}
        row |= {"standard_error": 0.02, "bytes_in": before, "bytes_out": after, "records_least": 90.0}
        row |= {"records_most": 110.0, "budget_least_s": 0.1, "budget_most_s": 0.2, "input_records": 100.0}
        row |= {"budget_s": 0.2, "lo": 3, "hi": 3, "theta": 0.0, "load_factor": 1.0, "bytes_sent": 500.0}
        rows.append({**row, "measured_us": 1_700_000_000_000_000, **changes})
    return rows


def sweeping(agent: Any, **changes: Any) -> dict[str, Any]:
    """Statistics of the probes' watermarks at an agent, or at all (`*`)."""
    row: dict[str, Any] = dict.fromkeys(WATERMARKS.names)
    row |= {"agent": str(getattr(agent, "pk", agent)), "stream": "probes", "period_s": 10.0, "epochs": 12}
    row |= {"sweeps": 12, "clamped": 0, "mean_s": 1.2, "variance_s2": 0.04, "least_s": 0.9, "most_s": 1.7}
    row |= {"expected": 9, "within": 8, "latency_mean_s": 1.4, "latency_p99_s": 2.0, "event_cost_s": 95e-6}
    return row | {"measured_us": 1_700_000_000_000_000} | changes


def watermarks_of(fleet: Fleet, *rows: dict[str, Any], **fields: Any) -> Frame:
    """One frame of what is known of the fleet's query's watermarks."""
    return _frame(fleet, FrameKind.WATERMARKS, pa.Table.from_pylist(list(rows), schema=WATERMARKS), **fields)


def frame_of(fleet: Fleet, rows: list[dict[str, Any]], batch: int = 1, **fields: Any) -> Frame:
    """One frame of the fleet's query."""
    return _frame(fleet, FrameKind.REFINED, pa.Table.from_pylist(rows, schema=REFINEMENTS), batch, **fields)


def _frame(fleet: Fleet, kind: FrameKind, table: pa.Table, batch: int = 1, **fields: Any) -> Frame:
    common: dict[str, Any] = {"agent": "stream", "life": "s1", "seq": batch, "extra": {"batch": batch}}
    common |= {"query": fleet.live.key, "plan": fleet.live.plan, "body": batch_bytes(table)}
    return Frame(kind=kind, **{**common, **fields})
