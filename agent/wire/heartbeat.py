"""Heartbeat of an agent as JSON: what it reports of itself, its queries, their scheduling and its collectors.

The console stores what it takes of it (`apps.telemetry.heartbeats`); fields may be missing, as agents are of several
releases.
"""

from __future__ import annotations

import re
from typing import Any, TypedDict

__all__ = [
    "REQUEST_ID",
    "AcknowledgingReport",
    "AgentQueryReport",
    "CollectorReport",
    "FactorChangeReport",
    "Heartbeat",
    "ScheduleReport",
    "SpoolReport",
]

#: Ids of requests: the console takes them from callers, and names an agent the one that its configuration comes of.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")


class RefinedReport(TypedDict, total=False):
    """The refined document that is in force."""

    version: int
    config: str


class RefusedReport(TypedDict, total=False):
    """The refined document that was refused last, with reasons; an unreadable one has neither number nor name."""

    version: int | None
    config: str | None
    reasons: list[str]


class AcknowledgingReport(TypedDict, total=False):
    """A report that acknowledges refined documents: of a query, or of the schedule."""

    refined: RefinedReport | None
    refused: RefusedReport | None
    reason: str


class ScheduleReport(AcknowledgingReport, total=False):
    """Scheduling of the queries that share an agent's core."""

    policy: str
    mode: str
    memory_bytes: int
    memory_bound: int
    cycle_ms: float
    starved: int


#: A change of load factors, and the time it took to settle; `from` is a word of Python's.
FactorChangeReport = TypedDict(
    "FactorChangeReport",
    {
        "epoch_us": int,
        "why": str,
        "epochs": int | None,
        "from": list[float],
        "to": list[float],
        "bytes_before": float | None,
        "bytes_after": float | None,
    },
)


class AgentQueryReport(AcknowledgingReport, total=False):
    """A query at an agent."""

    query: str
    plan: str
    state: str
    watermark_us: int | None
    load_factors: list[float]
    phase: str
    adapting: str
    z: float | None
    moves: int
    stable_epochs: int
    late: str
    changes: list[FactorChangeReport]
    epochs: list[Any]
    faults: list[str]


class CollectorReport(TypedDict, total=False):
    """A source at an agent."""

    source: str
    kind: str
    state: str
    records: int
    shed: int
    faults: list[str]


class SpoolReport(TypedDict, total=False):
    """Fill level of the spool."""

    frames: int
    bytes: int
    limit_bytes: int
    state: str


class Heartbeat(TypedDict, total=False):
    """Report of an agent every two seconds."""

    life: str
    version: str
    time: float
    uptime_s: float
    rss_bytes: int
    cpu_cores: float
    budget_cores: float
    spool: SpoolReport
    sent_seq: int
    acked_seq: int
    committed_seq: int
    config_version: int
    schedule: ScheduleReport | None
    queries: list[AgentQueryReport]
    collectors: list[CollectorReport]
    faults: list[str]
