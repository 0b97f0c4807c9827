"""Baselines that Jarvis is measured against, and the epoch that load factors come to (section VI)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

from engine.jarvis.partition import Frontier, Partition, outcome
from engine.jarvis.settings import AdaptationSettings
from engine.jarvis.wire_bytes import PartialRows, WireBytes

__all__ = ["BASELINES", "EpochPrediction", "SourcePipeline", "baseline", "best_op", "filter_cut"]

BASELINES = ("all-sp", "all-src", "filter-src", "best-op")  #: methods of settings that give an operator all or nothing


def baseline(method: str, frontier: Frontier, n_records: float, budget_s: float, kinds: Sequence[str]) -> Partition:
    """The plan of one of `BASELINES` for an epoch of `budget_s` CPU seconds; only best-op keeps to them.

    Examples
    --------
    >>> frontier = Frontier.of(relay=[0.5, 0.5], cost=[1e-6, 4e-6], sizes=[80, 80, 60])
    >>> [baseline(name, frontier, 40_000, 0.08, ["filter", "aggregate"]).lo for name in BASELINES]
    [0, 2, 1, 1]
    """
    if method == "best-op":
        return best_op(frontier, n_records, budget_s)
    if method == "filter-src":
        return filter_src(frontier, n_records, kinds)
    return {"all-sp": all_sp, "all-src": all_src}[method](frontier, n_records)


def all_sp(frontier: Frontier, n_records: float) -> Partition:
    """Plan that runs everything at the stream processor."""
    return frontier.cut(0, n_records)


def all_src(frontier: Frontier, n_records: float) -> Partition:
    """Everything that may run at the source runs there (Gigascope)."""
    return frontier.cut(frontier.operators, n_records)


def filter_src(frontier: Frontier, n_records: float, kinds: Sequence[str]) -> Partition:
    """The source filters and nothing else (Everflow); `kinds` are those of the operators, in order."""
    return frontier.cut(filter_cut(kinds), n_records)


def best_op(frontier: Frontier, n_records: float, budget_s: float) -> Partition:
    """The cut that sends least of those that fit the budget; of equal ones the cheapest (Sonata)."""
    fitting = [k for k, cpu_s in enumerate(frontier.cpu_s) if cpu_s * n_records <= budget_s]
    best = min(fitting or [0], key=lambda k: (frontier.sent[k], frontier.cpu_s[k], k))
    return frontier.cut(best, n_records)


def filter_cut(kinds: Sequence[str]) -> int:
    """Number of leading operators up to the first filters, with those that prepare records for them.

    None where there is no filter, or only one behind a join or an aggregate.

    Examples
    --------
    >>> filter_cut(["window", "filter", "filter", "aggregate"]), filter_cut(["join", "filter"])
    (3, 0)
    """
    first = next((i for i, kind in enumerate(kinds) if kind in ("filter", "join", "aggregate")), len(kinds))
    cut = next((i for i in range(first, len(kinds)) if kinds[i] != "filter"), len(kinds))
    return cut if cut > first else 0


@dataclass(frozen=True, slots=True)
class EpochPrediction:
    """An epoch as predicted, with records that overflow where the budget does not reach."""

    load_factors: tuple[float, ...]
    bytes_sent: float
    cpu_s: float  #: at most the budget
    overflow: float  #: records that are let in and not processed, and sent on as they came


@dataclass(frozen=True)
class SourcePipeline:
    """Operators of a query at a source with what is known of them.

    Examples
    --------
    >>> pipeline = SourcePipeline((0.86, 0.5), (1e-6, 4e-6), (86, 86, 52), ("filter", "aggregate"))
    >>> for method in ("scalar", "best-op"):
    ...     epoch = pipeline.epoch(pipeline.settled(AdaptationSettings(method), 0.1, 40_000.0), 0.1, 40_000.0)
    ...     print(method, round(epoch.bytes_sent))
    scalar 2078333
    best-op 2958400
    """

    relay: Sequence[float]  #: M, records out per record in
    cost: Sequence[float]  #: M, CPU seconds per record into each, at the number of records that is asked about
    sizes: Sequence[float]  #: M + 1, bytes of a record before the first operator and after each
    kinds: Sequence[str]  #: M, as in the pipeline, such as filter
    partials: PartialRows | None = None  #: of the last operator, where its groups are known: bytes go by them

    def settled(self, settings: AdaptationSettings, budget_s: float, n_records: float) -> tuple[float, ...]:
        """The load factors that a method has once it has settled; methods that adapt use `margin` of the budget.

        Raises
        ------
        DocumentError
            Figures of the pipeline, a budget or a number of records that no plan can be made of.
        """
        if settings.method == "fixed":
            return (*settings.load_factors, *(0.0,) * len(self.relay))[: len(self.relay)]
        frontier = Frontier.of(self.relay, self.cost, self.sizes if settings.objective == "bytes" else None)
        planned_s = settings.margin * budget_s
        if settings.method in BASELINES:
            return baseline(settings.method, frontier, n_records, planned_s, self.kinds).load_factors
        return frontier.at(planned_s, n_records).load_factors

    def epoch(self, load_factors: Sequence[float], budget_s: float, n_records: float) -> EpochPrediction:
        """Predict an epoch with these load factors and this number of records.

        Where they cost more than the budget, a share of the records overflows at the first proxy.
        """
        whole = outcome(self.relay, self.cost, self.sizes, load_factors, n_records)
        fits = min(1.0, budget_s / whole.cpu_s) if whole.cpu_s > 0 else 1.0
        let_in = load_factors[0] if load_factors else 0.0
        fitting = fits * whole.objective if self.partials is None else self._bytes(load_factors, fits * n_records)
        return EpochPrediction(
            tuple(load_factors),
            fitting + (1 - fits) * n_records * self.sizes[0],
            fits * whole.cpu_s,
            (1 - fits) * n_records * let_in,
        )

    def _bytes(self, load_factors: Sequence[float], n_records: float) -> float:
        """Bytes of records that all fit, where the last operator's rows go by their groups."""
        effective = [1.0, *accumulate(load_factors, mul), 0.0]
        leaving = {cut: above - below for cut, (above, below) in enumerate(pairwise(effective))}
        return WireBytes(self.relay, self.cost, self.sizes, n_records, self.partials).sent(leaving).total
