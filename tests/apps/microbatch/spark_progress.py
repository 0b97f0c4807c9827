"""Progress as Spark writes it, of a query that takes F + k n."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["BEGIN", "progress", "progress_of_run"]

BEGIN = datetime(2026, 11, 1, 8, tzinfo=UTC)


def progress(batch: int, rows: int, duration_ms: float, **more: Any) -> dict[str, Any]:
    """One micro-batch that begins `batch` triggers of 5 s after `BEGIN`."""
    document = {
        "id": "90a7ee2c-0f2c-4c6e-9a55-3b1f3a4f0001",
        "runId": "ab99d132-0000-4000-8000-000000000001",
        "name": "orders",
        "timestamp": (BEGIN + timedelta(seconds=5 * batch)).isoformat().replace("+00:00", "Z"),
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"addBatch": duration_ms * 0.8, "triggerExecution": duration_ms, "walCommit": 24},
        "stateOperators": [],
        "sources": [{"description": "KafkaV2[Subscribe[orders]]", "endOffset": {"orders": {"0": 3, "1": 4}}}],
        "sink": {"description": "console", "numOutputRows": -1},
    }
    return document | more


def progress_of_run(
    batches: Iterable[int], *, fixed_ms: float = 400.0, per_row_ms: float = 0.002, seed: int = 1, **more: Any
) -> list[dict[str, Any]]:
    """Micro-batches of 100 to 500 thousand rows, with 2 % of noise."""
    chance = random.Random(seed)
    found = []
    for batch in batches:
        rows = chance.randrange(100_000, 500_000)
        duration_ms = (fixed_ms + per_row_ms * rows) * chance.uniform(0.98, 1.02)
        found.append(progress(batch, rows, round(duration_ms), **more))
    return found
