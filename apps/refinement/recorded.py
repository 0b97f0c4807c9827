"""Epochs as agents reported them, by agent and query: what the guard judges and checks are made on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from apps.telemetry.configs import EPOCH_S
from apps.telemetry.epochs import EpochRow, epochs_of
from apps.telemetry.models import LiveQuery

__all__ = ["EPOCH_US", "Recorded", "recorded_of", "window_us"]

EPOCH_US = round(EPOCH_S * 1e6)

#: Epochs in order of time, by agent's id and query's key.
Recorded = Mapping[str, Mapping[str, list[EpochRow]]]


def recorded_of(agents: Iterable[Any], now: datetime, last_s: float) -> Recorded:
    """What these agents reported of the last seconds; nothing while Redis is away."""
    since = now - timedelta(seconds=last_s)
    return epochs_of([str(pk) for pk in agents], round(since.timestamp() * 1e6))


def window_us(live: LiveQuery) -> tuple[int, int]:
    """From one window of a live query to the next, and how long each is; an epoch where it has none.

    Partial rows leave once in so long, and are of so long.
    """
    for operator in live.pipeline["operators"]:
        expression = operator["expression"]
        if expression.get("op") == "window":
            size = round(1e6 * expression["size_s"])
            slide = round(1e6 * (expression.get("slide_s") or expression["size_s"]))
            return max(EPOCH_US, slide), max(EPOCH_US, size)
    return EPOCH_US, EPOCH_US
