"""Selectivity and cycles per event as ratios of sums, with standard errors, and whether they can be relied on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.document.elements import Batch
from engine.measurement.sums import decay
from engine.solvers import solving

__all__ = [
    "BATCHES",
    "LEVEL",
    "MAX_RELATIVE_ERROR",
    "MIN_EVENTS",
    "MIN_SUBINTERVALS",
    "InputStatistic",
    "OperatorSample",
    "Readiness",
    "SampleRatio",
    "StatisticEvidence",
    "describe_evidence",
    "estimate_ratio",
    "estimate_statistic",
    "group_batches",
    "judge_readiness",
    "student_quantile",
]


LEVEL = 0.9
BATCHES = 32  # kept of a sample: four for each of the eight groups of `engine.plans.ranking`
_Z = 1.6448536269514722  # 95 % quantile of the normal distribution
# 95 % quantiles of Student's t for 1 to 8 degrees of freedom; from there on the expansion below is within 0.1 %.
_T = (6.3138, 2.9200, 2.3534, 2.1318, 2.0150, 1.9432, 1.8946, 1.8595)

MIN_EVENTS = 30
MIN_SUBINTERVALS = 3
MAX_RELATIVE_ERROR = 0.1


@dataclass(frozen=True, slots=True)
class OperatorSample:
    """One subinterval of one operator, all places together: events worked on, put out, cycles spent.

    `cycles` are of `costed` events: those of places that took the operator's own time; None where that is all of them.
    """

    at_s: float
    events: float
    outputs: float
    cycles: float
    costed: float | None = None

    @property
    def under_cycles(self) -> float:
        """Events that the cycles are of."""
        return self.events if self.costed is None else self.costed


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """A ratio of sums with its standard error; `error` is None with fewer than two subintervals."""

    value: float
    error: float | None
    degrees: int = 0

    @property
    def half_width(self) -> float | None:
        """Half of the 90 % interval, by Student's t."""
        return None if self.error is None else student_quantile(self.degrees) * self.error

    @property
    def relative(self) -> float | None:
        """Half width as a share of the value; 0 where value and error are 0."""
        half = self.half_width
        if half is None or (self.value == 0.0 and half > 0.0):
            return None
        return half / self.value if self.value else 0.0


@dataclass(frozen=True, slots=True)
class InputStatistic:
    """Statistic of an operator's input from its sample. `events` is the plain count, whatever the weights were."""

    selectivity: SampleRatio
    cycles_per_event: SampleRatio
    events: float
    subintervals: int
    batches: tuple[Batch, ...] = field(default=())


def student_quantile(degrees: int) -> float:
    """95 % quantile of Student's t (half of the 90 % interval in standard errors)."""
    if degrees < 1:
        return math.inf
    if degrees <= len(_T):
        return _T[degrees - 1]
    z, n = _Z, degrees
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def estimate_ratio(
    over: Sequence[float], under: Sequence[float], weights: Sequence[float] | None = None
) -> SampleRatio:
    """Sum of `over` by sum of `under`, with the linearised standard error of a ratio estimator.

    Parameters
    ----------
    over, under : sequence of float
        One of each per sampling unit, shape (n,).
    weights : sequence of float, optional
        Of the units; 1 unless given.

    Notes
    -----
    error^2 = n / (n - 1) * sum (w (y - R x))^2 / (sum w x)^2 over the n units with x > 0.

    References
    ----------
    Cochran, Sampling Techniques (1977), section 6.4.

    Examples
    --------
    >>> found = estimate_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    >>> found.value, found.error
    (2.0, 0.0)
    """
    weighted = weights or [1.0] * len(under)
    units = [(w, y, x) for w, y, x in zip(weighted, over, under, strict=True) if w > 0.0 and x > 0.0]
    total = math.fsum(w * x for w, _, x in units)
    if total <= 0.0:
        return SampleRatio(0.0, None)
    value = math.fsum(w * y for w, y, _ in units) / total
    n = len(units)
    if n < 2:
        return SampleRatio(value, None)
    squares = math.fsum((w * (y - value * x)) ** 2 for w, y, x in units)
    return SampleRatio(value, math.sqrt(n / (n - 1) * squares) / total, n - 1)


def estimate_statistic(
    samples: Sequence[OperatorSample], *, reference_s: float, half_life_s: float = math.inf
) -> InputStatistic:
    """Selectivity and cycles per event of a sample, older subintervals weighing less."""
    solving()
    ordered = sorted(samples, key=lambda sample: sample.at_s)
    weights = [decay(reference_s - sample.at_s, half_life_s) for sample in ordered]
    events = [sample.events for sample in ordered]
    return InputStatistic(
        selectivity=estimate_ratio([sample.outputs for sample in ordered], events, weights),
        cycles_per_event=estimate_ratio(
            [sample.cycles for sample in ordered], [sample.under_cycles for sample in ordered], weights
        ),
        events=math.fsum(events),
        subintervals=sum(count > 0.0 for count in events),
        batches=group_batches(ordered, weights),
    )


