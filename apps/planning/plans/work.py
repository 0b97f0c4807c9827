"""Work of a comparison job: load the versions, rank them with the engine, store the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.models import PlanComparison
from apps.planning.plans.review import version_samples
from apps.planning.plans.services import comparison_store, version_digest, version_key
from apps.queries.arrivals.series import arrival_rows, load_arrays
from apps.queries.bodies import with_operators
from apps.queries.models import Operator, Query, QueryVersion
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
from engine.plans.comparison import compare
from engine.plans.ranking import OneNode

__all__ = ["PlanQuestion", "compare_plans", "load_question"]

_SLICES_PER_SUBINTERVAL = 4  # snapshots are at a quarter of a subinterval


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
            _operators(query, version, open_nodes), rates, deployment.subinterval_s, deployment.nodes
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
            slice_s = query.cluster.slice_s
            values = private_arrivals(values, rate_share=query.rate_share, start_s=query.start_s, slice_s=slice_s)
        own.append(engine_source(row, values, source_name(row.source_id, query.name, private)))
    return replace(deployment, sources=(*deployment.sources, *own)) if own else deployment


def compare_plans(report: JobReporter) -> JobOutcome:
    """Rank the plans of the job's comparison."""
    rows = PlanComparison.objects.select_related("query__cluster", "query__running_version")
    comparison = rows.get(pk=report.job.params["comparison"])
    report(0.0, "Taking a snapshot")
    asked = load_question(comparison)
    capacity = comparison.capacity_cps
    answer = compare(
        asked.deployment,
        comparison.query.name,
        asked.entered,
        running=asked.running,
        node=OneNode(capacity) if capacity else None,
        hop_cycles=comparison.hop_cycles,
        places=str(comparison.places),
        closed=asked.closed_nodes,
        mace_every=_SLICES_PER_SUBINTERVAL,
        progress=report,
    )
    base = asked.versions[asked.running or answer["plans"][0]["base"] or list(asked.versions)[-1]]
    fields = {
        "result": answer,
        "snapshot": asked.snapshot,
        "running": asked.versions[asked.running].number if asked.running else None,
        "basis": {key: version_digest(version) for key, version in asked.versions.items()},
        "samples": version_samples(base),
        "drift_digest": version_digest(base),
    }

    def store(job: Job) -> JobOutcome:
        row = comparison_store(comparison=comparison, **fields)
        page = f"/c/{row.query.cluster.slug}/queries/{row.query.name}/plans/"
        facts = {"finding": answer["finding"]["kind"], "recommended": row.recommended, "plans": len(answer["plans"])}
        return JobOutcome(facts, page, f"/api/v1/plan-comparisons/{row.pk}")

    return JobOutcome(store=store)
