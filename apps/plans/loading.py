"""The question of a comparison as the engine takes it: what runs, and the operators of each version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.plans.models import PlanComparison
from apps.queries.arrays import arrays_of, arrival_rows
from apps.queries.bodies import with_operators
from apps.queries.engine_rows import engine_objective, engine_operator, inputs_of, private_arrivals, source_name
from apps.queries.models import Operator, Query, QueryVersion
from apps.queries.snapshots import cluster_snapshot
from engine.deployment import Deployment
from engine.elements import Operator as EngineOperator
from engine.elements import Replica, Source

__all__ = ["Question", "key_of", "question_of"]


@dataclass(frozen=True)
class Question:
    """What the engine compares. `versions` are those of the comparison by the key of their plan."""

    deployment: Deployment
    snapshot: str
    closed_nodes: tuple[str, ...]
    entered: dict[str, tuple[EngineOperator, ...]]
    versions: dict[str, QueryVersion]
    running: str | None


def key_of(version: QueryVersion) -> str:
    """A version's key in a ranking: v2."""
    return f"v{version.number}"


def question_of(comparison: PlanComparison) -> Question:
    """Take a snapshot of the comparison's cluster and read its versions as they are now."""
    query = comparison.query
    snapshot = cluster_snapshot(query.cluster)
    rows = with_operators(QueryVersion.objects.filter(query=query, number__in=comparison.versions))
    versions = {key_of(version): version for version in rows.order_by("number")}
    runs = query.name in snapshot.deployment.queries
    running = next((key for key, one in versions.items() if runs and one.pk == query.running_version_id), None)
    open_nodes = {node.id for node in snapshot.deployment.nodes} - set(snapshot.closed_nodes)
    entered = {key: _operators(query, version, open_nodes) for key, version in versions.items()}
    deployment = _with_sources(snapshot.deployment, query, list(versions.values()))
    if running is not None:
        entered[running] = tuple(deployment.operators[i] for i in deployment.operators_of(query.name))
    elif query.objective_bound_s is not None and not runs:
        deployment = replace(deployment, objectives=(*deployment.objectives, engine_objective(query)))
    return Question(deployment, snapshot.digest, snapshot.closed_nodes, entered, versions, running)


def _operators(query: Query, version: QueryVersion, open_nodes: set[str]) -> tuple[EngineOperator, ...]:
    rows = list(version.operators.all())
    return tuple(engine_operator(query.name, row, _asked(row, open_nodes), query.reads_privately) for row in rows)


def _asked(row: Operator, open_nodes: set[str]) -> tuple[Replica, ...]:
    """Where a version's document wants an operator, if all of it can go there."""
    replicas = tuple(Replica(**part) for part in row.requested)
    return replicas if all(replica.node in open_nodes for replica in replicas) else ()


def _with_sources(deployment: Deployment, query: Query, versions: Sequence[QueryVersion]) -> Deployment:
    """The deployment with the sources that only versions that do not run read."""
    private = query.reads_privately
    read = {entry.source_id for version in versions for entry in inputs_of(version) if entry.source_id}
    known = {source.id for source in deployment.sources}
    missing = [name for name in sorted(read) if source_name(name, query.name, private) not in known]
    arrays = arrays_of(arrival_rows(query.cluster, missing))
    own = []
    for name, values in arrays.items():
        if private:
            slice_s = query.cluster.slice_s
            values = private_arrivals(values, rate_share=query.rate_share, start_s=query.start_s, slice_s=slice_s)
        own.append(Source(source_name(name, query.name, private), values))
    return replace(deployment, sources=(*deployment.sources, *own)) if own else deployment
