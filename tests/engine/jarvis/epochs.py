"""Epochs as a controller sees them, and sources on bad days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.jarvis.adaptation.control import AdaptationDecision, Controller, EpochObservation, OperatorEpoch
from engine.jarvis.adaptation.controllers import make_controller
from engine.jarvis.settings import AdaptationSettings
from lab.jarvis.simulation import SourceQuery

__all__ = ["Meddled", "adapting", "crashed", "epoch", "worked"]


def adapting(query: SourceQuery, **settings: object) -> Controller:
    """A controller for a query of the simulation, without a prior."""
    return make_controller(AdaptationSettings(**settings), query.source_operators(), None)


def worked(processed: int, **given: float) -> OperatorEpoch:
    """An operator that worked on all that it let in, 1 us and 10 bytes a record, all of it handed on."""
    plain = {
        "load_factor": 1.0,
        "records_in": processed,
        "processed": processed,
        "drained": 0,
        "overflow": 0,
        "records_out": processed,
        "groups": 0,
        "bytes_in": 10 * processed,
        "bytes_out": 10 * processed,
        "bytes_drained": 0,
        "cpu_s": processed * 1e-6,
    }
    return OperatorEpoch(**{**plain, **given})


def epoch(*operators: OperatorEpoch, number: int = 0, budget_s: float = 1.0) -> EpochObservation:
    """An epoch of one second."""
    return EpochObservation(number * 1_000_000, 1.0, operators, budget_s, sum(operator.cpu_s for operator in operators))


def crashed(seen: EpochObservation, k: int) -> EpochObservation:
    """The same epoch with operator `k` failing on all of its records; those after it see none."""
    operators = list(seen.operators)
    entry = operators[k]
    left = entry.processed + entry.overflow
    operators[k] = replace(
        entry,
        processed=0,
        overflow=left,
        records_out=0,
        groups=0,
        bytes_out=0,
        cpu_s=0.0,
        bytes_drained=round(entry.bytes_in * (left + entry.drained) / max(entry.records_in, 1)),
    )
    for j in range(k + 1, len(operators)):
        operators[j] = OperatorEpoch(operators[j].load_factor, *(0,) * 9, 0.0)
    return replace(seen, operators=tuple(operators), used_s=sum(operator.cpu_s for operator in operators))


class Meddled:
    """A controller whose observations are changed on the way to it, by epoch number."""

    def __init__(self, inner: Controller, change: Callable[[int, EpochObservation], EpochObservation]) -> None:
        self.inner, self._change, self._epoch = inner, change, -1

    @property
    def load_factors(self) -> Sequence[float]:
        return self.inner.load_factors

    def decide(self, seen: EpochObservation) -> AdaptationDecision:
        self._epoch += 1
        return self.inner.decide(self._change(self._epoch, seen))
