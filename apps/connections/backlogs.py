"""Events that wait before the sources of a Flink, asked beside its counters, and lag of consumer groups of Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from apps.connections.rounds import Answers, EngineLook, ask
from apps.connections.transport import EngineAway, EngineClient, EngineRefused
from apps.fleet.models import Cluster
from apps.queries.backlogs import backlogs_measure
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput, Query
from engine.connectors.kafka import GroupLag
from engine.connectors.pending_records import pending_paths
from engine.connectors.picture import Finding
from engine.words import listed

__all__ = ["ask_waiting", "lags_store"]


def ask_waiting(client: EngineClient, look: EngineLook) -> None:
    """Add to a look what waits before the sources of each job; what cannot be asked is left out."""
    for job in look.picture.jobs:
        answers: Answers = {}
        try:
            for vertex in job.vertices:
                if vertex.is_source:
                    names = ask(client, f"/jobs/{job.id}/vertices/{vertex.id}/subtasks/metrics")
                    answers |= {path: ask(client, path) for path in pending_paths(job.id, vertex.id, names)}
        except (EngineAway, EngineRefused):
            continue
        look.add_waiting(job.id, answers)


def lags_store(cluster: Cluster, lags: Iterable[GroupLag], read_at: datetime) -> list[Finding]:
    """Store lag of consumer groups as the backlog of the queries that read their topics; returns what was found.

    A group is a query's where it has the query's name, or where only one running query reads the topic.
    """
    readers = _readers(cluster)
    findings, events = [], dict[int, dict[str, float]]()
    for lag in lags:
        for topic in lag.topics:
            count, queries = lag.events_of(topic), readers.get(topic, {})
            named = [query for query in queries.values() if query.name == lag.group]
            chosen = named or list(queries.values())
            if count is not None and len(chosen) == 1:
                events.setdefault(chosen[0].pk, {})[topic] = count
                message = f"{count:,.0f} events of {topic} wait for {chosen[0].name}, by the lag of {lag.group}."
                findings.append(Finding("found", "backlog", lag.group, message))
            elif count is not None and len(chosen) > 1:
                names = listed(sorted(query.name for query in chosen))
                message = (
                    f"{names} read {topic}, and none is called {lag.group}: for whom its events wait is not known. "
                    "A query with the name of the group would be."
                )
                findings.append(Finding("missing", "backlog_unassigned", lag.group, message))
    by_key = {query.pk: query for queries in readers.values() for query in queries.values()}
    for key, counts in events.items():
        backlogs_measure(query=by_key[key], events=counts, read_at=read_at)
    return findings


def _readers(cluster: Cluster) -> Mapping[str, dict[int, Query]]:
    """Running queries by the sources that they read."""
    rows = OperatorInput.objects.filter(
        operator__version__running_as__cluster=cluster, operator__version__running_as__state=QueryState.RUNNING
    ).exclude(source_id="")
    readers: dict[str, dict[int, Query]] = {}
    for row in rows.select_related("operator__version__query"):
        query = row.operator.version.query
        readers.setdefault(row.source_id, {})[query.pk] = query
    return readers
