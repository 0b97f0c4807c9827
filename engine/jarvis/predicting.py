"""What a method comes to with a budget, and what load factors then send: for previews, checks and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.jarvis.baselines import BASELINES, baseline
from engine.jarvis.partition import Frontier, outcome
from engine.jarvis.settings import Settings

__all__ = ["Chain", "Epoch"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch as predicted, with records that overflow where the budget does not reach."""

    load_factors: tuple[float, ...]
    bytes_sent: float
    cpu_s: float  #: at most the budget
    overflow: float  #: records that are let in and not processed, and sent on as they came


@dataclass(frozen=True)
class Chain:
    """Operators of a query at a source with what is known of them.

    Examples
    --------
    >>> chain = Chain((0.86, 0.5), (1e-6, 4e-6), (86, 86, 52), ("filter", "aggregate"))
    >>> for method in ("scalar", "best-op"):
    ...     epoch = chain.epoch(chain.settled(Settings(method), 0.1, 40_000.0), 0.1, 40_000.0)
    ...     print(method, round(epoch.bytes_sent))
    scalar 2078333
    best-op 2958400
    """

    relay: Sequence[float]  #: M, records out per record in
    cost: Sequence[float]  #: M, CPU seconds per record into each, at the number of records that is asked about
    sizes: Sequence[float]  #: M + 1, bytes of a record before the first operator and after each
    kinds: Sequence[str]  #: M, as in the pipeline, such as filter

    def settled(self, settings: Settings, budget_s: float, n_records: float) -> tuple[float, ...]:
        """The load factors that a method has once it has settled; methods that adapt use `margin` of the budget.

        Raises
        ------
        DocumentError
            Figures of the chain, a budget or a number of records that no plan can be made of.
        """
        if settings.method == "fixed":
            return (*settings.load_factors, *(0.0,) * len(self.relay))[: len(self.relay)]
        frontier = Frontier.of(self.relay, self.cost, self.sizes if settings.objective == "bytes" else None)
        planned_s = settings.margin * budget_s
        if settings.method in BASELINES:
            return baseline(settings.method, frontier, n_records, planned_s, self.kinds).load_factors
        return frontier.at(planned_s, n_records).load_factors

    def epoch(self, load_factors: Sequence[float], budget_s: float, n_records: float) -> Epoch:
        """What these load factors lead to when so many records come.

        Where they cost more than the budget, a share of the records overflows at the first proxy.
        """
        whole = outcome(self.relay, self.cost, self.sizes, load_factors, n_records)
        fits = min(1.0, budget_s / whole.cpu_s) if whole.cpu_s > 0 else 1.0
        let_in = load_factors[0] if load_factors else 0.0
        return Epoch(
            tuple(load_factors),
            fits * whole.objective + (1 - fits) * n_records * self.sizes[0],
            fits * whole.cpu_s,
            (1 - fits) * n_records * let_in,
        )
