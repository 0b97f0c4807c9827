"""Pool sizes judged by the same futures: how likely objectives hold with more or fewer nodes, and for how long not.

Every size is a deployment of its own: nodes are added like the largest pool's or taken from its end, and all operators
are placed anew for the busiest bucket at the upper end of the bands (the placement search, by rounds: the same seed,
the same placement).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.deployment import Deployment
from engine.elements import FloatArray, Replica
from engine.errors import EngineError
from engine.forecasting.scaled import ScaledMace
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
    return lose(ordered, gone) if gone else ordered


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
    found: list[PoolOutcome] = []
    places = _Places(deployment, busiest, mace_every, tuple(closed), seed)
    order = sorted(set(sizes))
    for i, size in enumerate(order):
        if step:
            step(i / len(order), f"Pool of {size} nodes")
        try:
            other = places.at(size)
            judged = probability(other, factors, calibration=calibration, mace_every=mace_every, seed=seed)
        except EngineError as error:
            found.append(PoolOutcome(size, None, None, error.message))
        else:
            found.append(PoolOutcome(size, _price(other), judged))
    return found


class _Places:
    """Placements of growing pools. A search may end worse with more nodes: then the smaller pool's placement stands."""

    def __init__(
        self, deployment: Deployment, busiest: FloatArray, mace_every: int, closed: tuple[str, ...], seed: int
    ) -> None:
        self._deployment, self._busiest = deployment, busiest
        self._options = {"mace_every": mace_every, "seed": seed, "rounds": _ROUNDS, "closed": closed}
        self._every = mace_every
        self._smaller: dict[str, tuple[Replica, ...]] = {}

    def at(self, size: int) -> Deployment:
        """The deployment on `size` nodes, sizes ascending."""
        own = resized(self._deployment, size)
        starts = [own, *([own.with_placement(self._smaller)] if self._smaller else [])]
        ready = [self._searched(start) for start in starts]
        # A placement that stands needs no search to be compared.
        ready += [start for start in starts if all(operator.replicas for operator in start.operators)]
        best = min(ready, key=self._score)
        self._smaller = {operator.id: operator.replicas for operator in best.operators}
        return best

    def _searched(self, start: Deployment) -> Deployment:
        found = placed(scaled_deployment(start, self._busiest), "search", **self._options)  # type: ignore[arg-type]
        return start.with_placement({operator.id: operator.replicas for operator in found.operators})

    def _score(self, deployment: Deployment) -> tuple[float, float]:
        """How far the objectives are exhausted in the busiest bucket: the worst of them, then all."""
        model = ScaledMace(deployment.coarsened(self._every))
        shares = model.latencies(self._busiest[None, :])[0] / model.bounds_s
        return float(shares.max(initial=0.0)), float(shares.sum())


def _price(deployment: Deployment) -> float | None:
    prices = [node.price_per_hour for node in deployment.nodes]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
