"""Pool sizes judged by the same futures: how likely objectives hold with more or fewer nodes, and for how long not.

Every size is a deployment of its own: nodes are added like the largest pool's or taken from its end, and all operators
are placed anew for the busiest bucket at the upper end of the bands (the placement search, by rounds: the same seed,
the same placement).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.deployment import Deployment
from engine.elements import FloatArray
from engine.errors import EngineError
from engine.forecasting.uncertainty import Probability, probability
from engine.forecasting.violations import Calibration, scaled_deployment
from engine.provisioning.nodes import lose
from engine.provisioning.placing import placed
from engine.provisioning.pools import pool_of

__all__ = ["PoolOutcome", "pool_outcomes", "resized"]

_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class PoolOutcome:
    """One size: its price, and what the futures do to it; `refused` says why it cannot be had."""

    size: int
    price_per_hour: float | None
    probability: Probability | None
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        found = self.probability.to_dict() if self.probability else None
        return {
            "size": self.size,
            "price_per_hour": self.price_per_hour,
            "refused": self.refused,
            "probability": found,
        }

    def violated_buckets(self, per_day: int) -> FloatArray:
        """Buckets with a violated objective, summed over the queries, per future and day: (k, days)."""
        if self.probability is None:
            return np.zeros((0, 0))
        counts = self.probability.violated.sum(axis=2).astype(np.float64)
        starts = np.arange(0, counts.shape[1], per_day)
        return np.asarray(np.add.reduceat(counts, starts, axis=1))


def resized(deployment: Deployment, size: int) -> Deployment:
    """The deployment on `size` nodes; operators of nodes that are gone have no place."""
    ordered = pool_of(deployment, size).deployment
    gone = {node.id for node in ordered.nodes[size:]}
    kept = lose(ordered, gone) if gone else ordered
    return replace(kept, nodes=kept.nodes)


def pool_outcomes(
    deployment: Deployment,
    sizes: Sequence[int],
    *,
    busiest: FloatArray,
    factors: FloatArray,
    calibration: Calibration | None = None,
    mace_every: int = 1,
    closed: Sequence[str] = (),
    seed: int = 0,
    step: Callable[[float, str], None] | None = None,
) -> list[PoolOutcome]:
    """Judge pool sizes.

    Parameters
    ----------
    busiest : array, shape (sources,)
        Factors of the bucket that operators are placed for.
    factors : array, shape (k, h, sources)
        The futures, the same for every size.
    """
    found = []
    for i, size in enumerate(sizes):
        if step:
            step(i / len(sizes), f"Pool of {size} nodes")
        found.append(_outcome(deployment, size, busiest, factors, calibration, mace_every, closed, seed))
    return found


def _outcome(
    deployment: Deployment,
    size: int,
    busiest: FloatArray,
    factors: FloatArray,
    calibration: Calibration | None,
    mace_every: int,
    closed: Sequence[str],
    seed: int,
) -> PoolOutcome:
    try:
        other = resized(deployment, size)
        ready = placed(
            scaled_deployment(other, busiest), "search", mace_every=mace_every, seed=seed, rounds=_ROUNDS, closed=closed
        )
        other = other.with_placement({operator.id: operator.replicas for operator in ready.operators})
        judged = probability(other, factors, calibration=calibration, mace_every=mace_every, seed=seed)
    except EngineError as error:
        return PoolOutcome(size, None, None, error.message)
    prices = [node.price_per_hour for node in other.nodes]
    known = [price for price in prices if price is not None]
    return PoolOutcome(size, sum(known) if len(known) == len(prices) else None, judged)
