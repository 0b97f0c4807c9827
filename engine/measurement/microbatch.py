"""Latency of a query whose last part runs in micro-batches: section VII-A with w as the trigger interval.

A micro-batch engine keeps stimulus-time order across its batches and none within them, which is what section VII-A
allows for: lambda of such a server is the whole work of an interval instead of one event of each input.

References: paper, section VII-A, lemma 2, theorem 3.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import computed_field

from engine.arrays import FloatArray
from engine.estimation.waits.summary import QueryWaits, independent_waits
from engine.records import Record

if TYPE_CHECKING:  # it loads numba, which readers of estimates do without
    from engine.estimation.mace import Mace


__all__ = ["LiveLatency", "StageTiming", "batch_upper_s", "batch_work_s", "live_latency", "live_waits"]

_EVEN = 257  # places in an interval that stand for all
_Z = 1.6448536269514722  # standard errors on either side of a 90 % interval


@dataclass(frozen=True, slots=True)
class StageTiming:
    """Timing of the stages. `batches_s` are durations of recent batches, empty where none is known."""

    epoch_s: float
    trigger_s: float
    batches_s: tuple[float, ...] = ()

    @property
    def interval_s(self) -> float:
        """Seconds between two batches: the trigger interval, or the batch where it takes longer than that."""
        return max(self.trigger_s, self.batch_s)

    @property
    def is_assumed(self) -> bool:
        """Whether no batch was timed yet."""
        return not self.batches_s

    @property
    def batch_s(self) -> float:
        """Median of recent batches; 0 where none is known."""
        return statistics.median(self.batches_s) if self.batches_s else 0.0


@dataclass(frozen=True)
class LiveLatency(Record):
    """A live query's latency and its parts, in seconds; `margin_s` is half of the 90 % interval of the waits."""

    processing_s: float
    epoch_s: float
    trigger_s: float
    overhead_s: float
    work_s: float
    margin_s: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total_s(self) -> float:
        return self.processing_s + self.added_s

    @property
    def added_s(self) -> float:
        """Seconds that the stages add to queueing and processing."""
        return self.epoch_s + self.trigger_s + self.overhead_s + self.work_s


def batch_work_s(mace: Mace, servers: Sequence[int], width_s: float) -> FloatArray:
    """Largest work of an interval of `width_s` that ends in each subinterval, in seconds of the busiest of `servers`.

    Work is spread evenly within a subinterval. Shape (d,). With `width_s` equal to the subinterval this is lambda of
    section VII-A: L_p / C.
    """
    if not len(servers):
        return np.zeros(mace.deployment.subintervals)
    load = mace.load[list(servers)] / mace.least_capacity[list(servers)][:, None]
    return np.asarray(
        np.vstack([_interval_work(row, width_s / mace.deployment.subinterval_s) for row in load]).max(axis=0)
    )


def _interval_work(row: FloatArray, width: float) -> FloatArray:
    """Sum over the `width` subintervals (whole ones, and a part of the one before) that end in each."""
    whole, part = int(width), width - int(width)
    running = np.concatenate([[0.0], np.cumsum(row)])
    ends = np.arange(1, len(row) + 1)
    work = running[ends] - running[np.maximum(ends - whole, 0)]
    before = ends - whole - 1
    return np.asarray(work + part * np.where(before >= 0, row[np.maximum(before, 0)], 0.0))


def batch_upper_s(mace: Mace, widths_s: Mapping[int, float]) -> FloatArray:
    """Upper end of theorem 3 where the named servers take all events of an interval in any order, shape (d,).

    The others keep stimulus-time scheduling and their lambda; nothing is proven, and the bound infinite, where a node
    runs another policy or the theorem has its limits (`Mace.theorem_limits`). An event waits at most the longest
    interval before it is taken, which is the w of the theorem. With every server at the subinterval it is the paper's
    looser bound.
    """
    if mace.deployment.other_policies or mace.theorem_limits:
        return np.full(len(mace.total_s), np.inf)
    epsilon = np.full(len(mace.total_s), mace.epsilon_s)
    for server in widths_s:
        epsilon = epsilon - mace.lambda_s[server]
    for server, width_s in widths_s.items():
        epsilon = epsilon + batch_work_s(mace, [server], width_s)
    longest = max([mace.deployment.subinterval_s, *widths_s.values()])
    return np.asarray(mace.total_s + longest + epsilon)


def live_waits(work_s: FloatArray, timing: StageTiming, *, mean_work_s: float | None = None) -> QueryWaits:
    """Waits of a live query from the beginning of the epoch whose end closes a window to the window's result.

    Parameters
    ----------
    work_s : array, shape (d,)
        `batch_work_s` of the stream processor's node over an interval.
    timing : StageTiming
    mean_work_s : float, optional
        Work of a mean batch, which recent batches are taken to have held; the mean of `work_s` unless given.

    Notes
    -----
    An epoch is waited for whole, since its records are sent when it ends. The trigger finds them anywhere in its
    interval alike. What a batch takes beyond its work (planning, commits) is the median of recent batches less the
    mean work.
    """
    return independent_waits(
        [
            ("agents", "epoch", np.full(1, timing.epoch_s)),
            ("stream", "trigger", np.linspace(0.0, timing.interval_s, _EVEN)),
            ("stream", "batch", _overhead_s(work_s, timing, mean_work_s) + work_s),
        ]
    )


def live_latency(
    processing_s: float,
    work_s: FloatArray,
    timing: StageTiming,
    *,
    statistic: str,
    mean_work_s: float | None = None,
    added_s: float | None = None,
) -> LiveLatency:
    """Parts of a live query's latency.

    Parameters
    ----------
    processing_s : float
        Queueing and processing, near the data and at the stream processor: the statistic of the estimate.
    work_s, timing, mean_work_s
        Of `live_waits`.
    statistic : str
        ``worst``, ``mean`` or a quantile such as ``q0.9``.
    added_s : float, optional
        Seconds that the waits add to the estimate; unless given, the statistic of the waits alone.

    Notes
    -----
    Parts of a quantile are their means, and their shares of what lies above these, by their variances. The margin is
    1.645 standard deviations of the wait (interval^2 / 12) and of the batches together.
    """
    interval_s = timing.interval_s
    if added_s is None:
        added_s = live_waits(work_s, timing, mean_work_s=mean_work_s).own_s(statistic)
    overhead_s = _overhead_s(work_s, timing, mean_work_s)
    trigger_s, worked_s = 0.5 * interval_s, float(work_s.mean())
    if statistic == "worst":
        trigger_s, worked_s = interval_s, float(work_s.max())
    above_s = added_s - timing.epoch_s - overhead_s - trigger_s - worked_s
    variances = interval_s**2 / 12, float(work_s.var())
    share = variances[0] / sum(variances) if any(variances) else 1.0
    spread = statistics.pvariance(timing.batches_s) if len(timing.batches_s) > 1 else 0.0
    return LiveLatency(
        processing_s=processing_s,
        epoch_s=timing.epoch_s,
        trigger_s=trigger_s + share * above_s,
        overhead_s=overhead_s,
        work_s=worked_s + (1.0 - share) * above_s,
        margin_s=_Z * math.sqrt(interval_s**2 / 12 + spread),
    )


def _overhead_s(work_s: FloatArray, timing: StageTiming, mean_work_s: float | None) -> float:
    usual_s = float(work_s.mean()) if mean_work_s is None else mean_work_s
    return max(0.0, timing.batch_s - usual_s)
