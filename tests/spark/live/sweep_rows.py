"""Agents whose windows are swept, and their SWEEPS rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from agent.wire import SWEEPS
from spark_jobs.statistics.history import RINGS, add_sweeps, sweep_rows
from tests.spark.live.agents import SECOND, START_US

QUERY, PLAN, FLOW = "here/q", "p1", ("here/q", "p1")
PERIOD_S = 5


def sweep(window: int, delay_s: float, **more: Any) -> dict[str, Any]:
    """A row of SWEEPS: the window with this number was swept after a delay, which may be negative."""
    deadline_us = START_US + window * PERIOD_S * SECOND
    arrived_us = deadline_us + round(delay_s * SECOND)
    row = {
        "query": QUERY,
        "plan": PLAN,
        "stream": "probes",
        "epoch_us": deadline_us,
        "deadline_us": deadline_us,
        "period_us": PERIOD_S * SECOND,
        "arrived_us": arrived_us,
        "swept_us": arrived_us + 100_000,
        "emitted_us": arrived_us + SECOND,
        "delay_s": max(delay_s, 0.0),
        "clamped": delay_s < 0,
        "queued": 10,
        "work_s": 0.01,
        "config_version": 1,
    }
    return row | more


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SWEEPS)


def seen_ms(window: int) -> int:
    """When what tells of a window arrives."""
    return (START_US + (window + 1) * PERIOD_S * SECOND) // 1000


def told(agent: str, delays: Sequence[float], first: int = 0, **more: Any) -> pa.Table:
    """Rows of a run of windows, each told when it was swept."""
    rows = [sweep_rows(table(sweep(first + i, d, **more)), agent, seen_ms(first + i)) for i, d in enumerate(delays)]
    return pa.concat_tables(rows)


def ringed(*parts: pa.Table, rings: pa.Table | None = None, last: int = 0) -> pa.Table:
    """Rings after parts were added one after the other."""
    found = RINGS.empty_table() if rings is None else rings
    for part in parts:
        found = add_sweeps(found, part, seen_ms(last))
    return found
