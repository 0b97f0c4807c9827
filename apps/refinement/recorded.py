"""Epochs as agents reported them, by agent and query: what the guard judges and checks are made on.

Agents stamp them by their own clocks, of which the console knows how far each is from its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from apps.telemetry.configs import EPOCH_S
from apps.telemetry.epochs import EpochRow, epochs_since
from apps.telemetry.models import Agent, LiveQuery

__all__ = ["EPOCH_US", "Recorded", "by_our_clock", "recorded_of", "window_us"]

EPOCH_US = round(EPOCH_S * 1e6)

#: Epochs in order of time, by agent's id and query's key.
Recorded = Mapping[str, Mapping[str, list[EpochRow]]]


def recorded_of(agents: Iterable[Agent], now: datetime, last_s: float) -> Recorded:
    """What these agents reported of the last seconds, as they stamped it; nothing while Redis is away."""
    since_us = round((now - timedelta(seconds=last_s)).timestamp() * 1e6)
    return epochs_since({str(agent.pk): since_us + _ahead_us(agent) for agent in agents})


def by_our_clock(rows: Sequence[EpochRow], agent: Agent, window_us: int) -> list[EpochRow]:
    """Rows as nearly by the console's clock as whole windows allow: where windows close by the agent's stays told."""
    shift_us = round(_ahead_us(agent) / window_us) * window_us
    return [replace(row, epoch_us=row.epoch_us - shift_us) for row in rows] if shift_us else list(rows)


def _ahead_us(agent: Agent) -> int:
    return round(1e6 * (agent.clock_offset_s or 0.0))


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
