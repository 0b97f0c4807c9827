"""Reading resource plans, and the inputs that a query, a Spark query or the cluster's nodes give them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from apps.core.errors import Missing
from apps.fleet.choices import ABSENT, InputOrigin
from apps.fleet.models import Cluster
from apps.planning.choices import PlanEngine
from apps.planning.models import ResourcePlan
from apps.planning.resource_plans.profiles import (
    PlanInput,
    microbatch_inputs,
    query_work,
    stage_inputs,
    weakest_origin,
)
from apps.planning.resource_plans.questions import base_inputs, plan_inputs
from apps.queries.arrivals.series import arrival_rows
from apps.queries.models import Query
from apps.queries.selectors import version_current
from apps.queries.snapshots.elements import engine_operator, version_inputs

__all__ = ["NodeKind", "PlanSource", "node_kind", "resource_plan_by_id", "resource_plans_visible"]


def resource_plans_visible() -> QuerySet[ResourcePlan]:
    """Every resource plan without its answer, newest first."""
    rows = ResourcePlan.objects.select_related("cluster", "job", "query", "requested_by", "applied_by")
    return rows.defer("snapshot_parts", "result")


def resource_plan_by_id(cluster: Cluster, identity: UUID) -> ResourcePlan:
    """A cluster's resource plan by its id."""
    row = resource_plans_visible().filter(cluster=cluster, pk=identity).first()
    if row is None:
        message = f"{cluster.slug} has no resource plan {identity}"
        raise Missing(f"{message[0].upper()}{message[1:]}.", [("plan", message)])
    return row


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a pool as a plan sees them: all alike."""

    pool: str
    capacity_cps: float
    cores: int
    origin: InputOrigin


def node_kind(cluster: Cluster, pool: str = "") -> NodeKind | None:
    """Nodes of a pool, or of the pool with most nodes: their mean capacity, and their commonest number of cores."""
    nodes = list(cluster.nodes.exclude(state__in=ABSENT).select_related("pool"))
    names = [node.pool.name for node in nodes]
    chosen = pool if pool in names else max(sorted(set(names)), key=names.count, default="")
    own = [node for node in nodes if node.pool.name == chosen]
    if not own:
        return None
    cores = [node.cores for node in own]
    return NodeKind(
        pool=chosen,
        capacity_cps=sum(node.capacity_cps for node in own) / len(own),
        cores=max(sorted(set(cores)), key=cores.count),
        origin=weakest_origin(node.evidence for node in own),
    )


@dataclass(frozen=True)
class PlanSource:
    """Where a plan's inputs come from: a former plan, a query's statistics, or neither.

    Later ones win: the product's defaults, the nodes of `pool`, the query, the former plan.
    """

    cluster: Cluster
    engine: str
    query: Query | None = None
    pool: str = ""
    plan: ResourcePlan | None = None

    def inputs(self) -> dict[str, PlanInput]:
        """Every input that has a value, by its path in the question."""
        inputs = base_inputs(self.engine)
        if self.plan is not None and self.plan.engine == self.engine:
            return inputs | plan_inputs(self.plan.question, self.plan.origins)
        kind = node_kind(self.cluster, self.pool)
        if kind is not None:
            cores = "hardware.n" if self.engine == PlanEngine.STAGE else "cores_per_executor"
            inputs[cores] = PlanInput(kind.cores, InputOrigin.ASSUMED)
        if self.query is not None:
            inputs |= _query_inputs(self.query, self.engine, kind)
        return inputs


def _query_inputs(query: Query, engine: str, kind: NodeKind | None) -> dict[str, PlanInput]:
    """Rate and profile from the statistics of the version that runs, or else the newest."""
    version = version_current(query)
    operators = [engine_operator(query.name, row, (), private=False) for row in version.operators.all()]
    names = {entry.source_id for entry in version_inputs(version) if entry.source_id}
    arrivals = arrival_rows(query.cluster, names)
    rates = {row.source_id: row.mean_eps * query.rate_share for row in arrivals}
    work = query_work(operators, rates, query.cluster.slice_s)
    inputs: dict[str, PlanInput] = {}
    if work.rate_eps > 0:
        inputs["rate"] = PlanInput(work.rate_eps, weakest_origin(row.evidence for row in arrivals))
    if kind is not None:
        profile = stage_inputs if engine == PlanEngine.STAGE else microbatch_inputs
        inputs |= profile(work, kind.capacity_cps, kind.origin)
    return inputs
