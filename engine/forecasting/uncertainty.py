"""Probability that objectives hold: bootstrapped loads of the sources and resampled statistics, drawn together.

Each of the drawn futures has its own loads and its own statistics: batches of the sample behind every input are drawn
again with replacement, as many as there are. With the same seed and operators another pool of nodes is judged by the
same futures (common random numbers), so differences between pools are not noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.deployment import Deployment
from engine.elements import Batch, FloatArray
from engine.forecasting.scaled import ScaledMace
from engine.forecasting.violations import Calibration
from engine.topology import Graph

__all__ = ["Probability", "most_paths", "probability", "resampled"]

RESAMPLES = 16
_Z = 1.645  # two-sided 90 %
_CELLS = 2e10


@dataclass(frozen=True, eq=False)
class Probability:
    """What k futures say of q queries over h buckets.

    Attributes
    ----------
    queries : tuple of str
    violated : array of bool, shape (k, h, q)
        Whether the objective is violated.
    """

    queries: tuple[str, ...]
    violated: npt.NDArray[np.bool_]

    @property
    def per_bucket(self) -> FloatArray:
        """Probability that each objective is violated in each bucket, (h, q)."""
        return np.asarray(self.violated.mean(axis=0))

    @property
    def holds(self) -> FloatArray:
        """Probability that each objective holds over the whole period, (q,)."""
        return np.asarray(1.0 - self.violated.any(axis=1).mean(axis=0))

    @property
    def all_hold(self) -> float:
        """Probability that all of them hold over the whole period."""
        return float(1.0 - self.violated.any(axis=(1, 2)).mean()) if self.violated.size else 1.0

    def error(self, share: float) -> float:
        """Half width of the 90 % interval (Wilson's) that k draws leave around a probability."""
        k = len(self.violated)
        return float(_Z * np.sqrt(share * (1.0 - share) / k + _Z**2 / (4.0 * k * k)) / (1.0 + _Z**2 / k))

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without the buckets."""
        holds = self.holds
        return {
            "paths": len(self.violated),
            "all_hold": self.all_hold,
            "all_hold_error": self.error(self.all_hold),
            "queries": {
                query: {"holds": float(holds[q]), "error": self.error(float(holds[q]))}
                for q, query in enumerate(self.queries)
            },
        }


def probability(
    deployment: Deployment,
    factors: FloatArray,
    *,
    calibration: Calibration | None = None,
    mace_every: int = 1,
    seed: int = 0,
    step: Callable[[float], None] | None = None,
) -> Probability:
    """Judge a deployment by futures of its sources.

    Parameters
    ----------
    factors : array, shape (k, h, sources)
        Factors as in `engine.forecasting.violations`, for k futures.
    calibration : Calibration, optional
        Reads Mace as Flow; of the same queries.
    seed : int
        Of the resampled statistics.

    Raises
    ------
    InfeasibleError
        Loads that are not linear in the sources, or capacities that change.
    """
    coarse = deployment.coarsened(mace_every)
    models = [ScaledMace(coarse, graph=graph) for graph in resampled(coarse, RESAMPLES, seed)]
    k, h = factors.shape[:2]
    violated = np.zeros((k, h, len(models[0].queries)), dtype=bool)
    for path in range(k):
        model = models[path % len(models)]
        latency = model.latencies(factors[path])
        latency = calibration(latency) if calibration else latency
        violated[path] = latency > model.bounds_s[None, :]
        if step:
            step((path + 1) / k)
    return Probability(models[0].queries, violated)


def most_paths(deployment: Deployment, horizon: int, *, mace_every: int = 1, wanted: int = 100) -> int:
    """How many futures a deployment of this size can be judged by in seconds, at least 20."""
    cells = ScaledMace(deployment.coarsened(mace_every)).cells * max(1, horizon)
    return int(np.clip(_CELLS / cells, 20, wanted))


def resampled(deployment: Deployment, count: int, seed: int) -> list[Graph]:
    """The dataflow with statistics from batches drawn with replacement; one as it is where no input has two batches."""
    entries = [entry for operator in deployment.operators for entry in operator.inputs]
    if not any(len(entry.batches) >= 2 for entry in entries):
        return [deployment.graph]
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        scale = np.array([_ratios(entry.batches, rng) for entry in entries])
        graph = deployment.graph
        found.append(replace(graph, output=graph.output * scale[:, :1], cycles=graph.cycles * scale[:, 1:]))
    return found


def _ratios(batches: tuple[Batch, ...], rng: np.random.Generator) -> tuple[float, float]:
    """Selectivity and cost of a redrawn sample over those of the sample; 1 where it says nothing."""
    if len(batches) < 2:
        return 1.0, 1.0
    table = np.array([(batch.events, batch.outputs, batch.cycles) for batch in batches])
    whole, drawn = table.sum(axis=0), table[rng.integers(len(batches), size=len(batches))].sum(axis=0)
    share = drawn[0] / whole[0] if whole[0] > 0.0 else 0.0
    if share <= 0.0:
        return 1.0, 1.0
    return tuple(float(d / w / share) if w > 0.0 else 1.0 for d, w in zip(drawn[1:], whole[1:], strict=True))  # type: ignore[return-value]
