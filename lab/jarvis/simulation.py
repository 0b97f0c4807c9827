"""A simulated source with a known cost: runs any controller under a schedule of budgets and rates, and scores it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.jarvis.adaptation.control import EpochObservation, OperatorEpoch
from lab.jarvis.workloads import (
    CHANGES,
    LAWS,
    QUERIES,
    SourceQuery,
    TrueOperator,
    WorkloadChange,
    WorkloadPhase,
    with_window,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.jarvis.adaptation.control import AdaptationDecision, Controller

__all__ = [
    "CHANGES",
    "LAWS",
    "QUERIES",
    "AdaptationRun",
    "SourceQuery",
    "TrueOperator",
    "WorkloadChange",
    "WorkloadPhase",
    "min_bytes",
    "simulate",
    "with_window",
]

EPOCH_S = 1.0
_CONGESTED = 0.05  # share of records overflowing, as DrainedThres
_IDLE = 0.10  # share of the budget unused, as IdleThres
_NEAR = 0.05  # bytes over the least that excuse spare CPU time
_SETTLED = 3  # stable epochs in a row
_COST_NOISE = 0.01
_RELAY_NOISE = 0.01  # of the mismatched law
_DIP = 0.7  # of the budget, in an epoch of scheduling noise
_HALVINGS = 40


@dataclass(frozen=True)
class AdaptationRun:
    """Run of a controller; arrays have one row for each epoch."""

    load_factors: NDArray[np.float64]  #: (epochs, M), that the epoch ran with
    records: NDArray[np.float64]
    bytes_sent: NDArray[np.float64]  #: with output over whole windows
    least: NDArray[np.float64]  #: bytes that the best plan would have sent, by the true costs
    overflow: NDArray[np.float64]  #: share of the records
    used: NDArray[np.float64]  #: share of the budget
    decisions: tuple[AdaptationDecision, ...]  #: after each epoch

    @property
    def congested(self) -> NDArray[np.bool_]:
        """Epochs in which more than 5 % of the records overflowed."""
        return self.overflow > _CONGESTED

    @property
    def stable(self) -> NDArray[np.bool_]:
        """Not congested, and at most 10 % of the budget idle, all processed here, or bytes within 5 % of the least."""
        everything = np.all(self.load_factors >= 1.0, axis=1)
        near = self.bytes_sent <= (1 + _NEAR) * self.least
        return ~self.congested & ((self.used >= 1 - _IDLE) | everything | near)

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Load factors differ from those of the epoch before."""
        moved = np.any(self.load_factors[1:] != self.load_factors[:-1], axis=1)
        return np.concatenate(([False], moved))

    def epochs_to_stable(self, since: int) -> int | None:
        """Epochs from `since` on until the first of three stable ones in a row; None where that never comes."""
        stable = self.stable[since:]
        for begin in range(len(stable) - _SETTLED + 1):
            if stable[begin : begin + _SETTLED].all():
                return begin
        return None

    def over_least(self, since: int = 0, until: int | None = None) -> float:
        """Bytes sent over the least possible."""
        span = slice(since, until)
        least = float(self.least[span].sum())
        return float(self.bytes_sent[span].sum()) / least if least > 0 else 1.0


def simulate(
    query: SourceQuery,
    controller: Controller,
    schedule: Sequence[WorkloadPhase],
    seed: int,
    law: str = "fitted",
    dips: float = 0.0,
    cost_noise: float = _COST_NOISE,
) -> AdaptationRun:
    """Run a controller through a schedule.

    Parameters
    ----------
    query
        Whose operators the controller was made for (`Query.source_operators`).
    schedule
        What follows on what.
    seed
        Of all noise; the same seed gives the same run.
    law
        One of `LAWS`.
    dips
        Share of epochs in which the budget is 30 % less.
    cost_noise
        Relative standard deviation of an operator's CPU time from one epoch to the next.
    """
    source = _Source(np.random.default_rng(seed), law, cost_noise)
    rows = []
    epochs = ((phase, query) for phase in schedule for _ in range(phase.epochs))
    for epoch, (stretch, nominal) in enumerate(epochs):
        true, records_s = stretch.at(nominal)
        budget_s = stretch.cores * EPOCH_S * (_DIP if source.random.random() < dips else 1.0)
        factors = controller.load_factors
        seen, sent = source.epoch(epoch, true, factors, records_s * EPOCH_S, budget_s)
        decision = controller.decide(seen)
        records = max(seen.n_records, 1)
        best = source.least(true, records_s * EPOCH_S, budget_s)
        share = seen.used_s / budget_s if budget_s > 0 else 1.0
        rows.append((factors, records, sent, best, seen.overflow / records, share, decision))
    given, n, bytes_sent, least, overflow, used, decisions = zip(*rows, strict=True)
    return AdaptationRun(
        load_factors=np.asarray(given, dtype=np.float64),
        records=np.asarray(n, dtype=np.float64),
        bytes_sent=np.asarray(bytes_sent, dtype=np.float64),
        least=np.asarray(least, dtype=np.float64),
        overflow=np.asarray(overflow, dtype=np.float64),
        used=np.asarray(used, dtype=np.float64),
        decisions=decisions,
    )


