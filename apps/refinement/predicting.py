"""What settings would have done with epochs that were recorded, by what was learned of the operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.telemetry.epochs import EpochRow
from engine.jarvis.baselines import all_sp, all_src, best_op, filter_src
from engine.jarvis.partition import Frontier, outcome
from engine.jarvis.refined import OperatorPrior
from engine.jarvis.settings import Settings

__all__ = ["Chain", "Predicted", "chain_of", "predict"]


@dataclass(frozen=True)
class Chain:
    """The operators of a query at a source, as learned; `kinds` as in the pipeline."""

    operators: tuple[OperatorPrior, ...]
    sizes: tuple[float, ...]  #: bytes of a record before the first operator and after each
    kinds: tuple[str, ...]

    @property
    def relay(self) -> list[float]:
        return [one.relay for one in self.operators]

    def costs(self, records: float) -> list[float]:
        """CPU seconds per record into each operator, when so many records come in an epoch."""
        found = []
        for one in self.operators:
            found.append(one.cost_at(records))
            records *= one.relay
        return found


@dataclass
class Predicted:
    """Sums over epochs."""

    records: float = 0.0
    bytes_sent: float = 0.0
    cpu_s: float = 0.0
    overflow: float = 0.0  #: records
    epochs: int = 0

    def add(self, other: Predicted) -> None:
        """Take in another's epochs."""
        for name in ("records", "bytes_sent", "cpu_s", "overflow", "epochs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def chain_of(document: Mapping[str, Any], kinds: Sequence[str]) -> Chain | None:
    """The chain that a refined document describes; None where it holds settings alone, or another number of them."""
    operators = document.get("operators") or []
    if not operators or len(operators) != len(kinds):
        return None
    return Chain(tuple(OperatorPrior(**one) for one in operators), tuple(document["record_bytes"]), tuple(kinds))


def predict(chain: Chain, settings: Settings, epochs: Iterable[EpochRow], *, planned: Chain | None = None) -> Predicted:
    """Replay recorded epochs: as many records, as much CPU time to be had.

    What does not fit into the budget overflows: that share of the records is sent on as it came. Methods that adapt
    count as settled. `planned` is what they believe in, where that is not what holds.
    """
    found = Predicted()
    for epoch in epochs:
        if epoch.records_in <= 0:
            continue
        n = float(epoch.records_in)
        factors = _factors(planned or chain, settings, n, epoch.budget_s)
        made = outcome(chain.relay, chain.costs(n), chain.sizes, factors, n)
        fits = min(1.0, epoch.budget_s / made.cpu_s) if made.cpu_s > 0 else 1.0
        found.records += n
        found.bytes_sent += fits * made.objective + (1.0 - fits) * n * chain.sizes[0]
        found.cpu_s += fits * made.cpu_s
        found.overflow += (1.0 - fits) * n * (factors[0] if factors else 0.0)
        found.epochs += 1
    return found


def _factors(chain: Chain, settings: Settings, n: float, budget_s: float) -> Sequence[float]:
    """The load factors that a method runs with."""
    if settings.method == "fixed":
        return [*settings.load_factors, *[0.0] * len(chain.operators)][: len(chain.operators)]
    sizes = chain.sizes if settings.objective == "bytes" else None
    frontier = Frontier.of(chain.relay, chain.costs(n), sizes)
    if settings.method == "all-sp":
        return all_sp(frontier, n).load_factors
    if settings.method == "all-src":
        return all_src(frontier, n).load_factors
    if settings.method == "filter-src":
        return filter_src(frontier, n, chain.kinds).load_factors
    budget = max(0.0, budget_s * settings.margin)
    if settings.method == "best-op":
        return best_op(frontier, n, budget).load_factors
    return frontier.at(budget, n).load_factors
