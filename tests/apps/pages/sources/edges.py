"""Three agents with a live query: what they say of themselves, what was measured, how their epochs went."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.measurements.models import StatisticsWindow
from apps.telemetry.configs import fixed_settings
from apps.telemetry.epochs import epochs_add
from apps.telemetry.models import Agent, Assignment, LiveQuery
from engine.rollouts.measures import EpochRow
from tests.apps.results.rows import live_query

__all__ = ["METHOD", "adapt", "agents_at_work", "measure", "ran", "report"]

#: How a query is adapted by default, as forms have it.
METHOD = {
    "method": "scalar",
    "objective": "bytes",
    "margin": "95",
    "floor": "0.5",
    "drained_thres": "5",
    "idle_thres": "10",
    "levels": "100",
    "z_least": "0.25",
    "z_most": "4",
}


def agents_at_work(cluster: Cluster) -> LiveQuery:
    """Three agents: one steady with statistics, one that never reported, one that fell silent; all set by hand."""
    live = live_query(cluster)
    for name, factors in (("edge-1", [1.0, 1.0, 0.5]), ("edge-2", [1.0, 0.0, 0.0]), ("edge-3", [1.0, 1.0, 1.0])):
        agent = Agent.objects.create(cluster=cluster, name=name, budget_cores=0.4, secret_hash=name, config_version=3)
        Assignment.objects.create(live=live, agent=agent, settings=fixed_settings(factors))
    report("edge-1")
    report("edge-3", last_seen=timezone.now() - timedelta(minutes=6))
    measure(live, "edge-1")
    return live


def report(name: str, *, last_seen: Any = None, **says: Any) -> None:
    agent = Agent.objects.get(name=name)
    agent.heartbeat = {
        "cpu_cores": 0.1,
        "config_version": 3,
        "spool": {"frames": 2, "bytes": 1000, "limit_bytes": 10_000, "state": "ok"},
        "collectors": [{"source": "clicks", "kind": "generator", "state": "collecting", "records": 7, "shed": 0}],
        **says,
    }
    agent.last_seen, agent.clock_offset_s = last_seen or timezone.now(), 0.25
    agent.save()


def measure(live: LiveQuery, name: str) -> None:
    """Ten seconds: 100 records/s of 10 bytes; everything, then 8 of 10, then half of the rest are worked on."""
    agent = Agent.objects.get(name=name)
    came = {"records_in": 100, "records_processed": 100, "bytes_in": 1000}
    rows = {
        "window": {**came, "records_out": 100, "bytes_out": 1000},
        "answered": {**came, "records_out": 80, "bytes_out": 800},
        "pairs": {
            "records_in": 80,
            "records_processed": 40,
            "records_drained": 40,
            "records_out": 4,
            "bytes_in": 800,
            "bytes_out": 50,
            "bytes_drained": 400,
        },
    }
    for second in range(10):
        for operator, values in rows.items():
            StatisticsWindow.objects.create(
                cluster=live.query.cluster,
                query=live.query,
                plan=live.plan,
                operator=operator,
                fingerprint=operator,
                place=str(agent.pk),
                starts_at=timezone.now() - timedelta(seconds=second),
                width_s=1.0,
                batch=1,
                measured=True,
                **{"cpu_ns": 1e7, **values},
            )


def adapt(live: LiveQuery, name: str, **says: Any) -> None:
    """An agent finds its load factors by itself, and says so."""
    Assignment.objects.filter(live=live, agent__name=name).update(settings={})
    said = {
        "query": live.key,
        "plan": live.plan,
        "state": "running",
        "load_factors": [1.0, 1.0, 0.5],
        "phase": "adapt",
        "adapting": "stable",
        "reason": "it used 93% of its CPU",
        "z": 1.02,
        "refined": None,
        "refused": None,
        "moves": 3,
        "stable_epochs": 40,
        "changes": [],
        **says,
    }
    report(name, queries=[said])


def ran(live: LiveQuery, name: str, factors: Sequence[Sequence[float]], **row: Any) -> list[EpochRow]:
    """Its last epochs, one for each list of load factors, the newest just over."""
    agent = Agent.objects.get(name=name)
    now_us = int(time.time()) * 1_000_000
    rows = []
    for k, p in enumerate(factors):
        values = {
            "records_in": 100,
            "bytes_in": 1000,
            "bytes_sent": 450,
            "overflow": 0,
            "used_s": 0.1,
            "budget_s": 0.3,
            "idle_s": 0.2,
            "delay_s": 0.4,
            "version": None,
            **row,
        }
        rows.append(EpochRow(now_us - (len(factors) - k) * 1_000_000, tuple(p), **values))
    epochs_add(str(agent.pk), {live.key: rows})
    return rows
