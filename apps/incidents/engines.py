"""Engines that are away for so long that it is an incident, and the words of their cause."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from apps.connections.choices import ConnectionState
from apps.connections.models import Connection
from apps.connections.selectors import connections_away
from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from engine.measurement.causes import ENGINE_AWAY, LatenessCause

__all__ = ["AWAY_POLLS", "engine_cause", "engines_back", "engines_lost"]

AWAY_POLLS = 4  #: an engine is away for so many of its polls before it is an incident: a restart takes a moment

#: Between a change of the connection and its next poll it is not known yet whether the engine is back.
_NOT_BACK = (ConnectionState.AWAY, ConnectionState.REFUSED, ConnectionState.NEW)


def engines_lost(cluster: Cluster, now: datetime) -> list[Connection]:
    """Connections of a cluster whose jobs were imported, and that answer nothing legible for longer than some polls."""
    rows = connections_away(cluster).filter(imported_at__isnull=False).defer("findings", "look")
    return [row for row in rows if (now - row.state_since).total_seconds() > AWAY_POLLS * row.poll_interval_s]


def engines_back(cluster: Cluster, names: list[str]) -> Mapping[str, str]:
    """Of connections by name, those of which nobody waits for an answer any more, each with the reason."""
    states = dict(cluster.connections.filter(name__in=names).values_list("name", "state"))
    reasons = {
        name: "It answers again." if states.get(name) == ConnectionState.CONNECTED else "It is not asked any more."
        for name in names
    }
    return {name: reason for name, reason in reasons.items() if states.get(name) not in _NOT_BACK}


def engine_cause(connection: Connection, now: datetime) -> LatenessCause:
    """Cause of an incident: since when the engine is away, and how many running queries go on with old statistics."""
    return LatenessCause(
        ENGINE_AWAY,
        connection.name,
        seconds=(now - connection.state_since).total_seconds(),
        amount=connection.jobs.filter(query__state=QueryState.RUNNING).count(),
        state=connection.state,
    )
