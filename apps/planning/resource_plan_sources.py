"""Inputs that a query, a Spark query, the cluster's nodes or a former plan give to a resource plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from apps.core.errors import Missing
from apps.fleet.choices import ABSENT, InputOrigin
from apps.fleet.models import Cluster
from apps.microbatch.models import BatchFit, SparkQuery
from apps.microbatch.selectors import RATE_BATCHES, batches_newest, fit_in_force, newest_rate, spark_queries_visible
from apps.planning.choices import PlanEngine
from apps.planning.models import ResourcePlan
from apps.planning.resource_plan_questions import PlanInput, base_inputs, plan_inputs
from apps.queries.arrivals.series import arrival_rows
from apps.queries.choices import OperatorKind
from apps.queries.models import Query
from apps.queries.selectors import version_current
from apps.queries.snapshots.elements import engine_operator, version_inputs
from engine.document.elements import Input, Operator
from engine.document.topology import order_of
from engine.document.translation import with_nominal_costs
from engine.microbatch.settings import SparkSettings, profile_of_fit

__all__ = [
    "NodeKind",
    "PlanSource",
    "QueryWork",
    "SourceInputs",
    "microbatch_inputs",
    "node_kind",
    "query_work",
    "spark_query_by_number",
    "stage_inputs",
    "weakest_origin",
]


def spark_query_by_number(cluster: Cluster, number: int) -> SparkQuery:
    """A Spark query of a cluster, or Sluice's own, by its number."""
    row = spark_queries_visible(cluster).filter(pk=number).first()
    if row is None:
        message = f"{cluster.slug} has no Spark query {number}"
        raise Missing(f"{message[0].upper()}{message[1:]}.", [("spark_query", message)])
    return row


