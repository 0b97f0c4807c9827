"""A recorded period: what ran at its beginning, how much arrived when, and who asked for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.admission.changes import Change
from engine.arrays import FloatArray
from engine.document.deployment import Deployment, Replica
from engine.errors import Fault, InfeasibleError

__all__ = [
    "RecordedDecision",
    "RecordedPeriod",
    "RecordedRequest",
    "RecordedStop",
    "SourceRecord",
    "check_period",
    "period_factors",
]

MAX_SEGMENTS = 400


@dataclass(frozen=True, eq=False)
class SourceRecord:
    """Arrivals of one source as recorded.

    Attributes
    ----------
    rates_eps : array, shape (n,)
        Events per second in every segment; NaN where nothing was recorded.
    measured : int
        Segments known from telemetry; the other known ones are from the load history.
    arrivals_eps : float
        Mean rate of the source's arrivals in the deployment, which every segment scales.
    """

    rates_eps: FloatArray
    measured: int
    arrivals_eps: float

    @property
    def known(self) -> int:
        """Segments of which something was recorded."""
        return int(np.isfinite(self.rates_eps).sum())

    def filled(self) -> FloatArray:
        """Rates without gaps: as in the last known segment before, or the first known one."""
        known = np.flatnonzero(np.isfinite(self.rates_eps))
        before = np.searchsorted(known, np.arange(len(self.rates_eps)), side="right") - 1
        return np.asarray(self.rates_eps[known[np.maximum(before, 0)]])


@dataclass(frozen=True)
class RecordedDecision:
    """Recorded outcome of a request: admitted, rejected, queued, review, or not applied.

    `at_s` is when it began to run; `placement` where, by operator.
    """

    outcome: str
    reason: str
    at_s: float | None = None
    placement: Mapping[str, tuple[Replica, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RecordedRequest:
    """A query that asked to be admitted at `at_s` (unix seconds); a running one of its name is replaced."""

    at_s: float
    candidate: Mapping[str, Any]
    decided: RecordedDecision
    changes: tuple[Change, ...] = ()
    id: str = ""

    @property
    def query(self) -> str:
        """Name of the query."""
        return str(self.candidate["query"])


@dataclass(frozen=True)
class RecordedStop:
    """A query that was stopped at `at_s`."""

    at_s: float
    query: str


@dataclass(frozen=True, eq=False)
class RecordedPeriod:
    """A recorded period of `segments` times `width_s` from `since_s` (unix seconds) on.

    Attributes
    ----------
    deployment : Deployment
        What ran at the beginning, with every source that anything in the period reads, at the width Flow runs on.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    added_s : mapping
        By query, what live queries wait beside Flow's latency (epoch, trigger, batch).
    measured_s : mapping
        By query, the largest measured latency of every segment, NaN where none was.
    recorded_moves : int
        Operators that were really moved in the period.
    notes : tuple of str
        What the records cannot say, in words.
    """

    deployment: Deployment
    since_s: float
    width_s: float
    segments: int
    sources: Mapping[str, SourceRecord]
    requests: Sequence[RecordedRequest] = ()
    stops: Sequence[RecordedStop] = ()
    mace_every: int = 1
    closed_nodes: tuple[str, ...] = ()
    added_s: Mapping[str, float] = field(default_factory=dict)
    measured_s: Mapping[str, FloatArray] = field(default_factory=dict)
    recorded_moves: int = 0
    notes: tuple[str, ...] = ()

    def segment_of(self, at_s: float) -> int:
        """The segment in which a moment lies; what came before the period counts at its beginning."""
        return max(0, min(self.segments, int((at_s - self.since_s) // self.width_s)))

    def starts_s(self, segment: int) -> float:
        """Beginning of a segment, unix seconds."""
        return self.since_s + segment * self.width_s


def check_period(period: RecordedPeriod) -> None:
    """Refuse a period of which nothing was recorded, and one of too many segments.

    Raises
    ------
    InfeasibleError
    """
    faults = []
    if not 1 <= period.segments <= MAX_SEGMENTS:
        message = f"the period has {period.segments} segments; allowed: 1 to {MAX_SEGMENTS}"
        faults.append(Fault("segments", message))
    elif not any(record.known for record in period.sources.values()):
        message = "nothing was recorded in this period: neither telemetry nor a load history of any source reaches it"
        faults.append(Fault("since", message))
    if faults:
        raise InfeasibleError(f"No backtest: {faults[0].message}", faults)


def period_factors(period: RecordedPeriod, deployment: Deployment) -> FloatArray:
    """Recorded rate over the rate of the arrivals, shape (segments, sources of `deployment`).

    A source named ``s@q`` is a private copy of ``s`` and follows its record. One without a record stays as it is.
    """
    rows = []
    for source in deployment.sources:
        record = period.sources.get(source.id.partition("@")[0])
        if record is None or not record.known or record.arrivals_eps <= 0.0:
            rows.append(np.ones(period.segments))
        else:
            rows.append(record.filled() / record.arrivals_eps)
    return np.stack(rows, axis=1) if rows else np.zeros((period.segments, 0))
