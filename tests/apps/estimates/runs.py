"""Scored runs of a query, made without a stream processor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from apps.estimates.calibration import INTERVAL
from apps.estimates.models import AccuracyObservation
from apps.queries.models import Query
from tests.clock import run_moment

__all__ = ["NOW", "SPREAD", "make_runs"]

NOW = run_moment()
SPREAD = 0.1  # of the logarithm of latency: what the stated interval is right for
_HALF = math.exp(1.6448536 * SPREAD)


def make_runs(
    query: Query, count: int, *, spread: float = SPREAD, bias: float = 1.0, seed: int = 1, ago: int = 0, **fields: Any
) -> list[AccuracyObservation]:
    """`count` runs of an estimate of 3 s, one every 30 s up to `ago` intervals ago, shown as stated."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count, 0, -1):
        at, observed = NOW - (i + ago) * INTERVAL, 3.0 * bias * math.exp(spread * rng.standard_normal())
        low, high = 3.0 / _HALF, 3.0 * _HALF
        values = {
            "statistic": "worst", "evidence": "measured", "stated_low_s": low, "stated_high_s": high, "low_s": low,
            "high_s": high, **fields,
        }  # fmt: skip
        covered = values.pop("covered", values["low_s"] <= observed <= values["high_s"])
        row = AccuracyObservation(
            cluster=query.cluster, query=query, version=1, estimated_at=at, starts_at=at, ends_at=at + INTERVAL,
            expected_s=3.0, observed_s=observed, covered=covered, windows=3, **values,
        )  # fmt: skip
        rows.append(row)
    return AccuracyObservation.objects.bulk_create(rows)
