"""Realised latencies of a deployment: Flow, with the noise of a walk through the same network on top of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from engine.arrays import FloatArray, event_quantiles, statistic_or_worst
from engine.document.deployment import Deployment
from engine.estimation.flow import Flow
from engine.estimation.noise.dispersion import largest_service
from engine.estimation.noise.plan import WalkPlan
from engine.estimation.noise.streams import named_rng, spread_chances
from engine.estimation.noise.summary import (
    LEVEL,
    LatencySample,
    RealisedQuery,
    RealisedStatistic,
    histogram_quantiles,
    summarise_paths,
)
from engine.estimation.noise.tables import BINS, BINS_PER_OCTAVE, PartTable, SingleArray, WalkFigures
from engine.records import Fact

__all__ = ["PATHS", "realise"]

PATHS = 32

_LEVELS = {"q0.5": 0.5, "q0.9": 0.9, "q0.99": 0.99}  # quantiles of every query, beside its objective's own


def realise(
    deployment: Deployment,
    flowed: Flow,
    *,
    paths: int = PATHS,
    seed: int = 0,
    queries: Collection[str] | None = None,
    counted_from: int = 0,
) -> dict[str, RealisedQuery]:
    """Realised worst, mean and quantile latency of every query, with intervals.

    Parameters
    ----------
    deployment : Deployment
        d slices of w seconds, every operator placed.
    flowed : Flow
        Flow by input of the same deployment.
    paths : int
        Walks K; at least 2.
    seed : int
        Equal seeds give equal results.
    queries : collection of str, optional
        Queries to walk, which takes the less the fewer they are; all unless given. Figures are the same.
    counted_from : int
        First slice (from 0) whose events count: statistics of what a change brings leave out what was before it.

    Returns
    -------
    dict
        Of each query; times in seconds from an event's arrival to the end of its service at a sink. A query without
        events at its sinks has no latencies, and is left out (`engine.estimation.probes`).

    Raises
    ------
    UnplacedError
        If an operator has no node.
    ValueError
        If there are fewer than 2 paths.

    Notes
    -----
    Random are the costs of single events, arrivals inside slices (inside steps where counts are coarse), what filters
    let through, slow changes of costs, and the statistics themselves within the errors of their sample. Flow stays the
    mean path: what is added is the walk less the same walk without noise. docs/models/noise.md has the formulas.
    """
    if paths < 2:
        raise ValueError(f"paths is {paths}; allowed: a whole number of at least 2")
    chosen = [i for i, query in enumerate(deployment.queries) if queries is None or query in queries]
    if not chosen:
        return {}
    only = None if len(chosen) == len(deployment.queries) else chosen
    plan = WalkPlan(deployment, flowed, paths, seed, only, counted_from)
    parts, figures = plan.walk()
    realised = {}
    for i in chosen:
        query = deployment.queries[i]
        edges = parts.least[i] * _bin_edges()
        lead = _lead_paths(plan, i, flowed)
        figures = _with_lead(figures, i, lead, edges)
        statistics = _statistics(plan, i, query, parts, figures.top[i], figures.mean[i], figures.bins[i], lead)
        if statistics is None:
            continue
        latencies = LatencySample(0.5 * (edges[1:] + edges[:-1]), figures.bins[i].sum(axis=0))
        caught = None if lead is None else _catch_up_s(plan, i, figures)
        realised[query] = replace(_report(plan, i, statistics), latencies=latencies, catch_up_s=caught)
    return realised


@dataclass(frozen=True, eq=False)
class _LeadPaths:
    """Latencies of what waits where the horizon begins, at one query's sinks: n slices, K paths."""

    latency_s: FloatArray  # (n, K)
    flow_s: FloatArray  # (n,) without noise
    weights: FloatArray  # (n,) events
    horizon_events: float  # that come behind them