class _Source:
    """Simulated source: computes epochs and keeps the contents of its open windows."""

    def __init__(self, random: np.random.Generator, law: str, cost_noise: float) -> None:
        self.random, self._law, self._cost_noise = random, law, cost_noise
        self._held: dict[int, float] = {}
        self._leasts: dict[tuple[int, float, float], float] = {}

    def least(self, query: SourceQuery, records: float, budget_s: float) -> float:
        key = (id(query), records, budget_s)
        if key not in self._leasts:
            self._leasts[key] = min_bytes(query, records, budget_s, self._law)
        return self._leasts[key]

    def epoch(
        self, epoch: int, query: SourceQuery, factors: Sequence[float], records: float, budget_s: float
    ) -> tuple[EpochObservation, float]:
        """Observation of an epoch, and the bytes that it sent, output counted over whole windows."""
        noisy = (1 + self._cost_noise * self.random.standard_normal(len(query.operators))).tolist()
        relay_noise = _RELAY_NOISE if self._law == "mismatched" else 0.0
        relays = (1 + relay_noise * self.random.standard_normal(len(query.operators))).tolist()
        share = self._share(query, factors, records, budget_s, noisy, relays)
        rows, sent, comes, size = [], 0.0, float(round(records)), query.record_bytes
        for k, (operator, p) in enumerate(zip(query.operators, factors, strict=True)):
            let_in = round(comes * p)
            works = int(share * let_in) if k == 0 else let_in
            out = operator.rows(works, EPOCH_S, self._law) * (relays[k] if not operator.groups else 1.0)
            left = (comes - works) * size
            sent += left
            seen_out = self._emitted(k, epoch, operator, works) if operator.window_s else out
            rows.append(
                OperatorEpoch(
                    load_factor=p,
                    records_in=round(comes),
                    processed=works,
                    drained=round(comes) - let_in,
                    overflow=let_in - works,
                    records_out=round(seen_out),
                    groups=int(operator.distinct(works, self._law) + self.random.random()),
                    bytes_in=round(comes * size),
                    bytes_out=round(seen_out * operator.bytes_out),
                    bytes_drained=round(left),
                    cpu_s=operator.cpu_s(works, self._law) * noisy[k],
                )
            )
            comes, size = float(round(out)), operator.bytes_out
        sent += comes * size
        used_s = min(sum(operator.cpu_s for operator in rows), budget_s)
        return EpochObservation(epoch * 1_000_000, EPOCH_S, tuple(rows), budget_s, used_s), sent

    def _emitted(self, k: int, epoch: int, operator: TrueOperator, works: int) -> float:
        """Rows that leave in this epoch: those of a window that it closes."""
        held = self._held.get(k, 0.0) + works
        epochs = round((operator.window_s or EPOCH_S) / EPOCH_S)
        closes = (epoch + 1) % epochs == 0
        self._held[k] = 0.0 if closes else held
        return operator.distinct(held, self._law) if closes else 0.0

    def _share(
        self,
        query: SourceQuery,
        factors: Sequence[float],
        records: float,
        budget_s: float,
        noisy: Sequence[float],
        relays: Sequence[float],
    ) -> float:
        """Share of admitted records that the budget suffices for: records pass the whole pipeline in turn."""

        def cpu_s(share: float) -> float:
            total, comes = 0.0, records * share
            for k, operator in enumerate(query.operators):
                works = comes * factors[k]
                total += operator.cpu_s(works, self._law) * noisy[k]
                comes = operator.rows(works, EPOCH_S, self._law) * relays[k]
            return total

        return _largest(cpu_s, budget_s)


def _largest(cpu_s: Callable[[float], float], budget_s: float) -> float:
    """Largest share in [0, 1] whose CPU time, which grows with it, is within the budget."""
    if cpu_s(1.0) <= budget_s:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cpu_s(middle) <= budget_s else (low, middle)
    return low


def min_bytes(query: SourceQuery, records: float, budget_s: float, law: str = "fitted") -> float:
    """Fewest bytes that an epoch can send: the best mix of two operator-level plans, by the true costs."""
    operators = query.operators

    def outcome(lo: int, hi: int, theta: float) -> tuple[float, float]:
        cpu, sent, comes, size = 0.0, 0.0, records, query.record_bytes
        for k, operator in enumerate(operators):
            works = comes * (1.0 if k < lo else theta if k == lo else 1.0 if k < hi else 0.0)
            cpu += operator.cpu_s(works, law)
            sent += (comes - works) * size
            comes, size = operator.rows(works, EPOCH_S, law), operator.bytes_out
        return cpu, sent + comes * size

    def cpu_s(lo: int, hi: int, theta: float) -> float:
        return outcome(lo, hi, theta)[0]

    best = records * query.record_bytes
    for lo, hi in itertools.combinations(range(len(operators) + 1), 2):
        if outcome(lo, hi, 0.0)[0] <= budget_s:
            theta = _largest(partial(cpu_s, lo, hi), budget_s)
            best = min(best, outcome(lo, hi, theta)[1], outcome(lo, hi, 0.0)[1])
    return best
