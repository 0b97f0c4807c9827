"""Epochs of agents, and measures of a rollout: their change at the canary against its own past and the control.

The change of the control between the same two spans is subtracted: a load that grows everywhere is not caused by the
configuration, nor are costs that always were higher at the canary. Measures are per input record, since agents differ
in rate; spans are whole windows, since partial rows leave in bursts when windows close. Window latency and time in
queue judge a schedule over all queries of an agent together: these share its core, so that one may gain what another
loses.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.measurement.statistics import SampleRatio, estimate_ratio

__all__ = [
    "EPOCH_US",
    "IN_SECONDS",
    "MEASURES",
    "WINDOW_MEASURES",
    "EpochRow",
    "Limits",
    "Measure",
    "Rows",
    "Span",
    "Sweep",
    "WatermarkForecast",
    "measure_query",
    "measure_windows",
    "queries_summed",
    "windows_in",
]

EPOCH_S = 1.0


EPOCH_US = round(EPOCH_S * 1e6)


class WatermarkForecast(NamedTuple):
    """When the next sweeping watermark is expected, with its interval; microseconds since 1970."""

    mean_us: int
    least_us: int
    most_us: int


class Sweep(NamedTuple):
    """One window whose watermark has passed all operators at the agent; microseconds since 1970."""

    deadline_us: int  #: its end
    least_us: int | None  #: in which interval its watermark had been expected; None where nothing was known
    most_us: int | None
    arrived_us: int  #: when the watermark had passed the deadline
    swept_us: int  #: when it had passed the operators
    emitted_us: int  #: when the window was handed to the spool

    @property
    def latency_s(self) -> float:
        """From deadline to emission."""
        return (self.emitted_us - self.deadline_us) / 1e6

    @property
    def delay_s(self) -> float:
        """From deadline to arrival of the watermark; 0 where the clocks say less."""
        return max(0.0, (self.arrived_us - self.deadline_us) / 1e6)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The interval as delays after the deadline."""
        if self.least_us is None or self.most_us is None:
            return None
        return (self.least_us - self.deadline_us) / 1e6, (self.most_us - self.deadline_us) / 1e6

    @property
    def is_hit(self) -> bool | None:
        """Whether the watermark came in its interval; None where none had been known."""
        if self.least_us is None or self.most_us is None:
            return None
        return self.least_us <= self.arrived_us <= self.most_us


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch of one query at one agent. What an agent leaves out has its default."""

    epoch_us: int  #: when it began, microseconds since 1970
    load_factors: tuple[float, ...]
    records_in: int
    bytes_in: int
    bytes_sent: int  #: drained, overflowing, and put out by the last operator
    overflow: int  #: records let in and sent on unprocessed
    used_s: float  #: CPU seconds of its operators
    budget_s: float  #: that they could have had
    idle_s: float
    delay_s: float | None  #: from the newest acknowledged epoch's end to the console's acknowledgement of its frames
    version: int | None  #: of the refined document in force
    queued: int = 0  #: records that waited when it ended, and their bytes
    queued_bytes: int = 0
    slack_s: float | None = None  #: until the next window would be late; None where nothing is known
    expected: WatermarkForecast | None = None  #: of the next sweeping watermark
    sweeps: tuple[Sweep, ...] = ()  #: windows that were swept in it
    spans: tuple[tuple[float, float], ...] = ()  #: when it ran: milliseconds since the epoch began, and how many
    schedule_version: int | None = None  #: of the refined schedule of the agent in force
    timed: int = 0  #: windows, or records of a query without windows, that left and have a latency constraint
    in_time: int = 0  #: of these, those that could keep it
    shed_late: int = 0  #: of the overflow, records that were late everywhere and lost, where the query allows that


#: Measures whose change is in seconds, judged by the limits of latency.
IN_SECONDS = ("latency", "window", "window_p99", "queue")

#: Half-widths of the 90 % interval by which a measure has to exceed its limit: measures of every query are judged every
#: few seconds, so that one of them would soon exceed it by chance.
SURE = 1.5
_MIN_BLOCK_EPOCHS = 5
_MIN_SHARE = 0.01  # of the bytes that come in: less than that sent per record counts as nothing
_MIN_CPU_RECORDS = 1000  # on each side, of each span: the CPU time of fewer is mostly other work of their host
_SAVES = 0.02  # CPU time that makes bytes fall by so much is well spent

Rows = Mapping[str, Sequence[EpochRow]]  #: epochs in order of time, by agent
Span = tuple[int, int]  #: microseconds since 1970, from and until


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a rollout policy: by how much a configuration may be worse."""

    overflow_pp: float
    bytes_rel: float
    latency_rel: float
    latency_abs_s: float
    cpu_rel: float


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure in one query. `change` is relative; of overflow in percentage points, of latency in seconds."""

    key: str
    before: float | None
    after: float
    control_before: float | None
    control_after: float | None
    expected: float
    change: float
    base: float  #: what `change` is relative to
    uncertainty: float  #: of `change`: `SURE` times the half of its 90 % interval
    limit: float
    is_conclusive: bool = True  #: else it is at most doubtful

    @property
    def is_worse(self) -> bool:
        """Beyond its limit, and not by chance."""
        return self.is_conclusive and self.change - self.uncertainty > self.limit

    @property
    def is_doubtful(self) -> bool:
        """Beyond its limit, perhaps by chance."""
        return self.change > self.limit and not self.is_worse


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of a measure: numerator and denominator; changes are relative, or differences."""

    over: Callable[[EpochRow], float]
    under: Callable[[EpochRow], float]
    relative: bool


