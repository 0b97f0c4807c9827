"""Statistics frames as the stream processor makes them, and a live-looking query to tell of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

from agent.wire.frames import Frame, FrameKind
from agent.wire.schemas import STATISTICS, batch_bytes
from tests.clock import run_moment

__all__ = ["NOW", "row", "statistics_frame"]

NOW = run_moment()
_ZERO = {field.name: 0 if pa.types.is_integer(field.type) else 0.0 for field in STATISTICS}


def row(operator: str = "parse", place: str = "stream", ago_s: float = 60.0, **fields: Any) -> dict[str, Any]:
    """A row of 100 events, 80 out, 2 ms of CPU time, `ago_s` ago."""
    at = NOW - timedelta(seconds=ago_s)
    return {
        **_ZERO,
        "query": "eu-1/checkout",
        "plan": "a" * 64,
        "operator": operator,
        "fingerprint": f"fp-{operator}",
        "place": place,
        "window_us": round(at.timestamp() * 1e6),
        "width_us": 1_000_000,
        "batch": 1,
        "epochs": 1,
        "records_in": 100,
        "records_processed": 100,
        "records_out": 80,
        "cpu_ns": 2_000_000,
        "measured": True,
        **fields,
    }


def statistics_frame(*rows: dict[str, Any], seq: int = 1) -> Frame:
    table = pa.Table.from_pylist(list(rows), schema=STATISTICS)
    return Frame(FrameKind.STATISTICS, agent="stream", life="1", seq=seq, body=batch_bytes(table))
