"""Flow of a deployment's queries, with what is known of each: where searches and forecasts read latencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.flow import Flow, flow
from engine.estimation.loads import sink_events
from engine.estimation.mace import mace
from engine.estimation.probes import ProbedDeployment, probe_deployment
from engine.estimation.reports import QueryReporter
from engine.latency_state import LatencyStanding

__all__ = ["FlowedQueries", "flow_queries"]


@dataclass(frozen=True, eq=False)
class FlowedQueries:
    """Flow by input of a deployment in which every query puts something out.

    `weights` are the events at each query's sinks, per subinterval; `mace_every` of these make one of Mace's.
    """

    probed: ProbedDeployment
    flow: Flow
    weights: Mapping[str, FloatArray]
    mace_every: int = 1

    @property
    def deployment(self) -> Deployment:
        """The deployment that Flow ran on."""
        return self.probed.deployment

    def value_s(self, query: str, statistic: str) -> float:
        """A statistic of a query's latencies; what it is worth, its standing says."""
        return self.flow.statistic_of(query, self.weights[query], statistic)

    @cached_property
    def reporter(self) -> QueryReporter:
        """Reports of the queries, at Mace's width."""
        coarse = self.deployment.coarsened(self.mace_every)
        grouped = {name: _grouped(series, self.mace_every) for name, series in self.flow.by_query.items()}
        stand_in = Flow(self.flow.latency_s, grouped, 1, self.flow.hops)
        probed = ProbedDeployment(coarse, self.probed.probes)
        return QueryReporter(probed, mace(coarse), stand_in, self.deployment.subinterval_s)

    @cached_property
    def standings(self) -> dict[str, LatencyStanding]:
        """Standing of every query's latency."""
        return {query: self.reporter.standing(query) for query in self.deployment.queries}


def flow_queries(deployment: Deployment, *, mace_every: int = 1) -> FlowedQueries:
    """Run Flow by input on a deployment, with a probe for every query that puts nothing out."""
    probed = probe_deployment(deployment)
    run = flow(probed.deployment, by_input=True)
    return FlowedQueries(probed, run, sink_events(probed.deployment), mace_every)


def _grouped(series: FloatArray, every: int) -> FloatArray:
    padded = np.concatenate([series, np.zeros(-len(series) % every)])
    return np.asarray(padded.reshape(-1, every).max(axis=1))
