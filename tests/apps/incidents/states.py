"""States of objectives, set as `objectives_refresh` stores them, and moments after a fixed one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from apps.connections.models import Connection
from apps.estimates.models import ObjectiveStatus
from apps.fleet.models import Cluster
from apps.incidents.models import Incident
from apps.incidents.refresh import incidents_refresh
from apps.queries.models import Query
from engine.measurement.causes import LatenessCause
from tests.clock import run_moment

__all__ = ["BEGIN", "STARVED", "STREAM", "after", "away_engine", "late", "well"]

BEGIN = run_moment() - timedelta(days=1)
STREAM = {"kind": "stream_behind", "seconds": 71.0, "amount": 4812.0}
STARVED = {"kind": "agent_starved", "subject": "agent-3", "amount": 0.15, "limit": 0.15}


def after(cluster: Cluster, seconds: float) -> list[Incident]:
    """Bring incidents up to date so many seconds after the beginning; all of them, oldest first."""
    incidents_refresh(cluster, now=BEGIN + timedelta(seconds=seconds))
    return list(Incident.objects.filter(cluster=cluster).order_by("pk"))


def late(
    cluster: Cluster, name: str, cause: dict[str, Any] | None = None, state: str = "breached", **fields: Any
) -> None:
    """The query is late by a cause."""
    values = {
        "state": state, "since": BEGIN, "decided_by": "measurement", "statistic": "worst", "bound_s": 15.0,
        "value_s": 78.7, "headroom_share": -4.2, "measured_s": 78.7, "results": 30, "results_needed": 3,
        "span_s": 600.0, "lacking": "", **fields,
    }  # fmt: skip
    query = Query.objects.get(cluster=cluster, name=name)
    status, _ = ObjectiveStatus.objects.update_or_create(query=query, defaults=values)
    status.set_causes([LatenessCause.parse(cause)] if cause else [])
    status.save()


def away_engine(cluster: Cluster) -> Connection:
    """A Flink whose jobs were imported; it is away since the beginning, and is polled every 15 s."""
    fields = {"state": "away", "state_since": BEGIN, "state_words": "Connection refused", "imported_at": BEGIN}
    return Connection.objects.create(cluster=cluster, name="shop", engine="flink", url="http://10.0.0.1", **fields)


def well(cluster: Cluster, name: str, **fields: Any) -> None:
    """The query holds its objective."""
    late(cluster, name, None, "holds", **{"value_s": 3.0, "measured_s": 3.0, "headroom_share": 0.8, **fields})
