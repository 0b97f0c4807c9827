"""Intervals between the beginnings of micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from apps.microbatch.models import MicroBatch

__all__ = ["BatchInterval", "intervals_of"]


@dataclass(frozen=True)
class BatchInterval:
    """A batch, and the seconds since the one before it began, in which its rows came."""

    batch: MicroBatch
    interval_s: float

    @property
    def utilisation(self) -> float:
        """Share of the interval in which the batch ran; more than 1 where it held up the next."""
        return self.batch.duration_s / self.interval_s if self.interval_s > 0 else 0.0


def intervals_of(batches: Sequence[MicroBatch]) -> list[BatchInterval]:
    """Batches that follow the one before them in the same run, oldest first."""
    return [
        BatchInterval(batch, (batch.begins_at - before.begins_at).total_seconds())
        for before, batch in pairwise(batches)
        if (batch.run_id, batch.batch) == (before.run_id, before.batch + 1)
    ]
