"""Variation of the work of servers, as far as it makes one micro-batch longer than another."""

from __future__ import annotations

import math

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.noise.dispersion import input_costs, thinning_variance

__all__ = ["WorkVariation"]

_ENDS = 1.0 / 3.0  # of a subinterval's events: the variance of how many of them fall into a batch, at both its ends


class WorkVariation:
    """Random work of a deployment's servers: costs, events that are filtered out, and statistics of a sample."""

    def __init__(self, deployment: Deployment, selectivity: FloatArray, cycles: FloatArray, speeds: FloatArray) -> None:
        self._deployment, self._cycles, self._speeds = deployment, cycles, speeds
        self._noises = input_costs(deployment)
        self._totals = deployment.arrivals.sum(axis=1)
        graph, sources = deployment.graph, len(deployment.sources)
        self._gains = np.vstack([np.eye(sources), np.zeros((len(deployment.operators), sources))])
        for j in graph.order:
            for k in range(graph.in_start[j], graph.in_start[j + 1]):
                self._gains[sources + j] += self._gains[graph.in_stream[k]] * selectivity[k]

    def of_server(self, server: int, seconds: float) -> tuple[float, float]:
        """Standard deviation of a batch's work of so many seconds, and the error that all batches share, in seconds."""
        inputs, shares = self._inputs(server)
        amounts = self._cycles[inputs] / self._speeds[server]
        events = self._gains[self._deployment.graph.in_stream[inputs]] * shares[:, None]
        work = (events * self._totals) * amounts[:, None]  # (inputs, sources)
        total = float(work.sum())
        if not total > 0.0:
            return 0.0, 0.0
        noises = [self._noises[k] for k in inputs]
        parts = work.sum(axis=1) / total
        variance = float((work.sum(axis=1) * amounts * np.array([noise.cv2 for noise in noises])).sum())
        variance += sum(float(count) * thinning_variance(events[:, u], amounts) for u, count in enumerate(self._totals))
        slow = float((parts**2 * np.array([noise.slow for noise in noises])).sum())
        ends = _ENDS * float((self._totals * (events * amounts[:, None]).sum(axis=0) ** 2).sum())
        ends /= self._deployment.subintervals
        errors = parts * np.array([math.hypot(noise.cost_error, noise.output_error) for noise in noises])
        deviation = math.sqrt(variance / total * seconds + slow * seconds**2 + ends)
        return deviation, seconds * math.hypot(*errors.tolist())

    def _inputs(self, server: int) -> tuple[list[int], FloatArray]:
        """Inputs of the operators on a server, and the share of their events that comes to it."""
        layout, graph = self._deployment.layout, self._deployment.graph
        found = [
            (k, float(layout.rep_fraction[r]))
            for r in np.flatnonzero(layout.rep_server == server)
            for k in range(graph.in_start[layout.rep_operator[r]], graph.in_start[layout.rep_operator[r] + 1])
        ]
        return [k for k, _ in found], np.array([share for _, share in found])