def _records(row: EpochRow) -> float:
    return float(row.records_in)


_KINDS = {
    "overflow": Kind(lambda row: row.overflow, _records, relative=False),
    "bytes": Kind(lambda row: row.bytes_sent, _records, relative=True),
    "latency": Kind(lambda row: row.delay_s or 0.0, lambda row: float(row.delay_s is not None), relative=False),
    "cpu": Kind(lambda row: row.used_s, _records, relative=True),
}
MEASURES = tuple(_KINDS)


def measure_query(
    canary: Rows, control: Rows, *, before: Span | None, after: Span, window_us: int, limits: Limits
) -> dict[str, Measure]:
    """Every measure of a query that is known, by its key; CPU time that saves bytes has no limit.

    Where there is nothing to compare with, overflow is measured against zero, and nothing else is.
    """
    block_us = block_of(window_us)
    measures: dict[str, Measure] = {}
    for key, kind in _KINDS.items():
        ratios = [
            ratio_of(canary, before, kind, block_us),
            ratio_of(canary, after, kind, block_us),
            ratio_of(control, before, kind, block_us),
            ratio_of(control, after, kind, block_us),
        ]
        is_comparable = key == "overflow" or ratios[0] is not None or ratios[3] is not None
        if ratios[1] is not None and is_comparable:
            minimum = _MIN_SHARE * _bytes_in(canary, after) if key == "bytes" else 0.0
            measures[key] = compare_ratios(key, kind, ratios, limits, minimum)
    if "cpu" in measures:
        measures["cpu"] = replace(measures["cpu"], is_conclusive=_is_cpu_conclusive(canary, control, before, after))
    saving = "bytes" in measures and measures["bytes"].change < -_SAVES
    if saving and "cpu" in measures:
        measures["cpu"] = replace(measures["cpu"], limit=math.inf)
    return measures


