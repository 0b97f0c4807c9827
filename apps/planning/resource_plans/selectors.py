"""Reading resource plans, and the inputs that a query, a Spark query or the cluster's nodes give them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from apps.core.errors import Missing
from apps.fleet.choices import ABSENT, InputOrigin
from apps.fleet.models import Cluster
from apps.microbatch.models import BatchFit, SparkQuery
from apps.microbatch.selectors import RATE_BATCHES, batches_newest, fit_in_force, newest_rate, spark_queries_visible
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
from engine.document.translation import with_nominal_costs
from engine.microbatch.settings import SparkSettings, profile_of_fit

__all__ = [
    "NodeKind",
    "PlanSource",
    "SourceInputs",
    "node_kind",
    "resource_plan_by_id",
    "resource_plans_visible",
    "spark_query_by_number",
]


def resource_plans_visible() -> QuerySet[ResourcePlan]:
    """Every resource plan without its answer, newest first."""
    rows = ResourcePlan.objects.select_related("cluster", "job", "query", "spark_query", "requested_by", "applied_by")
    return rows.defer("snapshot_parts", "result")


def resource_plan_by_id(cluster: Cluster, identity: UUID) -> ResourcePlan:
    """A cluster's resource plan by its id."""
    row = resource_plans_visible().filter(cluster=cluster, pk=identity).first()
    if row is None:
        message = f"{cluster.slug} has no resource plan {identity}"
        raise Missing(f"{message[0].upper()}{message[1:]}.", [("plan", message)])
    return row


def spark_query_by_number(cluster: Cluster, number: int) -> SparkQuery:
    """A Spark query of a cluster, or Sluice's own, by its number."""
    row = spark_queries_visible(cluster).filter(pk=number).first()
    if row is None:
        message = f"{cluster.slug} has no Spark query {number}"
        raise Missing(f"{message[0].upper()}{message[1:]}.", [("spark_query", message)])
    return row


_NOT_TOLD_APART = (
    "The fitted micro-batches were of nearly one size, or scattered too much, so fixed time and time per row are not "
    "told apart: plans for other sizes may be far off."
)


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
class SourceInputs:
    """Inputs that a source gave at one moment, and the version, nodes and fit that they were taken from."""

    inputs: dict[str, PlanInput]
    basis: dict[str, Any]


@dataclass(frozen=True)
class PlanSource:
    """Where a plan's inputs come from: a former plan, a query's statistics, a Spark query's fit, or nothing of these.

    Later ones win: the product's defaults, the nodes of `pool`, the query, the Spark query. A former plan of the same
    engine has them all. `shown` is what the source gave when a form was filled from it: rate and fit of a Spark query
    that runs are others a moment later.
    """

    cluster: Cluster
    engine: str
    query: Query | None = None
    spark_query: SparkQuery | None = None
    pool: str = ""
    plan: ResourcePlan | None = None
    shown: SourceInputs | None = None

    @cached_property
    def kind(self) -> NodeKind | None:
        """Nodes that the plan is for."""
        return node_kind(self.cluster, self.pool)

    @cached_property
    def fit(self) -> BatchFit | None:
        """The fit in force of the Spark query."""
        return fit_in_force(self.spark_query) if self.spark_query is not None else None

    @property
    def notes(self) -> list[str]:
        """Doubts about the source that every answer from it repeats."""
        fit = self.basis().get("fit")
        return [] if fit is None or fit["is_told_apart"] else [_NOT_TOLD_APART]

    @property
    def former(self) -> ResourcePlan | None:
        """The former plan, if its inputs can be taken over."""
        return self.plan if self.plan is not None and self.plan.engine == self.engine else None

    def inputs(self) -> dict[str, PlanInput]:
        """Every input that has a value, by its path in the question."""
        if self.shown is not None:
            return self.shown.inputs
        inputs = base_inputs(self.engine)
        if self.former is not None:
            return inputs | plan_inputs(self.former.question, self.former.origins)
        if self.kind is not None:
            cores = "hardware.n" if self.engine == PlanEngine.STAGE else "cores_per_executor"
            inputs[cores] = PlanInput(self.kind.cores, InputOrigin.ASSUMED)
        if self.query is not None:
            inputs |= _query_inputs(self.query, self.engine, self.kind)
        if self.spark_query is not None and self.engine == PlanEngine.MICROBATCH:
            inputs |= _spark_inputs(self.spark_query, self.fit)
        return inputs

    def basis(self) -> dict[str, Any]:
        """Version, nodes and fit that the inputs were taken from, to be told with the answer."""
        if self.shown is not None:
            return self.shown.basis
        if self.former is not None:
            return dict(self.former.basis)
        basis: dict[str, Any] = {}
        if self.query is not None:
            basis["version"] = version_current(self.query).number
        if self.query is not None and self.kind is not None:
            basis |= {"pool": self.kind.pool, "capacity_cps": self.kind.capacity_cps}
        if self.fit is not None:
            basis["fit"] = self.fit.model.to_dict()
        return basis


def _query_inputs(query: Query, engine: str, kind: NodeKind | None) -> dict[str, PlanInput]:
    """Rate and profile from the statistics of the version that runs, or else the newest."""
    version = version_current(query)
    operators = [engine_operator(query.name, row, (), private=False) for row in version.operators.all()]
    names = {entry.source_id for entry in version_inputs(version) if entry.source_id}
    arrivals = arrival_rows(query.cluster, names)
    rates = {row.source_id: row.mean_eps * query.rate_share for row in arrivals}
    slice_s = query.cluster.slice_s
    work = query_work(with_nominal_costs(operators, rates, slice_s), rates, slice_s)
    inputs: dict[str, PlanInput] = {}
    if work.rate_eps > 0:
        inputs["rate"] = PlanInput(work.rate_eps, weakest_origin(row.evidence for row in arrivals))
    if kind is not None:
        profile = stage_inputs if engine == PlanEngine.STAGE else microbatch_inputs
        inputs |= profile(work, kind.capacity_cps, kind.origin)
    return inputs


def _spark_inputs(query: SparkQuery, fit: BatchFit | None) -> dict[str, PlanInput]:
    """Settings, rate and profile of a Spark query. Its stages are told apart by assumption, so their work is assumed.

    Partitions of the source stay as they are, and those of the shuffle where a checkpoint fixes them. Sluice's own
    stream processor keeps its executors.
    """
    fixed = ["cores_per_executor", "input_partitions", "stateful"]
    fixed += ["shuffle_partitions"] if query.stateful else []
    inputs = {name: PlanInput(getattr(query, name), query.setting_origin(name)) for name in fixed}
    if query.is_own:
        inputs["max_executors"] = PlanInput(query.executors, query.setting_origin("executors"))
    if query.constraint_s is not None:
        inputs["constraint_s"] = PlanInput(query.constraint_s, InputOrigin.ASSUMED)
        inputs["statistic"] = PlanInput(query.statistic, InputOrigin.ASSUMED)
    rate = newest_rate(batches_newest(query, RATE_BATCHES))
    if rate:
        inputs["rate"] = PlanInput(rate, InputOrigin.MEASURED)
    if fit is not None:
        profile = profile_of_fit(fit.model, SparkSettings(**fit.setting_values)).to_dict()
        measured = {"sd_s"}
        inputs |= {
            f"profile.{name}": PlanInput(value, InputOrigin.MEASURED if name in measured else InputOrigin.ASSUMED)
            for name, value in profile.items()
        }
    return inputs
