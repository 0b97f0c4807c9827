"""An agent whose queries share its core: what its scheduler says, and epochs with windows that were swept in them."""

from __future__ import annotations

import time
from typing import Any

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.telemetry.epochs import epochs_add
from apps.telemetry.models import Agent, Assignment, LiveQuery
from engine.rollouts.measures import EpochRow, Sweep, WatermarkForecast
from tests.apps.results.rows import live_query

__all__ = ["epochs_with", "scheduling", "shared_core"]

_SECOND_US = 1_000_000


def shared_core(cluster: Cluster) -> tuple[Agent, list[LiveQuery]]:
    """edge-1 with two queries of ten-second windows; edge-2 with none, which never reported."""
    agent = Agent.objects.create(cluster=cluster, name="edge-1", budget_cores=0.4, secret_hash="edge-1")
    Agent.objects.create(cluster=cluster, name="edge-2", budget_cores=0.4, secret_hash="edge-2")
    lives = [live_query(cluster, name) for name in ("probes", "racks")]
    for live in lives:
        Assignment.objects.create(live=live, agent=agent)
    scheduling(agent, lives)
    return agent, lives


def scheduling(agent: Agent, lives: list[LiveQuery], *, late: str = "", **says: Any) -> None:
    """A heartbeat of just now; `late` is said of the first query."""
    said = {
        "policy": "klink",
        "mode": "latency",
        "memory_bytes": 4_000_000,
        "memory_bound": 8_000_000,
        "cycle_ms": 120,
        "starved": 0,
        "reason": "",
        "refined": None,
        "refused": None,
        **says,
    }
    queries = [{"query": live.key, "plan": live.plan, "state": "running", "late": ""} for live in lives]
    queries[0]["late"] = late
    agent.heartbeat = {"cpu_cores": 0.1, "config_version": 1, "schedule": said, "queries": queries}
    agent.last_seen, agent.clock_offset_s = timezone.now(), 0.0
    agent.save()


def epochs_with(
    agent: Agent, live: LiveQuery, *, windows: int = 4, delay_s: float = 0.5, slack_s: float = 1.4, **row: Any
) -> int:
    """Epochs up to now: of each window the watermark comes after `delay_s`, its result a second after its end; of the
    interval 0.2 to 0.8 s after the end. The end of the newest window swept, in microseconds since 1970."""
    now_s = int(time.time())
    newest_s = (now_s - 2) // 10 * 10
    ends = [newest_s - 10 * k for k in range(windows)]
    rows = [_row(second, ends, delay_s, slack_s, row) for second in range(ends[-1], now_s)]
    epochs_add(str(agent.pk), {live.key: rows})
    return newest_s * _SECOND_US


def _row(second: int, ends: list[int], delay_s: float, slack_s: float, row: dict[str, Any]) -> EpochRow:
    end_us = second * _SECOND_US
    arrived_us, emitted_us = end_us + round(delay_s * 1e6), end_us + _SECOND_US
    sweep = Sweep(end_us, end_us + 200_000, end_us + 800_000, arrived_us, arrived_us + 10_000, emitted_us)
    next_us = (max(end for end in ends if end <= second) + 10) * _SECOND_US
    values: dict[str, Any] = {
        "records_in": 100,
        "bytes_in": 1000,
        "bytes_sent": 450,
        "overflow": 0,
        "used_s": 0.1,
        "budget_s": 0.3,
        "idle_s": 0.2,
        "delay_s": 0.4,
        "version": None,
        "queued": 12,
        "queued_bytes": 1200,
        "slack_s": slack_s,
        "expected": WatermarkForecast(next_us + 500_000, next_us + 200_000, next_us + 800_000),
        "sweeps": (sweep,) if second in ends else (),
        "spans": ((100.0, 200.0), (600.0, 50.0)),
        **row,
    }
    return EpochRow(end_us, (1.0, 1.0, 1.0), **values)
