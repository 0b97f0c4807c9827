"""Plans of one query ranked by mean costs, judged against each other on common samples, and estimated as realised."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from engine.arrays import FloatArray, statistic_or_worst
from engine.document.cycles import common_unit
from engine.document.deployment import Deployment
from engine.document.elements import Batch, Constraints, Node, Operator, Replica
from engine.document.open_hosts import OpenHosts
from engine.document.topology import DataflowGraph
from engine.estimation.estimate import estimate
from engine.estimation.flow import Flow, flow
from engine.estimation.loads import sink_events
from engine.estimation.mace import Mace
from engine.placement.greedy import place
from engine.plans.answer import OneNode, PlanDifference, RankedPlan, Ranking
from engine.plans.related_queries import related_queries, restrict_to_queries
from engine.plans.rules import Dataflow, Operators
from engine.plans.samples import EVENTS
from engine.records import Sentence

__all__ = [
    "JudgedDifference",
    "QueryPlan",
    "Z",
    "difference_of",
    "jackknife",
    "rank",
    "standard_error",
]

Progress = Callable[[float, str], None]
PLACES = ("keep", "free")


class JudgedDifference(Protocol):
    """A plan as compared here: its mean path, the events of its sample, its mean path without each group."""

    @property
    def flow_s(self) -> float: ...
    @property
    def sample_events(self) -> float: ...
    @property
    def replicates(self) -> FloatArray: ...


def difference_of(plan: JudgedDifference, other: JudgedDifference, floor_s: float) -> PlanDifference:
    """Compare two plans; `floor_s` is the uncertainty from the width of a slice.

    The standard error of a sample of n events falls as 1 / sqrt(n). With |D| - floor left to be seen by Z errors, a
    sample (Z error / (|D| - floor))^2 times as large tells the plans apart, should the difference stay as it is.
    """
    seconds = plan.flow_s - other.flow_s
    room = abs(seconds) - floor_s
    error = _error(plan.replicates, other.replicates)
    if room <= 0.0:
        return PlanDifference(seconds, error, False, True, None)
    if error is None:
        return PlanDifference(seconds, None, False, False, EVENTS)
    if Z * error < room:
        return PlanDifference(seconds, error, True, False, None)
    events = max(plan.sample_events, other.sample_events)
    return PlanDifference(seconds, error, False, False, _rounded_up(events * ((Z * error / room) ** 2 - 1.0)))


def _error(one: FloatArray, other: FloatArray) -> float | None:
    """Standard error of the difference: paired where both have the same groups, else as of independent samples."""
    if not len(one) and not len(other):
        return None
    if len(one) == len(other):
        return float(standard_error(one - other))
    parts = [float(standard_error(values)) for values in (one, other) if len(values)]
    return math.hypot(*parts)


def _rounded_up(events: float) -> int:
    """At least 1, to two digits: the figure is no more certain than that."""
    if events < 1.0:
        return 1
    step = 10 ** max(0, math.floor(math.log10(events)) - 1)
    return int(math.ceil(events / step) * step)


@dataclass(frozen=True)
class QueryPlan:
    """A plan to compare: `key` is its name in the answer, `assumed` what its statistics take for granted."""

    key: str
    operators: Operators
    assumed: tuple[Sentence, ...] = ()


def rank(
    deployment: Deployment,
    query: str,
    plans: Sequence[QueryPlan],
    *,
    running: str | None = None,
    node: OneNode | None = None,
    places: str = "keep",
    closed: Collection[str] = (),
    mace_every: int = 1,
    progress: Progress | None = None,
) -> Ranking:
    """Estimate plans of one query and rank them.

    Parameters
    ----------
    deployment : Deployment
        What runs, the query's present plan with it or not, and every source that a plan reads.
    query : str
        The query; its objective in `deployment` says by which statistic plans are judged (the worst case without one).
    plans : sequence of Plan
        At least one, each with a key of its own.
    running : str, optional
        Key of the plan that runs.
    node : OneNode, optional
        Judge on this one node instead of within the deployment.
    places : {"keep", "free"}
        Within the deployment: operators that run already stay where they are and others are placed greedily; or
        every operator of every plan is placed anew.
    closed : collection of str
        Nodes that take nothing new.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    progress : callable, optional
        Told the share done and the step in words.

    Raises
    ------
    InfeasibleError
        If a plan's operators fit no node.
    DocumentError
        If a plan reads what is not there.
    """
    if places not in PLACES:
        raise ValueError(f"places is {places!r}; allowed: keep or free")
    tell = progress or (lambda share, step: None)
    objective = deployment.objective_of(query)
    statistic = objective.statistic if objective else "worst"
    ranked = []
    for i, plan in enumerate(plans):
        tell(i / len(plans), f"Plan {plan.key}, {i + 1} of {len(plans)}")
        whole = (
            _alone(deployment, query, plan, node)
            if node
            else _within(deployment, query, plan, places, closed, mace_every)
        )
        ranked.append(_estimate_plan(whole, query, plan, statistic, mace_every))
    floor_s = deployment.subinterval_s
    # what is below the resolution is equally fast; the cheaper plan leaves more room for others
    ranked.sort(key=lambda plan: (max(plan.flow_s, floor_s), plan.cost_cps))
    by_key = {plan.key: plan for plan in ranked}
    own = by_key.get(running or "")
    against = {plan.key: difference_of(plan, own, floor_s) for plan in ranked if own is not None and plan is not own}
    faster = [key for key, difference in against.items() if difference.told_apart and difference.seconds < 0]
    return Ranking(
        query,
        statistic,
        objective.bound_s if objective else None,
        floor_s,
        running,
        faster[0] if faster else None,
        tuple(ranked),
        {plan.key: difference_of(plan, ranked[0], floor_s) for plan in ranked[1:]},
        against,
    )


def _alone(deployment: Deployment, query: str, plan: QueryPlan, node: OneNode) -> Deployment:
    """The plan on one core, with the sources it reads."""
    read = {entry.source for operator in plan.operators for entry in operator.inputs}
    here = (Replica("node"),)
    return replace(
        deployment,
        sources=tuple(source for source in deployment.sources if source.id in read),
        nodes=(Node("node", capacity_cps=node.capacity_cps, cycle_unit=common_unit(deployment.nodes)),),
        links=(),
        operators=tuple(replace(op, replicas=here, query=query) for op in plan.operators),
        objectives=tuple(objective for objective in deployment.objectives if objective.query == query),
        priorities={},
        plans={},
        constraints=Constraints(),
    )


def _within(
    deployment: Deployment, query: str, plan: QueryPlan, places: str, closed: Collection[str], coarse: int
) -> Deployment:
    """The plan in the place of what runs, and of all that runs only what shares a server with it."""
    present = {op.id: op.replicas for op in deployment.operators if op.query == query} if places == "keep" else {}
    operators = [op for op in deployment.operators if op.query != query]
    hosts = OpenHosts(deployment, closed)
    operators += [replace(op, query=query, replicas=_places(op, present, places, hosts)) for op in plan.operators]
    limits = _limits(deployment.constraints, {op.id for op in operators})
    # extended by nothing, it is checked as a whole
    whole = replace(deployment, operators=tuple(operators), constraints=limits, plans={}).extended()
    placement = place(whole, closed=closed, coarse=coarse)
    whole = whole.with_placement(placement) if placement else whole
    return restrict_to_queries(whole, related_queries(whole, deployment, [query]))


def _limits(limits: Constraints, there: Collection[str]) -> Constraints:
    """Limits restricted to the operators of the deployment."""
    return replace(
        limits,
        pin={name: node for name, node in limits.pin.items() if name in there},
        forbid={name: nodes for name, nodes in limits.forbid.items() if name in there},
        apart=tuple(group for group in limits.apart if set(group) <= set(there)),
        may_split=None if limits.may_split is None else tuple(name for name in limits.may_split if name in there),
    )


def _places(
    operator: Operator, present: dict[str, tuple[Replica, ...]], places: str, hosts: OpenHosts
) -> tuple[Replica, ...]:
    """Place of an operator now; else that of the first part of a fused one, or the place its plan asks for, if open."""
    if places == "free":
        return ()
    if now := present.get(operator.id):
        return now
    wanted = present.get(operator.id.split("+")[0]) or operator.replicas
    return wanted if hosts.take(operator.id, wanted) else ()


def _estimate_plan(whole: Deployment, query: str, plan: QueryPlan, statistic: str, mace_every: int) -> RankedPlan:
    estimated = estimate(whole, mace_every=mace_every)
    probed = estimated.probed.deployment
    weights = sink_events(probed)[query]
    report, runs = estimated.queries[query], jackknife(probed)
    replicates = np.array([run.statistic_of(query, weights, statistic) for run in runs])
    own = [op for op in whole.operators if op.query == query]
    sampled = max((_events(op) for op in own), default=0.0)
    at, worst = _mace(estimated.mace, query, statistic, weights, mace_every)
    horizon_s = whole.subintervals * whole.subinterval_s
    rates = {source.id: float(source.arrivals.sum()) / horizon_s for source in whole.sources}
    return RankedPlan(
        key=plan.key,
        estimate_s=report.estimate_s,
        low_s=report.low_s,
        high_s=report.high_s,
        flow_s=estimated.flow.statistic_of(query, weights, statistic),
        mace_s=at,
        mace_worst_s=worst,
        cost_cps=Dataflow(own).cost(rates),
        sample_events=sampled,
        assumed=plan.assumed,
        placement={op.id: op.replicas for op in own},
        state=report.state,
        scheduling=report.gap_answer,
        replicates=replicates if sampled else np.zeros(0),
    )


def _events(operator: Operator) -> float:
    """The most events behind an input of the operator that has batches."""
    counts = [sum(b.events for b in entry.batches) for entry in operator.inputs if entry.is_sampled]
    return max(counts, default=0.0)


def _mace(result: Mace, query: str, statistic: str, weights: FloatArray, every: int) -> tuple[float, float]:
    """Mace over the servers that the query uses: at the statistic across time, and at its largest."""
    deployment = result.deployment
    starts, members = deployment.closures
    i = deployment.queries.index(query)
    servers = np.unique(deployment.layout.rep_server[members[starts[i] : starts[i + 1]]])
    series = result.mace_s[servers].max(axis=0)
    padded = np.concatenate([weights, np.zeros(-len(weights) % every)]).reshape(-1, every).sum(axis=1)
    return statistic_or_worst(series, padded, statistic), float(series.max())


Z = 3.0  # standard errors from which on a difference is told apart
_GROUPS = 8


def jackknife(deployment: Deployment, *, slices: int = 1) -> tuple[Flow, ...]:
    """Flow (by input) once per group of batches left out; empty where no input has two batches."""
    graphs = (_without_group(deployment, g) for g in range(_groups(deployment)))
    return tuple(flow(deployment, slices=slices, graph=graph, by_input=True) for graph in graphs)


def standard_error(replicates: Sequence[float] | FloatArray) -> FloatArray:
    """Jackknife standard error over the first axis of `replicates`, shape (G, ...)."""
    values = np.asarray(replicates, dtype=np.float64)
    count = len(values)
    return np.asarray(np.sqrt((count - 1) / count * ((values - values.mean(axis=0)) ** 2).sum(axis=0)))


def _groups(deployment: Deployment) -> int:
    most = max((len(e.batches) for operator in deployment.operators for e in operator.inputs), default=0)
    return min(most, _GROUPS) if most >= 2 else 0


def _without_group(deployment: Deployment, group: int) -> DataflowGraph:
    """The dataflow with every input's statistics as if group `group` of its batches had not been sampled.

    The given selectivity and cost are scaled by the ratio of the sample's means, so that an interval belongs to the
    numbers that were estimated with even where they are not exactly the sample's.
    """
    graph = deployment.graph
    scale = np.ones((2, len(graph.in_stream)))
    inputs = (entry for operator in deployment.operators for entry in operator.inputs)
    for k, entry in enumerate(inputs):
        if entry.is_sampled:
            scale[:, k] = _ratios(entry.batches, group)
    return replace(graph, output=graph.output * scale[0][:, None], cycles=graph.cycles * scale[1][:, None])


def _ratios(batches: tuple[Batch, ...], group: int) -> tuple[float, float]:
    """Selectivity and cost without one group over those of all batches; 1 where the sample is empty."""
    groups = min(len(batches), _GROUPS)
    if group >= groups:
        return 1.0, 1.0
    kept = [batch for i, batch in enumerate(batches) if i * groups // len(batches) != group]
    share = _total(kept, "events") / (_total(batches, "events") or 1.0)
    if share <= 0.0:
        return 1.0, 1.0
    outputs, cycles = _total(batches, "outputs"), _total(batches, "cycles")
    return (
        _total(kept, "outputs") / outputs / share if outputs > 0.0 else 1.0,
        _total(kept, "cycles") / cycles / share if cycles > 0.0 else 1.0,
    )


def _total(batches: Sequence[Batch], name: str) -> float:
    return float(sum(getattr(batch, name) for batch in batches))