def block_of(window_us: int) -> int:
    """Length of the blocks of epochs whose differences give a measure's error, in microseconds."""
    return max(window_us, _MIN_BLOCK_EPOCHS * EPOCH_US // window_us * window_us)


def ratio_of(rows: Rows, span: Span | None, kind: Kind, block_us: int) -> SampleRatio | None:
    """The ratio over a span, all agents together, with its error over blocks; None without records."""
    if span is None:
        return None
    over: dict[int, float] = defaultdict(float)
    under: dict[int, float] = defaultdict(float)
    for listed in rows.values():
        for row in listed:
            if span[0] <= row.epoch_us < span[1]:
                block = (row.epoch_us - span[0]) // block_us
                over[block] += kind.over(row)
                under[block] += kind.under(row)
    if sum(under.values()) <= 0:
        return None
    return estimate_ratio([over[block] for block in under], list(under.values()))


def _is_cpu_conclusive(canary: Rows, control: Rows, before: Span | None, after: Span) -> bool:
    """CPU time also grows on a busy host, which an agent alone cannot tell apart."""
    spans = [span for span in (before, after) if span is not None]
    return all(_records_in(rows, span) >= _MIN_CPU_RECORDS for rows in (canary, control) for span in spans)


def _records_in(rows: Rows, span: Span) -> int:
    return sum(row.records_in for listed in rows.values() for row in listed if span[0] <= row.epoch_us < span[1])


def _bytes_in(rows: Rows, span: Span) -> float:
    inside = [row for listed in rows.values() for row in listed if span[0] <= row.epoch_us < span[1]]
    records = sum(row.records_in for row in inside)
    return sum(row.bytes_in for row in inside) / records if records else 0.0


def compare_ratios(
    key: str, kind: Kind, ratios: Sequence[SampleRatio | None], limits: Limits, minimum: float = 0.0
) -> Measure:
    """A measure by its ratios: at the canary before and after (the latter known), and at the control likewise."""
    canary_before, canary_after, control_before, control_after = ratios
    assert canary_after is not None
    expected = _expected(canary_before, control_before, control_after, kind.relative, minimum)
    used = [canary_after, *([canary_before, control_before, control_after] if canary_before else [control_after])]
    if control_before is None and canary_before:
        used = [canary_after, canary_before]
    base = _base(key, kind, expected, canary_after.value, minimum)
    return Measure(
        key,
        canary_before.value if canary_before else None,
        canary_after.value,
        control_before.value if control_before else None,
        control_after.value if control_after else None,
        expected,
        (canary_after.value - expected) / base,
        base,
        SURE * math.hypot(*(used_ratio.half_width or 0.0 for used_ratio in used if used_ratio)) / base,
        _limit(key, limits, expected),
    )


def _base(key: str, kind: Kind, expected: float, after: float, minimum: float) -> float:
    if kind.relative:
        return max(expected, minimum) or after or 1.0
    return 0.01 if key == "overflow" else 1.0


def _expected(
    canary: SampleRatio | None,
    control_before: SampleRatio | None,
    control_after: SampleRatio | None,
    relative: bool,
    minimum: float,
) -> float:
    """The value to expect without the configuration."""
    if canary is None:
        return control_after.value if control_after else 0.0
    if control_before is None or control_after is None:
        return canary.value
    if relative and control_before.value > minimum:
        return canary.value * control_after.value / control_before.value
    return max(0.0, canary.value + control_after.value - control_before.value)


def _limit(key: str, limits: Limits, expected: float) -> float:
    if key in IN_SECONDS:
        return max(limits.latency_abs_s, limits.latency_rel * expected)
    return {"overflow": limits.overflow_pp, "bytes": limits.bytes_rel, "cpu": limits.cpu_rel}[key]


_MIN_TAIL_WINDOWS = 20  # windows below which no 99 % quantile is computed
_SURE_TAIL = 100  # on each side, of each span, where it is conclusive
_TAIL = 0.99
_Z = 1.645  # standard deviations that a 90 % interval reaches to either side
_MANY = 10**6  # degrees of freedom: quantiles of the normal distribution
_SECONDS = Kind(lambda row: 0.0, lambda row: 0.0, relative=False)

_WINDOW_KINDS = {
    "overflow": Kind(lambda row: row.overflow, lambda row: float(row.records_in), relative=False),
    "window": Kind(
        lambda row: math.fsum(sweep.latency_s for sweep in row.sweeps),
        lambda row: float(len(row.sweeps)),
        relative=False,
    ),
    # records queued, divided by records arriving in a second
    "queue": Kind(lambda row: row.queued * EPOCH_US / 1e6, lambda row: float(row.records_in), relative=False),
}
WINDOW_MEASURES = ("window", "window_p99", "queue")


def measure_windows(
    canary: Rows, control: Rows, *, before: Span | None, after: Span, window_us: int, limits: Limits
) -> dict[str, Measure]:
    """Window latency (mean and 99 % quantile), time in queue and overflow, as far as they are known.

    Rows are those of `queries_summed`. Where there is nothing to compare with, overflow is measured against zero, and
    nothing else is.
    """
    block_us = block_of(window_us)
    sides = ((canary, before), (canary, after), (control, before), (control, after))
    measures: dict[str, Measure] = {}
    for key, kind in _WINDOW_KINDS.items():
        ratios = [ratio_of(rows, span, kind, block_us) for rows, span in sides]
        if ratios[1] is not None and (key == "overflow" or ratios[0] is not None or ratios[3] is not None):
            measures[key] = compare_ratios(key, kind, ratios, limits)
    latencies = [_latencies(rows, span) for rows, span in sides]
    tails = [_tail_ratio(listed) for listed in latencies]
    if tails[1] is not None and (tails[0] is not None or tails[3] is not None):
        used = [listed for listed, tail in zip(latencies, tails, strict=True) if tail is not None]
        is_sure = all(len(listed) >= _SURE_TAIL for listed in used)
        measures["window_p99"] = replace(compare_ratios("window_p99", _SECONDS, tails, limits), is_conclusive=is_sure)
    return measures


def _latencies(rows: Rows, span: Span | None) -> list[float]:
    if span is None:
        return []
    return sorted(
        sweep.latency_s
        for listed in rows.values()
        for row in listed
        if span[0] <= row.epoch_us < span[1]
        for sweep in row.sweeps
    )


def _tail_ratio(ordered: Sequence[float]) -> SampleRatio | None:
    """The 99 % quantile with its 90 % interval by order statistics; None of few windows."""
    n = len(ordered)
    if n < _MIN_TAIL_WINDOWS:
        return None
    reach = _Z * math.sqrt(n * _TAIL * (1 - _TAIL))
    low, at, high = (
        ordered[min(n - 1, max(0, math.ceil(rank) - 1))] for rank in (n * _TAIL - reach, n * _TAIL, n * _TAIL + reach)
    )
    return SampleRatio(at, (high - low) / 2 / _Z, _MANY)


def windows_in(rows: Rows, span: Span) -> int:
    """Windows that closed in a span."""
    return len(_latencies(rows, span))


def queries_summed(by_query: Mapping[str, Iterable[EpochRow]]) -> list[EpochRow]:
    """The epochs of an agent, all of its queries together, in order of time."""
    epochs: dict[int, list[EpochRow]] = {}
    for rows in by_query.values():
        for row in rows:
            epochs.setdefault(row.epoch_us, []).append(row)
    return [_sum(epochs[epoch_us]) for epoch_us in sorted(epochs)]


def _sum(rows: Sequence[EpochRow]) -> EpochRow:
    sums = {
        name: sum(getattr(row, name) for row in rows)
        for name in ("records_in", "bytes_in", "bytes_sent", "overflow", "used_s", "budget_s", "queued", "queued_bytes")
    }
    return replace(
        rows[0],
        load_factors=(),
        version=None,
        slack_s=None,
        expected=None,
        sweeps=tuple(sweep for row in rows for sweep in row.sweeps),
        spans=(),
        **sums,
    )
