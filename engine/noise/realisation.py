"""Realised latencies of a deployment: Flow, with the noise of a walk through the same network on top of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from engine.arrays import FloatArray, event_quantiles, statistic_or_worst
from engine.document.deployment import Deployment
from engine.document.elements import scheduling_words
from engine.estimation.flow import Flow
from engine.noise.dispersion import largest_service
from engine.noise.plan import WalkPlan
from engine.noise.streams import named_rng, spread_chances
from engine.noise.summary import (
    LatencySample,
    Realisation,
    RealisedQuery,
    RealisedStatistic,
    histogram_quantiles,
    summarise_paths,
)
from engine.noise.tables import BINS, BINS_PER_OCTAVE, PartTable, SingleArray

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
) -> Realisation:
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
    Realisation
        Times in seconds from an event's arrival to the end of its service at a sink. A query without events at its
        sinks has no latencies, and is left out (`engine.estimation.probes`).

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
        return Realisation({}, paths)
    plan = WalkPlan(deployment, flowed, paths, seed, None if queries is None else chosen, counted_from)
    parts, figures = plan.walk()
    realised = {}
    for i in chosen:
        query = deployment.queries[i]
        statistics = _statistics(plan, i, query, parts, figures.top[i], figures.mean[i], figures.bins[i])
        if statistics is None:
            continue
        edges = parts.least[i] * _bin_edges()
        latencies = LatencySample(0.5 * (edges[1:] + edges[:-1]), figures.bins[i].sum(axis=0))
        realised[query] = replace(_report(plan, i, statistics), latencies=latencies)
    return Realisation(realised, paths)


def _statistics(
    plan: WalkPlan, i: int, query: str, parts: PartTable, top: SingleArray, mean: FloatArray, bins: FloatArray
) -> dict[str, RealisedStatistic] | None:
    """Realised statistics of a query; None where no event comes to its end."""
    weights = np.zeros(plan.d)
    for route in plan.network.routes[i]:
        for u, events in route.events.items():
            weights += plan.counted[u] * events[-1]
    levels = dict(_LEVELS)
    objective = plan.deployment.objective_of(query)
    if objective and objective.statistic.startswith("q"):
        levels[objective.statistic] = float(objective.statistic[1:])
    total = float(weights.sum())
    if not total > 0.0:
        return None
    service, path = parts.service[i], plan.latency[i]
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


def _assumed_network(plan: WalkPlan, servers: Sequence[int]) -> list[str]:
    deployment, found = plan.deployment, set(servers)
    layout = deployment.layout
    links = [deployment.servers[s].name for s in servers if deployment.servers[s].link is not None]
    split = [
        op.id
        for j, op in enumerate(deployment.operators)
        if len(op.replicas) > 1
        and found.intersection(layout.rep_server[layout.rep_start[j] : layout.rep_start[j + 1]].tolist())
    ]
    sentences = [f"Bytes of an event on {name}: always the same." for name in links]
    return sentences + [f"Events of {name} go to its replicas at random." for name in split]


def _left_out(plan: WalkPlan, servers: Sequence[int]) -> list[str]:
    deployment = plan.deployment
    nodes = {deployment.nodes[node].id for s in servers if (node := deployment.servers[s].node) is not None}
    others = {node: policy for node, policy in deployment.other_policies.items() if node in nodes}
    sentences = []
    if others:
        sentences.append(f"{scheduling_words(others)}: the noise is that of stimulus time.")
    return sentences


@lru_cache(maxsize=1)
def _bin_edges() -> FloatArray:
    """Edges of the histogram's bins over its lower end: linear within an octave."""
    octave, part = np.divmod(np.arange(BINS + 1), BINS_PER_OCTAVE)
    return np.asarray(2.0**octave * (1.0 + part / BINS_PER_OCTAVE))
