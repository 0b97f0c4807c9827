"""Probability that objectives hold, with today's pool and with more or fewer nodes, over the same possible futures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Batch, Replica
from engine.document.topology import DataflowGraph
from engine.errors import EngineError
from engine.estimation.probes import probe_deployment
from engine.forecasts.answer import FutureChances, HoldChance, PoolForecast
from engine.forecasts.realised_latency import LatencyTable, walk_scaled
from engine.forecasts.scaled_latency import ScaledMace
from engine.forecasts.violations import scaled_deployment
from engine.provisioning.nodes import lose_nodes, pool_of
from engine.provisioning.scenario import place_unplaced

__all__ = [
    "OutlookProbability",
    "PoolOutcome",
    "max_paths",
    "pool_outcomes",
    "probability",
    "resample_statistics",
    "resize_pool",
]


RESAMPLES = 16
_Z = 1.645  # two-sided 90 %
_CELLS = 2e10

_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class OutlookProbability:
    """Probabilities from k futures of q queries over h buckets.

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

    @property
    def chances(self) -> FutureChances:
        """Everything but the buckets."""
        queries = {
            query: HoldChance(share, self.error(share))
            for query, share in zip(self.queries, self.holds.tolist(), strict=True)
        }
        return FutureChances(len(self.violated), self.all_hold, self.error(self.all_hold), queries)


def probability(
    deployment: Deployment,
    factors: FloatArray,
    *,
    table: LatencyTable | None = None,
    mace_every: int = 1,
    seed: int = 0,
    step: Callable[[float], None] | None = None,
) -> OutlookProbability:
    """Judge a deployment by futures of its sources.

    Parameters
    ----------
    factors : array, shape (k, h, sources)
        Factors as in `engine.forecasts.violations`, for k futures.
    table : LatencyTable, optional
        Reads Mace as realised latencies; of the same queries. Without it costs and arrivals are not random.
    seed : int
        Of the resampled statistics and of all that is random; the same draws belong to a query by its place.

    Raises
    ------
    InfeasibleError
        Loads that are not linear in the sources, or capacities that change.

    Notes
    -----
    A query that does not catch up in a bucket violates its objective there. In every future statistics are those of one
    resample, and errors of the model are drawn once; what costs and arrivals do by chance is drawn anew for every
    bucket. Both are lognormal around the median. Under other policies than stimulus time latencies are as many times as
    high as simulations had them; where no factor is known they are those of stimulus time.
    """
    coarse = probe_deployment(deployment.coarsened(mace_every)).deployment
    models = [ScaledMace(coarse, graph=graph) for graph in resample_statistics(coarse, RESAMPLES, seed)]
    k, h = factors.shape[:2]
    violated = np.zeros((k, h, len(models[0].queries)), dtype=bool)
    rng = np.random.default_rng(seed)
    for path in range(k):
        model = models[path % len(models)]
        scanned = model.latencies(factors[path])
        latency = scanned.latency_s
        if table is not None:
            realised = table(model.loads(factors[path]), latency)
            lasting, chance = rng.standard_normal(latency.shape[1]), rng.standard_normal(latency.shape)
            latency = realised.estimate_s * np.exp(realised.lasting * lasting + realised.chance * chance)
            latency = table.under_policies(latency)
        violated[path] = scanned.violated(model.bounds_s, latency)
        if step:
            step((path + 1) / k)
    return OutlookProbability(models[0].queries, violated)


def max_paths(deployment: Deployment, horizon: int, *, mace_every: int = 1, wanted: int = 100) -> int:
    """Number of futures that a deployment of this size can be judged by in seconds, at least 20."""
    cells = ScaledMace(deployment.coarsened(mace_every)).cells * max(1, horizon)
    return int(np.clip(_CELLS / cells, 20, wanted))


def resample_statistics(deployment: Deployment, count: int, seed: int) -> list[DataflowGraph]:
    """The dataflow with statistics from batches drawn with replacement; one as it is where no input has two batches."""
    entries = [entry for operator in deployment.operators for entry in operator.inputs]
    if not any(len(entry.batches) >= 2 for entry in entries):
        return [deployment.graph]
    rng = np.random.default_rng(seed)
    operators = []
    for _ in range(count):
        scale = np.array([_ratios(entry.batches, rng) for entry in entries])
        graph = deployment.graph
        operators.append(replace(graph, output=graph.output * scale[:, :1], cycles=graph.cycles * scale[:, 1:]))
    return operators


