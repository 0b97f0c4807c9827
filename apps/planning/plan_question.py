"""Question of a plan comparison: the versions as they are now, on a snapshot of the cluster, and their samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from apps.planning.models import PlanComparison
from apps.queries.arrivals.series import arrival_rows, load_arrays
from apps.queries.bodies import version_body, with_operators
from apps.queries.models import Operator, OperatorInput, Query, QueryVersion
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.snapshots.elements import (
    engine_objective,
    engine_operator,
    engine_source,
    private_arrivals,
    source_name,
    version_inputs,
)
from engine.document.deployment import Deployment
from engine.document.elements import Operator as EngineOperator
from engine.document.elements import Replica
from engine.document.translation import source_rates, with_nominal_costs

__all__ = ["InputSamples", "PlanQuestion", "load_question", "version_digest", "version_key", "version_samples"]


def version_digest(version: QueryVersion) -> str:
    """SHA-256 of a version's operators with their statistics."""
    text = json.dumps(version_body(version), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def version_key(version: QueryVersion) -> str:
    """A version's key in a ranking: v2."""
    return f"v{version.number}"


class InputSamples(TypedDict):
    """The batches of one input of an operator."""

    operator: str
    input: str
    batches: list[dict[str, float]]


def version_samples(version: QueryVersion) -> list[InputSamples]:
    """The batches of every input of a version with fetched operators; a stream that is read twice is numbered."""
    return [
        {"operator": row.name, "input": name, "batches": entry.batches}
        for row in version.operators.all()
        for name, entry in _named(row.inputs.all())
    ]


def _named(entries: Iterable[OperatorInput]) -> Iterator[tuple[str, OperatorInput]]:
    seen: set[str] = set()
    for entry in entries:
        name = entry.upstream.name if entry.upstream else entry.source_id
        yield (f"{name} ({entry.position + 1})" if name in seen else name), entry
        seen.add(name)


@dataclass(frozen=True)
class PlanQuestion:
    """Input of the engine. `versions` are those of the comparison by the key of their plan."""

    deployment: Deployment
    snapshot: str
    closed_nodes: tuple[str, ...]
    entered: dict[str, tuple[EngineOperator, ...]]
    versions: dict[str, QueryVersion]
    running: str | None


def load_question(comparison: PlanComparison) -> PlanQuestion:
    """Take a snapshot of the comparison's cluster and read its versions as they are now."""
    query = comparison.query
    snapshot = cluster_snapshot(query.cluster)
    rows = with_operators(QueryVersion.objects.filter(query=query, number__in=comparison.versions))
    versions = {version_key(version): version for version in rows.order_by("number")}
    runs = query.name in snapshot.deployment.queries
    running = next((key for key, version in versions.items() if runs and version.pk == query.running_version_id), None)
    open_nodes = {node.id for node in snapshot.deployment.nodes} - set(snapshot.closed_nodes)
    deployment = _with_sources(snapshot.deployment, query, list(versions.values()))
    rates = source_rates(deployment.sources, deployment.subinterval_s)
    entered = {
        key: with_nominal_costs(
            _operators(query, version, open_nodes),
            rates,
            deployment.subinterval_s,
            deployment.nodes,
            processor=deployment.stream_processor,
        )
        for key, version in versions.items()
    }
    if running is not None:
        entered[running] = tuple(deployment.operators[i] for i in deployment.operators_of(query.name))
    elif query.objective_bound_s is not None and not runs:
        deployment = replace(deployment, objectives=(*deployment.objectives, engine_objective(query)))
    return PlanQuestion(deployment, snapshot.digest, snapshot.closed_nodes, entered, versions, running)


def _operators(query: Query, version: QueryVersion, open_nodes: set[str]) -> tuple[EngineOperator, ...]:
    rows = list(version.operators.all())
    return tuple(
        engine_operator(query.name, row, _requested_replicas(row, open_nodes), query.reads_privately) for row in rows
    )


def _requested_replicas(row: Operator, open_nodes: set[str]) -> tuple[Replica, ...]:
    """Replicas that a version's document asks for; none if a node is closed."""
    replicas = tuple(Replica(**part) for part in row.requested)
    return replicas if all(replica.node in open_nodes for replica in replicas) else ()


def _with_sources(deployment: Deployment, query: Query, versions: Sequence[QueryVersion]) -> Deployment:
    """The deployment with the sources that only versions that do not run read."""
    private = query.reads_privately
    read = {entry.source_id for version in versions for entry in version_inputs(version) if entry.source_id}
    source_ids = {source.id for source in deployment.sources}
    missing = [name for name in sorted(read) if source_name(name, query.name, private) not in source_ids]
    rows = arrival_rows(query.cluster, missing)
    arrays = load_arrays(rows)
    own = []
    for row in rows:
        values = arrays[row.source_id]
        if private:
            values = private_arrivals(values, query.rate_share)
        own.append(engine_source(row, values, source_name(row.source_id, query.name, private)))
    return replace(deployment, sources=(*deployment.sources, *own)) if own else deployment
