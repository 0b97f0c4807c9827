"""Speed of the questions of planning: ``./sluice lab questions [--horizon-s S]``.

The smallest pool, the cheapest mix, the Pareto front, survival, growth and an outlook of one week by the hour, of 14
queries of section VIII over slices of a quarter of a second. Printed are CPU and elapsed seconds of each and what it
answered; compilation is not timed. With ``--mean-path`` Flow's figures stand for those of walks, to tell what these
cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from engine.arrays import statistic_of
from engine.document.deployment import Deployment, Objective
from engine.estimation import estimate
from engine.estimation.flow import Flow
from engine.estimation.loads import sink_events
from engine.estimation.noise.summary import RealisedQuery, RealisedStatistic
from engine.forecasts import realised_latency
from engine.forecasts.forecast import SourceHistory
from engine.forecasts.outlook import outlook
from engine.provisioning import confirmation
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.provisioning.survival import lose_each
from lab.benchmarks.machine import machine
from lab.benchmarks.workloads import build

__all__ = ["main"]

QUERIES, NODES = 14, 12
BOUND_S = 8.0
EVERY = 4  # slices of a quarter of a second in one of Mace's subintervals
WEEKS = 3

_STATISTICS = ("worst", "mean", "q0.5", "q0.9", "q0.99")
Ask = Callable[[Deployment], Any]


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; returns 0."""
    parser = argparse.ArgumentParser(prog="sluice lab questions", description=__doc__)
    parser.add_argument("--horizon-s", type=float, default=250.0, help="seconds of arrivals (250)")
    parser.add_argument("--only", help="one question")
    parser.add_argument("--mean-path", action="store_true", help="Flow's figures in the place of walks")
    options, _ = parser.parse_known_args(list(arguments))
    print(f"Machine: {machine()}")
    deployment = cluster(options.horizon_s)
    small = cluster(25.0)
    print(f"{len(deployment.operators)} operators, {len(deployment.queries)} queries, d = {deployment.subintervals}")
    print("Question         CPU s   elapsed s   answer")
    with ExitStack() as replaced:
        for module in (estimate, confirmation, realised_latency) if options.mean_path else ():
            replaced.enter_context(patch.object(module, "realise", _mean_path))
        for name, ask in QUESTIONS.items():
            if options.only in (None, name):
                ask(small)  # compiles
                cpu, began = time.process_time(), time.perf_counter()
                answer = ask(deployment)
                cpu, took = time.process_time() - cpu, time.perf_counter() - began
                print(f"{name:15} {cpu:6.2f}      {took:6.2f}   {answer}", flush=True)
    return 0


def _mean_path(deployment: Deployment, flowed: Flow, **options: Any) -> dict[str, RealisedQuery]:
    """Figures of Flow alone, in the form that a walk's have."""
    weights, queries = sink_events(deployment), {}
    for query in deployment.queries:
        values = {name: statistic_of(flowed.by_query[query], weights[query], name) for name in _STATISTICS}
        queries[query] = RealisedQuery({name: RealisedStatistic(*(value,) * 3) for name, value in values.items()}, 0.0)
    return queries


def cluster(horizon_s: float) -> Deployment:
    """Queries of section VIII on 12 nodes loaded at up to 0.6, an objective for every query."""
    base = build(QUERIES, NODES, 1, horizon_s=horizon_s).deployment
    nodes = [replace(node, capacity_cps=1.25 * (node.capacity_cps or 0.0), price_per_hour=1.0) for node in base.nodes]
    bounds = tuple(Objective(query, "worst", BOUND_S) for query in base.queries)
    return replace(base, nodes=tuple(nodes), objectives=bounds)


def _smallest_pool(deployment: Deployment) -> str:
    question = PoolQuestion(keep_present=False, mace_every=EVERY)
    answer = smallest_pool(deployment, question, like=deployment.nodes[0].id, most=40)
    return f"{answer.nodes} nodes, confirmed {answer.confirmed}, {answer.flows} runs of Flow"


def _smallest_pool_lose(deployment: Deployment) -> str:
    question = PoolQuestion(keep_present=False, mace_every=EVERY, lose=1)
    answer = smallest_pool(deployment, question, like=deployment.nodes[0].id, most=40)
    return f"{answer.nodes} nodes, confirmed {answer.confirmed}, {answer.flows} runs of Flow"


def _types(deployment: Deployment) -> list[dict[str, Any]]:
    capacity = float(deployment.nodes[0].capacity_cps or 0.0)
    return [
        {"name": "small", "capacity_cps": capacity, "price_per_hour": 1.0, "max": 30},
        {"name": "large", "capacity_cps": 2.2 * capacity, "price_per_hour": 2.1, "max": 15},
    ]


def _cheapest_mix(deployment: Deployment) -> str:
    question = PoolQuestion(keep_present=False, mace_every=EVERY)
    answer = cheapest_mix(deployment, _types(deployment), question, most_tried=20)
    return f"{answer.counts} at {answer.cost_per_hour}, confirmed {answer.confirmed}, {answer.flows} runs of Flow"


def _pareto(deployment: Deployment) -> str:
    question = PoolQuestion(keep_present=False, mace_every=EVERY)
    answer = pareto_front(deployment, _types(deployment), question, most_tried=30)
    return f"{len(answer.points)} points, {answer.tried} tried"


def _survival(deployment: Deployment) -> str:
    answer = lose_each(deployment, mace_every=EVERY)
    return f"survives {answer.survives}: {answer.message}"


def _growth(deployment: Deployment) -> str:
    answer = headroom_by_query(deployment, mace_every=EVERY)
    factor = answer.together.factor
    return f"together {'-' if factor is None else f'{factor:.3g}'}, {answer.flows} runs of Flow"


def _outlook(deployment: Deployment) -> str:
    rng = np.random.default_rng(1)
    hours = np.arange(WEEKS * 168)
    shape = 1.0 + 0.3 * np.sin(2 * np.pi * hours / 24) + 0.1 * np.sin(2 * np.pi * hours / 168) + 0.001 * hours
    horizon_s = deployment.subintervals * deployment.subinterval_s
    histories = {
        source.id: SourceHistory(
            rng.poisson(shape * source.arrivals.sum() / horizon_s * 3600.0 / 1.4).astype(float),
            0.0,
            source.arrivals.sum() / horizon_s,
        )
        for source in deployment.sources
    }
    answer = outlook(deployment, histories, bucket_s=3600.0, horizon=168, mace_every=EVERY, extra_nodes=(-2, 0, 2))
    chance = "-" if answer.probability is None else f"{answer.probability.all_hold:.2f}"
    seen = answer.violations
    runs = 0 if seen is None else getattr(seen, "walks", None) or seen.flow_runs
    return f"all hold {chance}, {runs} runs of Flow"


QUESTIONS: dict[str, Ask] = {
    "smallest pool": _smallest_pool,
    "and a node lost": _smallest_pool_lose,
    "cheapest mix": _cheapest_mix,
    "pareto": _pareto,
    "survival": _survival,
    "growth": _growth,
    "outlook": _outlook,
}
