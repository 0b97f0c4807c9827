"""Probability that an objective holds, from the sample behind the statistics.

Every draw gives each input the statistics of batches drawn with replacement from its own. A draw belongs to an input by
its name, so it is the same in every scenario: differences between scenarios are not differences of luck.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from engine.deployment import Deployment
from engine.elements import Batch, FloatArray
from engine.flow import flow
from engine.intervals import LEVEL, covered_inputs
from engine.loads import loads_of
from engine.quantiles import statistic_of
from engine.topology import Graph

__all__ = ["Probability", "drawn_graphs", "probabilities"]

_Z = 1.6449  # of the normal distribution, two-sided at `LEVEL`


@dataclass(frozen=True)
class Probability:
    """Share of the draws in which an objective held, with the interval of that share (Wilson, 90 %)."""

    held: int
    draws: int

    @property
    def share(self) -> float:
        return self.held / self.draws

    def interval(self) -> tuple[float, float]:
        n, share, z2 = self.draws, self.share, _Z * _Z
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = _Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    def to_dict(self) -> dict[str, float | int]:
        low, high = self.interval()
        return {"share": self.share, "low": low, "high": high, "level": LEVEL, "draws": self.draws}


def probabilities(
    deployment: Deployment, *, draws: int, seed: int, step: Callable[[int, int], None] | None = None
) -> dict[str, Probability]:
    """How often every objective held, by query.

    Queries without an objective are left out, and all of them if no input has two batches to draw from.

    Parameters
    ----------
    draws : int
        Runs of Flow.
    step : callable, optional
        Told how many runs are done, and of how many.
    """
    judged = {objective.query: objective for objective in deployment.objectives}
    if not judged or not draws or not covered_inputs(deployment).any():
        return {}
    held = dict.fromkeys(judged, 0)
    for k, graph in enumerate(drawn_graphs(deployment, draws, seed)):
        run = flow(deployment, graph=graph, by_input=True)
        weights = _sink_events(deployment, graph)
        for query, objective in judged.items():
            value = statistic_of(run.by_query[query], weights[query], objective.statistic)
            held[query] += value <= objective.bound_s
        if step:
            step(k + 1, draws)
    return {query: Probability(count, draws) for query, count in held.items()}


def drawn_graphs(deployment: Deployment, draws: int, seed: int) -> list[Graph]:
    """The dataflow with the statistics of each draw."""
    graph = deployment.graph
    scales = np.ones((draws, 2, len(graph.in_stream)))
    k = 0
    for operator in deployment.operators:
        for number, entry in enumerate(operator.inputs):
            if len(entry.batches) >= 2:
                name = zlib.crc32(f"{operator.id}\0{number}".encode())
                scales[:, :, k] = _scales(entry.batches, draws, np.random.default_rng([seed, name]))
            k += 1
    return [
        replace(graph, output=graph.output * scale[0][:, None], cycles=graph.cycles * scale[1][:, None])
        for scale in scales
    ]


def _scales(batches: tuple[Batch, ...], draws: int, rng: np.random.Generator) -> FloatArray:
    """Selectivity and cost of each draw over those of all batches, shape (draws, 2); 1 where a sample says nothing."""
    rows = np.array([(batch.events, batch.outputs, batch.cycles) for batch in batches])
    chosen = rng.integers(0, len(rows), (draws, len(rows)))
    sums, total = rows[chosen].sum(axis=1), rows.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (sums[:, 1:] / total[1:]) / (sums[:, :1] / total[0])
    return np.asarray(np.where(np.isfinite(found), found, 1.0))


def _sink_events(deployment: Deployment, graph: Graph) -> Mapping[str, FloatArray]:
    sinks = np.zeros((len(deployment.queries), len(deployment.operators)))
    chosen = np.flatnonzero(graph.query_sink)
    sinks[graph.query[chosen], chosen] = 1.0
    return dict(zip(deployment.queries, loads_of(deployment, graph=graph).outputs(sinks), strict=True))