def _ratios(batches: tuple[Batch, ...], rng: np.random.Generator) -> tuple[float, float]:
    """Selectivity and cost of a redrawn sample over those of the sample; 1 where the sample is empty."""
    if len(batches) < 2:
        return 1.0, 1.0
    table = np.array([(batch.events, batch.outputs, batch.cycles) for batch in batches])
    whole, drawn = table.sum(axis=0), table[rng.integers(len(batches), size=len(batches))].sum(axis=0)
    share = drawn[0] / whole[0] if whole[0] > 0.0 else 0.0
    if share <= 0.0:
        return 1.0, 1.0
    return tuple(float(d / w / share) if w > 0.0 else 1.0 for d, w in zip(drawn[1:], whole[1:], strict=True))  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class PoolOutcome:
    """One pool size: its price and its outcome in the futures; `refused` says why it cannot be had."""

    size: int
    price_per_hour: float | None
    probability: OutlookProbability | None
    refused: str = ""

    @property
    def facts(self) -> PoolForecast:
        """Everything but the futures."""
        chances = self.probability.chances if self.probability else None
        return PoolForecast(self.size, self.price_per_hour, self.refused, chances)

    def violated_buckets(self, per_day: int) -> FloatArray:
        """Buckets with a violated objective, summed over the queries, per future and day: (k, days)."""
        if self.probability is None:
            return np.zeros((0, 0))
        counts = self.probability.violated.sum(axis=2).astype(np.float64)
        starts = np.arange(0, counts.shape[1], per_day)
        return np.asarray(np.add.reduceat(counts, starts, axis=1))


def resize_pool(deployment: Deployment, size: int) -> Deployment:
    """The deployment on `size` nodes; operators of nodes that are gone have no place."""
    ordered = pool_of(deployment, size).deployment
    gone = {node.id for node in ordered.nodes[size:]}
    return lose_nodes(ordered, gone) if gone else ordered


def pool_outcomes(
    deployment: Deployment,
    sizes: Sequence[int],
    *,
    busiest: FloatArray,
    factors: FloatArray,
    table: LatencyTable | None = None,
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
    outcomes: list[PoolOutcome] = []
    places = _Places(deployment, busiest, mace_every, tuple(closed), seed)
    order = sorted(set(sizes))
    for i, size in enumerate(order):
        if step:
            step(i / len(order), f"Pool of {size} nodes")
        try:
            other = places.at(size)
            own = None if table is None else _table_of(table, other, busiest, mace_every)
            judged = probability(other, factors, table=own, mace_every=mace_every, seed=seed)
        except EngineError as error:
            outcomes.append(PoolOutcome(size, None, None, error.message))
        else:
            outcomes.append(PoolOutcome(size, _price(other), judged))
    return outcomes


def _table_of(table: LatencyTable, deployment: Deployment, busiest: FloatArray, mace_every: int) -> LatencyTable:
    """The table of another placement: what randomness adds, times what it is there by a walk of the busiest bucket."""
    model = ScaledMace(deployment.coarsened(mace_every))
    walk = walk_scaled(scaled_deployment(deployment, busiest), model.queries, model.statistics)
    return table.like(model.loads(busiest[None, :])[0], model.latencies(busiest[None, :]).latency_s[0], walk)


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
        own = resize_pool(self._deployment, size)
        starts = [own, *([own.with_placement(self._smaller)] if self._smaller else [])]
        ready = [self._searched(start) for start in starts]
        # A placement that stands needs no search to be compared.
        ready += [start for start in starts if all(operator.replicas for operator in start.operators)]
        best = min(ready, key=self._score)
        self._smaller = {operator.id: operator.replicas for operator in best.operators}
        return best

    def _searched(self, start: Deployment) -> Deployment:
        placement = place_unplaced(scaled_deployment(start, self._busiest), "search", **self._options)  # type: ignore[arg-type]
        return start.with_placement({operator.id: operator.replicas for operator in placement.operators})

    def _score(self, deployment: Deployment) -> tuple[float, float]:
        """Use of the objectives in the busiest bucket: the worst of them, then all."""
        model = ScaledMace(deployment.coarsened(self._every))
        scanned = model.latencies(self._busiest[None, :])
        shares, growth = scanned.latency_s[0] / model.bounds_s, scanned.growth[0]
        shares = np.where(growth > 0.0, np.maximum(shares, 1.0) + growth, shares)
        return float(shares.max(initial=0.0)), float(shares.sum())


def _price(deployment: Deployment) -> float | None:
    prices = [node.price_per_hour for node in deployment.nodes]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