#: Operators that need the events of a key together: what comes before the first of them is map, the rest reduce.
KEYED = frozenset({OperatorKind.AGGREGATE, OperatorKind.WINDOW, OperatorKind.JOIN})
_STRENGTH = (InputOrigin.DEFAULT, InputOrigin.ASSUMED, InputOrigin.PREDICTED, InputOrigin.MEASURED)
_NOT_TOLD_APART = (
    "The fitted micro-batches were of nearly one size, or scattered too much, so fixed time and time per row are not "
    "told apart: a row is counted with the most that it can take, so plans may be too large. Batches of different "
    "sizes tell."
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


class PlanBasis(TypedDict, total=False):
    """Version, nodes and fit that the inputs of a plan were taken from, as far as there are any."""

    version: int
    pool: str
    capacity_cps: float
    fit: dict[str, object]


@dataclass(frozen=True)
class SourceInputs:
    """Inputs that a source gave at one moment, and the version, nodes and fit that they were taken from."""

    inputs: dict[str, PlanInput]
    basis: PlanBasis


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

    def basis(self) -> PlanBasis:
        """Version, nodes and fit that the inputs were taken from, to be told with the answer."""
        if self.shown is not None:
            return self.shown.basis
        if self.former is not None:
            return PlanBasis(**self.former.basis)
        basis: PlanBasis = {}
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


@dataclass(frozen=True, slots=True)
class QueryWork:
    """Work of a query on either side of its shuffle.

    Attributes
    ----------
    rate_eps : float
        Events/s that its sources bring; 0 unless the arrivals of all of them are known.
    map_cycles : float
        Cycles per input event in operators before the first keyed ones.
    map_outputs : float
        Events handed on to keyed operators per input event; without keyed operators, events that leave the query.
    reduce_cycles : float
        Cycles per handed-on event in keyed operators and all that read them.
    output_bytes : float
        Mean size of a handed-on event; 0 where it is not known.
    is_keyed : bool
        Whether it has keyed operators.
    map_origin, reduce_origin : InputOrigin
        The weakest evidence of the statistics behind each.
    """

    rate_eps: float
    map_cycles: float
    map_outputs: float
    reduce_cycles: float
    output_bytes: float
    is_keyed: bool
    map_origin: InputOrigin
    reduce_origin: InputOrigin


def weakest_origin(origins: Iterable[str], fallback: InputOrigin = InputOrigin.ASSUMED) -> InputOrigin:
    """The origin that vouches least: default before assumed, predicted and measured.

    Examples
    --------
    >>> str(weakest_origin(["measured", "assumed", "measured"]))
    'assumed'
    """
    return min(map(InputOrigin, origins), key=_STRENGTH.index, default=fallback)


def query_work(operators: Sequence[Operator], rates: Mapping[str, float], subinterval_s: float) -> QueryWork:
    """Split a query's work at its first keyed operators (aggregate, window, join).

    Parameters
    ----------
    operators : sequence of Operator
        All operators of the query.
    rates : mapping
        Mean events/s by source. Sources that are not in it weigh as much as the mean of those that are.
    subinterval_s : float
        Seconds that the polynomials of operators with a model are stated for.
    """
    order, _ = order_of(operators)
    ordered = [operators[i] for i in order]
    by_id = {operator.id: operator for operator in ordered}
    inflow = _source_rates(ordered, by_id, rates)
    total = sum(inflow.values()) or 1.0
    reduces: set[str] = set()
    outflow = dict(inflow)
    map_cycles = reduce_cycles = handed = handed_bytes = 0.0
    for operator in ordered:
        if operator.kind in KEYED or any(entry.source in reduces for entry in operator.inputs):
            reduces.add(operator.id)
        outflow[operator.id] = sum(_output(entry, outflow[entry.source], subinterval_s) for entry in operator.inputs)
        cycles = sum(_cycles(entry, outflow[entry.source], subinterval_s) for entry in operator.inputs)
        if operator.id not in reduces:
            map_cycles += cycles
            continue
        reduce_cycles += cycles
        for entry in operator.inputs:
            if entry.source not in reduces:
                handed += outflow[entry.source]
                handed_bytes += outflow[entry.source] * _bytes(by_id.get(entry.source))
    if not reduces:
        read = {entry.source for operator in ordered for entry in operator.inputs}
        last = [operator for operator in ordered if operator.id not in read]
        handed = sum(outflow[operator.id] for operator in last)
        handed_bytes = sum(outflow[operator.id] * operator.bytes_per_event for operator in last)
    maps = [operator for operator in ordered if operator.id not in reduces]
    every = weakest_origin(_kinds(ordered))
    return QueryWork(
        rate_eps=sum(inflow.values()) if inflow.keys() <= rates.keys() else 0.0,
        map_cycles=map_cycles / total,
        map_outputs=handed / total,
        reduce_cycles=reduce_cycles / handed if handed else 0.0,
        output_bytes=handed_bytes / handed if handed else 0.0,
        is_keyed=bool(reduces),
        map_origin=weakest_origin(_kinds(maps), every),
        reduce_origin=weakest_origin(_kinds(operator for operator in ordered if operator.id in reduces), every),
    )


def _source_rates(
    operators: Sequence[Operator], by_id: Mapping[str, Operator], rates: Mapping[str, float]
) -> dict[str, float]:
    """Events/s of every source that is read, each once however often it is read."""
    names = {entry.source for operator in operators for entry in operator.inputs if entry.source not in by_id}
    known = [rates[name] for name in names if rates.get(name, 0.0) > 0]
    usual = sum(known) / len(known) if known else 1.0
    return {name: rates.get(name, usual) if known else usual for name in sorted(names)}


def _output(entry: Input, rate: float, subinterval_s: float) -> float:
    """Events/s put out for the events/s of one input."""
    if entry.model is None:
        return entry.selectivity * rate
    return _polynomial(entry.model.output, rate, subinterval_s)


def _cycles(entry: Input, rate: float, subinterval_s: float) -> float:
    """Cycles/s spent on the events/s of one input."""
    if entry.model is None:
        return entry.cycles_per_event * rate
    return _polynomial(entry.model.cycles, rate, subinterval_s)


def _polynomial(terms: tuple[float, float, float], rate: float, subinterval_s: float) -> float:
    events = rate * subinterval_s
    return max(terms[0] + terms[1] * events + terms[2] * events * events, 0.0) / subinterval_s


def _bytes(operator: Operator | None) -> float:
    return operator.bytes_per_event if operator is not None else 0.0


def _kinds(operators: Iterable[Operator]) -> list[str]:
    return [operator.evidence.kind if operator.evidence else InputOrigin.ASSUMED for operator in operators]


def stage_inputs(work: QueryWork, capacity_cps: float, capacity_origin: str) -> dict[str, PlanInput]:
    """Profile of a map-reduce stage: core-seconds on a core of `capacity_cps`, by path of the question."""
    inputs = {"profile.c_map": _work(work.map_cycles, work.map_origin, capacity_cps, capacity_origin)}
    if work.is_keyed:
        inputs["profile.c_red"] = _work(work.reduce_cycles, work.reduce_origin, capacity_cps, capacity_origin)
    else:
        inputs["profile.c_red"] = PlanInput(0.0, work.map_origin)
    if work.map_outputs > 0:
        inputs["profile.alpha"] = PlanInput(work.map_outputs, work.map_origin)
    if work.output_bytes > 0:
        inputs["profile.b_out"] = PlanInput(work.output_bytes, InputOrigin.ASSUMED)
    return inputs


def microbatch_inputs(work: QueryWork, capacity_cps: float, capacity_origin: str) -> dict[str, PlanInput]:
    """Profile of Spark's micro-batches; without keyed operators nothing is shuffled."""
    inputs = {
        "profile.c_in_s": _work(work.map_cycles, work.map_origin, capacity_cps, capacity_origin),
        "profile.alpha": PlanInput(work.map_outputs if work.is_keyed else 0.0, work.map_origin),
    }
    if work.is_keyed:
        inputs["profile.c_sh_s"] = _work(work.reduce_cycles, work.reduce_origin, capacity_cps, capacity_origin)
    return inputs


def _work(cycles: float, origin: InputOrigin, capacity_cps: float, capacity_origin: str) -> PlanInput:
    """Seconds of one core for some cycles, vouched for by the weaker of both figures."""
    return PlanInput(cycles / capacity_cps, weakest_origin([origin, capacity_origin]))