def _lead_paths(plan: WalkPlan, i: int, flowed: Flow) -> _LeadPaths | None:
    """Waiting events keep their age; what they wait from the horizon's beginning on varies as the work before them."""
    lead = plan.lead
    if lead is None:
        return None
    query = plan.deployment.queries[i]
    flow_s, weights = flowed.lead_by_query[query], flowed.lead_events[query]
    behind = float(_horizon_weights(plan, i).sum())
    stages = [route.stage for route in plan.network.routes[i]]
    started = plan.started[stages].max(axis=0, initial=0.0)
    share = started[:-1] / started[-1] if started[-1] > 0.0 else np.ones(plan.paths)
    waited_s = np.maximum(flow_s - lead.ages_s, 0.0)
    return _LeadPaths(lead.ages_s[:, None] + waited_s[:, None] * share[None, :], flow_s, weights, behind)


def _with_lead(figures: WalkFigures, i: int, lead: _LeadPaths | None, edges: FloatArray) -> WalkFigures:
    """The figures of query i with its waiting events; of the others as they are."""
    if lead is None or not lead.weights.any():
        return figures
    there = lead.weights > 0.0
    latency_s, weights = lead.latency_s[there], lead.weights[there]
    top, mean, bins = figures.top.copy(), figures.mean.copy(), figures.bins.copy()
    top[i] = np.maximum(top[i], latency_s.max(axis=0))
    counted = bins[i].sum(axis=1)
    mean[i] += weights @ latency_s
    # Paths take turns in filling their histograms over long horizons: waiting events count as those of the horizon do.
    share = counted / lead.horizon_events if lead.horizon_events > 0.0 else np.ones(len(counted))
    at = np.clip(np.searchsorted(edges, latency_s, side="right") - 1, 0, bins.shape[2] - 1)
    for k in range(latency_s.shape[1]):
        np.add.at(bins[i, k], at[:, k], weights * share[k])
    return figures._replace(top=top, mean=mean, bins=bins)


def _catch_up_s(plan: WalkPlan, i: int, figures: WalkFigures) -> tuple[float | None, float | None]:
    """Interval of the seconds until every stage of a query has run empty; an end beyond the horizon is None."""
    stages = [route.stage for route in plan.network.routes[i]]
    slices = figures.first_empty[stages].max(axis=0, initial=0)
    beyond = int((slices >= plan.d).sum())
    times_s = (slices[slices < plan.d] + 0.5) * plan.w
    if beyond > (1.0 - LEVEL) / 2.0 * plan.paths:
        low_s = None if beyond > (1.0 + LEVEL) / 2.0 * plan.paths else float(np.quantile(times_s, (1.0 - LEVEL) / 2.0))
        return low_s, None
    found = summarise_paths(times_s, 0.0, float(np.median(times_s)))
    return found.low_s, found.high_s


def _statistics(
    plan: WalkPlan,
    i: int,
    query: str,
    parts: PartTable,
    top: SingleArray,
    mean: FloatArray,
    bins: FloatArray,
    lead: _LeadPaths | None,
) -> dict[str, RealisedStatistic] | None:
    """Realised statistics of a query; None where no event comes to its end."""
    weights, path = _horizon_weights(plan, i), plan.latency[i]
    if lead is not None:
        weights, path = np.concatenate([lead.weights, weights]), np.concatenate([lead.flow_s, path])
    levels = dict(_LEVELS)
    objective = plan.deployment.objective_of(query)
    if objective and objective.statistic.startswith("q"):
        levels[objective.statistic] = float(objective.statistic[1:])
    total = float(weights.sum())
    if not total > 0.0:
        return None
    service = parts.service[i]
    averages = np.maximum(mean / total, service)
    largest = largest_service(service, plan.service_cv2(i), total, _chances(query, plan.paths, plan.seed))
    worst = np.maximum(top.astype(np.float64), largest + np.maximum(averages - service, 0.0))
    statistics = {
        "worst": summarise_paths(worst, service, statistic_or_worst(path, weights, "worst")),
        "mean": summarise_paths(averages, service, statistic_or_worst(path, weights, "mean")),
    }
    quantiles = histogram_quantiles(bins, parts.least[i] * _bin_edges(), list(levels.values()))
    flowed = event_quantiles(path, weights, list(levels.values()))
    for (name, level), values, flow_s in zip(levels.items(), quantiles, flowed, strict=True):
        floor = 0.5 * service if level >= 0.5 else 0.0
        statistics[name] = summarise_paths(np.minimum(values, worst), floor, flow_s)
    return statistics


