"""Micro-batches of Sluice's own stream processor."""

from __future__ import annotations

from datetime import datetime

from apps.microbatch.models import MicroBatch, SparkQuery

__all__ = ["own_batch"]


def own_batch(at: datetime, batch: int = 7, *, duration_s: float = 0.6, trigger_s: float = 2.0) -> MicroBatch:
    """One that is no warm-up, of the query that the stream processor registers."""
    query, _ = SparkQuery.objects.get_or_create(origin="own", defaults={"name": "Stream processor"})
    return MicroBatch.objects.create(
        query=query,
        run_id="run",
        batch=batch,
        begins_at=at,
        rows=1000,
        duration_s=duration_s,
        trigger_s=trigger_s,
        is_warm_up=False,
    )
