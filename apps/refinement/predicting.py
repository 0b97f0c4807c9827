"""What settings would have done with epochs that were recorded, by what was learned of the operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from apps.refinement.documents import source_operators
from apps.telemetry.epochs import EpochRow
from apps.telemetry.models import LiveQuery
from engine.jarvis.predicting import Chain
from engine.jarvis.refined import OperatorPrior
from engine.jarvis.settings import Settings

__all__ = ["Known", "Predicted", "known_of", "predict"]


@dataclass(frozen=True)
class Known:
    """The operators of a query at a source, as learned; `kinds` as in the pipeline."""

    operators: tuple[OperatorPrior, ...]
    sizes: tuple[float, ...]  #: bytes of a record before the first operator and after each
    kinds: tuple[str, ...]

    def at(self, records: float) -> Chain:
        """The chain when so many records come in an epoch: what a group costs is spread over them."""
        costs, n = [], records
        for one in self.operators:
            costs.append(one.cost_at(n))
            n *= one.relay
        return Chain([one.relay for one in self.operators], costs, self.sizes, self.kinds)


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


def known_of(document: Mapping[str, Any] | None, live: LiveQuery) -> Known | None:
    """What a refined document knows of a live query; None where it holds settings alone."""
    operators = (document or {}).get("operators") or []
    kinds = tuple(row["expression"]["op"] for row in source_operators(live))
    if document is None or not operators or len(operators) != len(kinds):
        return None
    return Known(tuple(OperatorPrior(**one) for one in operators), tuple(document["record_bytes"]), kinds)


def predict(known: Known, settings: Settings, epochs: Iterable[EpochRow], *, planned: Known | None = None) -> Predicted:
    """Replay recorded epochs: as many records, as much CPU time to be had.

    Methods that adapt count as settled. `planned` is what they believe in, where that is not what holds.
    """
    found = Predicted()
    for epoch in epochs:
        if epoch.records_in <= 0:
            continue
        n = float(epoch.records_in)
        factors = (planned or known).at(n).settled(settings, epoch.budget_s, n)
        made = known.at(n).epoch(factors, epoch.budget_s, n)
        found.add(Predicted(n, made.bytes_sent, made.cpu_s, made.overflow, 1))
    return found