def _horizon_weights(plan: WalkPlan, i: int) -> FloatArray:
    """Events of the horizon at the sinks of query i, slice by slice, (d,)."""
    weights = np.zeros(plan.d)
    for route in plan.network.routes[i]:
        for u, events in route.events.items():
            weights += plan.counted[u] * events[-1]
    return weights


@lru_cache(maxsize=8192)
def _chances(query: str, paths: int, seed: int) -> FloatArray:
    """Chances of a query's largest service, (K,): the same in every deployment."""
    return spread_chances(paths, named_rng(seed, f"query {query}"))


def _report(plan: WalkPlan, i: int, statistics: dict[str, RealisedStatistic]) -> RealisedQuery:
    deployment = plan.deployment
    servers = _servers_of(plan, i)
    sources = sorted({u for s in servers for u in plan.entries[s] if plan.totals[u] > 0.0})
    inputs = sorted({w.entry for s in servers for parts in plan.network.work[s].values() for w in parts} - {-1})
    noises = [plan.sources[u] for u in sources]
    step = max([noise.step_s for noise in noises], default=plan.w)
    assumed = [noise.assumed for noise in noises] + [plan.costs[k].assumed for k in inputs]
    return RealisedQuery(
        statistics=statistics,
        under_s=max(step, statistics["worst"].high_s),
        assumed=tuple(sentence for sentence in [*assumed, *_assumed_network(plan, servers)] if sentence),
        not_modelled=tuple(_left_out(plan, servers)),
        assumed_sources=tuple(deployment.sources[u].id for u in sources if plan.sources[u].unknown),
        assumed_costs=tuple(plan.inputs[k] for k in inputs if plan.costs[k].assumed),
    )


def _servers_of(plan: WalkPlan, query: int) -> list[int]:
    """Servers on the routes of a query."""
    stages = {route.stage for route in plan.network.routes[query]}
    last = {plan.network.stages[stage].server for stage in stages}
    return sorted(last.union(*(plan.network.passed(stage) for stage in stages)))


def _assumed_network(plan: WalkPlan, servers: Sequence[int]) -> list[Fact]:
    deployment, found = plan.deployment, set(servers)
    links = [deployment.servers[s].name for s in servers if deployment.servers[s].link is not None]
    split = [name for name, places in plan.split if not places.isdisjoint(found)]
    facts = [Fact("estimation.bytes_alike", link=name) for name in links]
    return facts + [Fact("estimation.replicas_at_random", operator=name) for name in split]


def _left_out(plan: WalkPlan, servers: Sequence[int]) -> list[Fact]:
    deployment = plan.deployment
    nodes = {deployment.nodes[node].id for s in servers if (node := deployment.servers[s].node) is not None}
    others = {node: policy for node, policy in deployment.other_policies.items() if node in nodes}
    return [Fact("estimation.noise_of_stimulus_time", policies=Fact("document.policies", others))] if others else []


@lru_cache(maxsize=1)
def _bin_edges() -> FloatArray:
    """Edges of the histogram's bins over its lower end: linear within an octave."""
    octave, part = np.divmod(np.arange(BINS + 1), BINS_PER_OCTAVE)
    return np.asarray(2.0**octave * (1.0 + part / BINS_PER_OCTAVE))
