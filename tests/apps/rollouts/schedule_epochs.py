"""Two queries with windows at one agent, and epochs of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apps.telemetry.epochs import epochs_add
from apps.telemetry.live_services import live_start
from apps.telemetry.models import Agent, LiveQuery
from engine.rollouts.measures import EpochRow, Sweep, WatermarkForecast
from tests.apps.telemetry.world import EXPRESSIONS, live_at, probing, running

__all__ = ["S", "agent_with_two", "epochs"]

S = 1_000_000


def agent_with_two() -> tuple[Agent, list[LiveQuery]]:
    """An agent that runs `s2s` in windows of ten seconds and `quick` in windows of two."""
    query = probing()
    first, (joined,) = live_at(query, "a1")
    quick = {**EXPRESSIONS, "window": {"op": "window", "size_s": 2}}
    second = live_start(query=running(query.cluster, quick, "quick"), agents=[joined.agent])
    return Agent.objects.select_related("cluster").get(), [first, second]


def epochs(agent: Agent, live: LiveQuery, seconds: int = 60, *, now_s: float, **fields: Any) -> list[EpochRow]:
    """Epochs up to `now_s`, one for all queries of a test: a hundred records each, windows whose watermark comes 1.2 s
    after their end.
    """
    now_us = int(now_s) * S
    slide_us = round(live.pipeline["operators"][0]["expression"]["size_s"] * S)
    rows = []
    for number in range(seconds):
        at_us = now_us + (number - seconds) * S
        row = EpochRow(at_us, (1.0, 1.0, 1.0), 100, 8600, 4000, 0, 0.02, 0.15, 0.1, 0.2, None)
        due_us = at_us - 1 * S
        if due_us % slide_us == 0:
            arrived = due_us + 1_200_000
            sweep = Sweep(due_us, due_us + S, due_us + 2 * S, arrived, arrived + 100_000, arrived + 300_000)
            row = replace(row, sweeps=(sweep,))
        forecast = WatermarkForecast(at_us + S, at_us, at_us + 2 * S)
        row = replace(row, queued=7, queued_bytes=602, slack_s=0.8, expected=forecast, spans=((0.0, 20.0),))
        rows.append(replace(row, **fields))
    epochs_add(str(agent.pk), {live.key: rows})
    return rows
