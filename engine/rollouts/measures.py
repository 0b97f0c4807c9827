"""How a measure moved at some agents against what would have been: at themselves before, and at others meanwhile.

What happened to the others between the same two spans is taken off: a load that grows everywhere is no configuration's
doing, and agents that always were dearer than others are no reason either. Everything is per record that came in, for
agents differ in rate; spans are whole windows, for partial rows leave in bursts when windows close.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.measurement.statistics import SampleRatio, estimate_ratio
from engine.rollouts.epochs import EPOCH_US, EpochRow

__all__ = [
    "IN_SECONDS",
    "MEASURES",
    "WINDOW_MEASURES",
    "Kind",
    "Limits",
    "Measure",
    "Rows",
    "Span",
    "block_of",
    "compare_ratios",
    "measure_query",
    "measure_windows",
    "queries_summed",
    "ratio_of",
    "windows_in",
]


#: Measures of which the change is told in seconds, and judged by the limits of latency.
IN_SECONDS = ("latency", "window", "window_p99", "queue")

#: Times the half of the 90 % interval by which a measure has to be beyond its limit: it is looked at every few seconds,
#: and so are the others in every query, so that one of them would soon be beyond it by chance.
SURE = 1.5
_MIN_BLOCK_EPOCHS = 5
_MIN_SHARE = 0.01  # of the bytes that come in: less than that sent per record is not told from nothing
_MIN_CPU_RECORDS = 1000  # on each side, of each span: the CPU time of fewer is mostly what else their host does
_SAVES = 0.02  # CPU time that makes bytes fall by so much is well spent

Rows = Mapping[str, Sequence[EpochRow]]  #: epochs in order of time, by agent
Span = tuple[int, int]  #: microseconds since 1970, from and until


@dataclass(frozen=True, slots=True)
class Limits:
    """By how much a configuration may be worse (`RolloutPolicy`)."""

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
    others_before: float | None
    others_after: float | None
    expected: float
    change: float
    base: float  #: what `change` is relative to
    uncertainty: float  #: of `change`: `SURE` times the half of its 90 % interval
    limit: float
    tells: bool = True  #: whether it is reason enough; else it is doubtful at the most

    @property
    def worse(self) -> bool:
        """Beyond its limit, and not by chance."""
        return self.tells and self.change - self.uncertainty > self.limit

    @property
    def unsure(self) -> bool:
        """Beyond its limit, perhaps by chance."""
        return self.change > self.limit and not self.worse


@dataclass(frozen=True, slots=True)
class Kind:
    """What is divided by what; changes are relative, or differences."""

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
    watched: Rows, others: Rows, *, before: Span | None, after: Span, window_us: int, limits: Limits
) -> dict[str, Measure]:
    """Every measure of a query that can be told, by its key; CPU time is judged only where it saves no bytes.

    Where there is nothing to compare with, no record is to overflow, and nothing else is told.
    """
    block_us = block_of(window_us)
    found: dict[str, Measure] = {}
    for key, kind in _KINDS.items():
        ratios = [
            ratio_of(watched, before, kind, block_us),
            ratio_of(watched, after, kind, block_us),
            ratio_of(others, before, kind, block_us),
            ratio_of(others, after, kind, block_us),
        ]
        told = key == "overflow" or ratios[0] is not None or ratios[3] is not None
        if ratios[1] is not None and told:
            least = _MIN_SHARE * _bytes_in(watched, after) if key == "bytes" else 0.0
            found[key] = compare_ratios(key, kind, ratios, limits, least)
    if "cpu" in found:
        found["cpu"] = replace(found["cpu"], tells=_cpu_tells(watched, others, before, after))
    saving = "bytes" in found and found["bytes"].change < -_SAVES
    if saving and "cpu" in found:
        found["cpu"] = replace(found["cpu"], limit=math.inf)
    return found


def block_of(window_us: int) -> int:
    """Over how long epochs are taken together, to know by how much a measure differs from one block to the next."""
    return max(window_us, _MIN_BLOCK_EPOCHS * EPOCH_US // window_us * window_us)


def ratio_of(rows: Rows, span: Span | None, kind: Kind, block_us: int) -> SampleRatio | None:
    """The ratio over a span, all agents together, its error from block to block; None where nothing came."""
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


def _cpu_tells(watched: Rows, others: Rows, before: Span | None, after: Span) -> bool:
    """CPU time also grows where a host is busy with something else, which an agent alone cannot tell."""
    spans = [span for span in (before, after) if span is not None]
    return all(_records_in(rows, span) >= _MIN_CPU_RECORDS for rows in (watched, others) for span in spans)


def _records_in(rows: Rows, span: Span) -> int:
    return sum(row.records_in for listed in rows.values() for row in listed if span[0] <= row.epoch_us < span[1])


def _bytes_in(rows: Rows, span: Span) -> float:
    inside = [row for listed in rows.values() for row in listed if span[0] <= row.epoch_us < span[1]]
    records = sum(row.records_in for row in inside)
    return sum(row.bytes_in for row in inside) / records if records else 0.0


def compare_ratios(
    key: str, kind: Kind, ratios: Sequence[SampleRatio | None], limits: Limits, least: float = 0.0
) -> Measure:
    """A measure of its ratios: at those watched before and after, the latter known, and at the others likewise."""
    own_before, own_after, others_before, others_after = ratios
    assert own_after is not None
    expected = _expected(own_before, others_before, others_after, kind.relative, least)
    used = [own_after, *([own_before, others_before, others_after] if own_before else [others_after])]
    if others_before is None and own_before:
        used = [own_after, own_before]
    base = _base(key, kind, expected, own_after.value, least)
    return Measure(
        key,
        own_before.value if own_before else None,
        own_after.value,
        others_before.value if others_before else None,
        others_after.value if others_after else None,
        expected,
        (own_after.value - expected) / base,
        base,
        SURE * math.hypot(*(one.half_width or 0.0 for one in used if one)) / base,
        _limit(key, limits, expected),
    )


def _base(key: str, kind: Kind, expected: float, after: float, least: float) -> float:
    if kind.relative:
        return max(expected, least) or after or 1.0
    return 0.01 if key == "overflow" else 1.0


def _expected(
    own: SampleRatio | None,
    others_before: SampleRatio | None,
    others_after: SampleRatio | None,
    relative: bool,
    least: float,
) -> float:
    """What would be without the configuration."""
    if own is None:
        return others_after.value if others_after else 0.0
    if others_before is None or others_after is None:
        return own.value
    if relative and others_before.value > least:
        return own.value * others_after.value / others_before.value
    return max(0.0, own.value + others_after.value - others_before.value)


def _limit(key: str, limits: Limits, expected: float) -> float:
    if key in IN_SECONDS:
        return max(limits.latency_abs_s, limits.latency_rel * expected)
    return {"overflow": limits.overflow_pp, "bytes": limits.bytes_rel, "cpu": limits.cpu_rel}[key]


_MIN_TAIL_WINDOWS = 20  # windows of which a 99 % quantile is told
_SURE_TAIL = 100  # on each side, of each span, where it is reason enough
_TAIL = 0.99
_Z = 1.645  # standard deviations that a 90 % interval reaches to either side
_MANY = 10**6  # degrees of freedom: quantiles of the normal distribution
_SECONDS = Kind(lambda row: 0.0, lambda row: 0.0, relative=False)

_WINDOW_KINDS = {
    "overflow": Kind(lambda row: row.overflow, lambda row: float(row.records_in), relative=False),
    "window": Kind(
        lambda row: math.fsum(one.latency_s for one in row.sweeps), lambda row: float(len(row.sweeps)), relative=False
    ),
    # records waiting by records coming in a second: how long they wait
    "queue": Kind(lambda row: row.queued * EPOCH_US / 1e6, lambda row: float(row.records_in), relative=False),
}
WINDOW_MEASURES = ("window", "window_p99", "queue")


def measure_windows(
    watched: Rows, others: Rows, *, before: Span | None, after: Span, window_us: int, limits: Limits
) -> dict[str, Measure]:
    """Latency of windows (mean and 99 % quantile), waiting and overflowing records, as far as they can be told.

    Rows are those of all queries of an agent `queries_summed`. Where there is nothing to compare with, no record is to
    overflow, and nothing else is told.
    """
    block_us = block_of(window_us)
    sides = ((watched, before), (watched, after), (others, before), (others, after))
    found: dict[str, Measure] = {}
    for key, kind in _WINDOW_KINDS.items():
        ratios = [ratio_of(rows, span, kind, block_us) for rows, span in sides]
        if ratios[1] is not None and (key == "overflow" or ratios[0] is not None or ratios[3] is not None):
            found[key] = compare_ratios(key, kind, ratios, limits)
    latencies = [_latencies(rows, span) for rows, span in sides]
    tails = [_tail_ratio(listed) for listed in latencies]
    if tails[1] is not None and (tails[0] is not None or tails[3] is not None):
        used = [listed for listed, one in zip(latencies, tails, strict=True) if one is not None]
        sure = all(len(listed) >= _SURE_TAIL for listed in used)
        found["window_p99"] = replace(compare_ratios("window_p99", _SECONDS, tails, limits), tells=sure)
    return found


def _latencies(rows: Rows, span: Span | None) -> list[float]:
    if span is None:
        return []
    return sorted(
        one.latency_s
        for listed in rows.values()
        for row in listed
        if span[0] <= row.epoch_us < span[1]
        for one in row.sweeps
    )


def _tail_ratio(ordered: Sequence[float]) -> SampleRatio | None:
    """The 99 % quantile with its 90 % interval by order statistics; None of few windows."""
    n = len(ordered)
    if n < _MIN_TAIL_WINDOWS:
        return None
    reach = _Z * math.sqrt(n * _TAIL * (1 - _TAIL))
    least, at, most = (
        ordered[min(n - 1, max(0, math.ceil(rank) - 1))] for rank in (n * _TAIL - reach, n * _TAIL, n * _TAIL + reach)
    )
    return SampleRatio(at, (most - least) / 2 / _Z, _MANY)


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
        sweeps=tuple(one for row in rows for one in row.sweeps),
        spans=(),
        **sums,
    )
