"""Latencies and loads of a deployment over recorded segments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.admission.margins import sink_events
from engine.deployment import Deployment
from engine.elements import FloatArray
from engine.errors import InfeasibleError
from engine.flow import flow
from engine.forecasting.violations import scaled_deployment, violations
from engine.mace import mace
from engine.quantiles import statistic_of

__all__ = ["latencies", "node_loads"]


def latencies(
    deployment: Deployment, factors: FloatArray, *, mace_every: int, flow_runs: int, added_s: Mapping[str, float]
) -> dict[str, FloatArray]:
    """Statistic of every objective in every segment, seconds, shape (n,) each; queries without one are left out.

    Every segment scales the stretch of arrivals, as in forecasts: Mace for all of them, read as Flow's by some runs of
    Flow. Where loads are not linear in the arrivals, Flow runs for every segment, at Mace's width.
    """
    if not deployment.operators or not deployment.objectives:
        return {}
    try:
        seen = violations(deployment, factors, factors[:0], mace_every=mace_every, flow_runs=flow_runs)
    except InfeasibleError:
        found = _flow_latencies(deployment.coarsened(mace_every), factors)
    else:
        found = {one.query: one.mean_s for one in seen.outlooks}
    return {query: values + added_s.get(query, 0.0) for query, values in found.items()}


def _flow_latencies(coarse: Deployment, factors: FloatArray) -> dict[str, FloatArray]:
    statistics = {one.query: one.statistic for one in coarse.objectives}
    found = {query: np.zeros(len(factors)) for query in coarse.queries if query in statistics}
    for i, row in enumerate(factors):
        scaled = scaled_deployment(coarse, row)
        run, weights = flow(scaled, by_input=True), sink_events(scaled)
        for query, values in found.items():
            values[i] = statistic_of(run.by_query[query], weights[query], statistics[query])
    return found


def node_loads(deployment: Deployment, factors: FloatArray, mace_every: int) -> dict[str, tuple[float, float]]:
    """Mean load of every node's busiest core over the segments, and over the segment in which most arrives."""
    coarse = deployment.coarsened(mace_every)
    busiest = factors[int((factors * deployment.arrivals.sum(axis=1)).sum(axis=1).argmax())]
    shares = [mace(scaled_deployment(coarse, row)).load_share.mean(axis=1) for row in (factors.mean(axis=0), busiest)]
    found = {node.id: (0.0, 0.0) for node in deployment.nodes}
    for i, server in enumerate(deployment.servers):
        if server.node is not None:
            name = deployment.nodes[server.node].id
            mean, peak = found[name]
            found[name] = (max(mean, float(shares[0][i])), max(peak, float(shares[1][i])))
    return found
