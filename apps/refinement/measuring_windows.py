"""What a schedule is judged by: how late windows are at an agent, all of its queries together, and what waits there.

The queries of an agent share its core, so that what one gains another may lose: it is the sum that counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from apps.refinement.measuring import Kind, Limits, Measure, Rows, Span, block_of, compare, ratio_of
from apps.refinement.recorded import EPOCH_US
from apps.telemetry.epochs import EpochRow
from engine.measurement.ratios import Ratio

__all__ = ["WINDOW_MEASURES", "measure_windows", "together", "windows_in"]

_LEAST_TAIL = 20  # windows of which a 99 % quantile is told
_SURE_TAIL = 100  # on each side, of each span, where it is reason enough
_TAIL = 0.99
_Z = 1.645  # standard deviations that a 90 % interval reaches to either side
_MANY = 10**6  # degrees of freedom: quantiles of the normal distribution
_SECONDS = Kind(lambda row: 0.0, lambda row: 0.0, relative=False)

_KINDS = {
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

    Rows are those of all queries of an agent `together`. Where there is nothing to compare with, no record is to
    overflow, and nothing else is told.
    """
    block_us = block_of(window_us)
    sides = ((watched, before), (watched, after), (others, before), (others, after))
    found: dict[str, Measure] = {}
    for key, kind in _KINDS.items():
        ratios = [ratio_of(rows, span, kind, block_us) for rows, span in sides]
        if ratios[1] is not None and (key == "overflow" or ratios[0] is not None or ratios[3] is not None):
            found[key] = compare(key, kind, ratios, limits)
    latencies = [_latencies(rows, span) for rows, span in sides]
    tails = [_tail(listed) for listed in latencies]
    if tails[1] is not None and (tails[0] is not None or tails[3] is not None):
        used = [listed for listed, one in zip(latencies, tails, strict=True) if one is not None]
        sure = all(len(listed) >= _SURE_TAIL for listed in used)
        found["window_p99"] = replace(compare("window_p99", _SECONDS, tails, limits), tells=sure)
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


def _tail(ordered: Sequence[float]) -> Ratio | None:
    """The 99 % quantile with its 90 % interval by order statistics; None of few windows."""
    n = len(ordered)
    if n < _LEAST_TAIL:
        return None
    reach = _Z * math.sqrt(n * _TAIL * (1 - _TAIL))
    least, at, most = (
        ordered[min(n - 1, max(0, math.ceil(rank) - 1))] for rank in (n * _TAIL - reach, n * _TAIL, n * _TAIL + reach)
    )
    return Ratio(at, (most - least) / 2 / _Z, _MANY)


def windows_in(rows: Rows, span: Span) -> int:
    """Windows that closed in a span."""
    return len(_latencies(rows, span))


def together(by_query: Mapping[str, Iterable[EpochRow]]) -> list[EpochRow]:
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