def group_batches(samples: Sequence[OperatorSample], weights: Sequence[float] | None = None) -> tuple[Batch, ...]:
    """Groups of neighbouring subintervals with events, at most `BATCHES`, for the errors of a mean.

    Neighbours stay together: so the differences of groups show what a change over time does to the mean.

    Notes
    -----
    Where cycles are of some events only, the batches have the cycles that all of their events would have taken, so that
    their sum has the ratio of sums: C events + (cycles - C costed) E / N, of which the last part is what the batch adds
    to the error of C, with E and N the sums of events and costed events.
    """
    weighted = weights or [1.0] * len(samples)
    busy = [(w, sample) for w, sample in zip(weighted, samples, strict=True) if sample.events > 0.0]
    count = min(len(busy), BATCHES)
    groups: list[list[tuple[float, OperatorSample]]] = [[] for _ in range(count)]
    for i, pair in enumerate(busy):
        groups[i * count // len(busy)].append(pair)
    events, _, cycles, costed = _sums(busy)
    cost, more = (cycles / costed, events / costed) if costed else (0.0, 0.0)
    return tuple(_extended(_sums(part), cost, more) for part in groups)


def _sums(part: Sequence[tuple[float, OperatorSample]]) -> list[float]:
    """Of events, outputs, cycles and the events that these are of."""
    names = ("events", "outputs", "cycles", "under_cycles")
    return [math.fsum(w * getattr(sample, name) for w, sample in part) for name in names]


def _extended(sums: Sequence[float], cost: float, more: float) -> Batch:
    events, outputs, cycles, costed = sums
    return Batch(events, outputs, max(0.0, cost * events + more * (cycles - cost * costed)))


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of a statistic. `events` and `seconds` are still missing; `seconds` is None where nothing arrives."""

    ready: bool
    events: int
    seconds: float | None
    relative: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class StatisticEvidence:
    """Evidence of a statistic: events, span and age in seconds, and subintervals by how they are known.

    `extrapolated` ones hold CPU time that was apportioned and not taken; `missing` ones lie within the span unheard of.
    """

    events: int
    span_s: float
    age_s: float | None
    whole: int
    extrapolated: int
    missing: int


def judge_readiness(
    measured: InputStatistic, *, span_s: float, width_s: float, unit: str = "subintervals"
) -> Readiness:
    """Judge a statistic.

    Parameters
    ----------
    span_s : float
        How long the sample took, from which the rate of events follows.
    width_s : float
        Width of a subinterval, or of the block of them that the sample consists of.
    unit : str
        What to call them.
    """
    parts = [measured.selectivity, measured.cycles_per_event]
    relative = _worst(parts)
    rate_eps = measured.events / span_s if span_s > 0.0 else 0.0
    events_needed = max(float(MIN_EVENTS), MIN_SUBINTERVALS * measured.events / max(1, measured.subintervals))
    if relative is not None and relative > MAX_RELATIVE_ERROR:
        events_needed = max(events_needed, measured.events * (relative / MAX_RELATIVE_ERROR) ** 2)
    missing = max(0, math.ceil(events_needed - measured.events))
    reason = _reason(measured, relative, unit)
    if not reason:
        return Readiness(True, 0, 0.0, relative, "")
    more_s = missing / rate_eps if rate_eps > 0.0 else None
    if more_s is not None:
        more_s = max(more_s, width_s, (MIN_SUBINTERVALS - measured.subintervals) * width_s)
    return Readiness(False, max(1, missing), more_s, relative, reason)


def _worst(parts: list[SampleRatio]) -> float | None:
    known = [part.relative for part in parts]
    return None if any(value is None for value in known) else max(value for value in known if value is not None)


def _reason(measured: InputStatistic, relative: float | None, unit: str) -> str:
    if measured.events < MIN_EVENTS:
        return f"{measured.events:.0f} of {MIN_EVENTS} events"
    if measured.subintervals < MIN_SUBINTERVALS:
        return f"{measured.subintervals} of {MIN_SUBINTERVALS} {unit}"
    if relative is None:
        return "its error cannot be told yet"
    if relative > MAX_RELATIVE_ERROR:
        return f"known to ± {100 * relative:.0f} %; wanted: ± {100 * MAX_RELATIVE_ERROR:.0f} %"
    return ""


def describe_evidence(
    times_s: list[float], measured: list[bool], *, events: float, width_s: float, now_s: float
) -> StatisticEvidence:
    """Describe subintervals by their beginnings; `measured` marks those whose CPU time was taken by operator."""
    if not times_s:
        return StatisticEvidence(0, 0.0, None, 0, 0, 0)
    span_s = max(times_s) - min(times_s) + width_s
    return StatisticEvidence(
        events=round(events),
        span_s=span_s,
        age_s=max(0.0, now_s - max(times_s) - width_s),
        whole=sum(measured),
        extrapolated=len(measured) - sum(measured),
        missing=max(0, round(span_s / width_s) - len(times_s)),
    )
