"""Latency of a micro-batch engine: a batch of m rows takes F + k m, and rows wait for the next trigger first.

A micro-batch is a barrier, so the twelve phases of the paper fold into two: the wait until the batch begins, and the
batch. A late batch does not queue: the next one begins when it ends, and is larger.

References: Li, Diao, Shenoy (VLDB 2015), sections 3.2 and 3.3, for an engine with one interval instead of three.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from pydantic import computed_field
from pydantic.json_schema import JsonSchemaValue

from engine.errors import DocumentError, Fault, join_path, key_name, value_words
from engine.kinds import FieldKind
from engine.microbatch.progress import BatchProgress
from engine.order_statistics import normal_maximum
from engine.records import BAD, Record

__all__ = [
    "DRIFT_BATCHES",
    "MAX_DRIFT",
    "MIN_BATCHES",
    "TOLD_APART",
    "WARM_UP_BATCHES",
    "BatchDrift",
    "BatchLatency",
    "BatchModel",
    "ObservedLatency",
    "Statistic",
    "batch_drift",
    "coefficients",
    "fit_batches",
    "fit_durations",
    "least_squares",
    "observed_latency",
    "quantile_level",
    "rising_root",
    "wait_s",
]

MAX_DRIFT = 0.15  # median share by which batches may differ from their prediction
DRIFT_BATCHES = 20  # with rows, the newest ones
MIN_DRIFT_BATCHES = 5
WARM_UP_BATCHES = 3  # of a run: they load classes and compile code that later ones find
MIN_BATCHES = 3
TOLD_APART = 1.2  # largest over smallest batch, from which F and k are told apart
_BISECTIONS = 60
_UPPER = 1.645  # standard deviations to the upper end, 95 %
_TOLD_TO_S = 1e-3
_NORMAL = NormalDist()


@dataclass(frozen=True)
class BatchLatency(Record):
    """Latency of rows at one rate and trigger, in seconds: `interval_s` between batches, `batch_s` of a batch.

    `statistic_s` holds what was asked for. `rows` are those of a batch, `utilisation` is the share of the interval in
    which it runs; late batches outlast the trigger, so that they follow one another without a pause.
    """

    rate: float
    trigger_s: float
    interval_s: float
    batch_s: float
    mean_s: float
    statistic_s: float
    rows: float
    utilisation: float
    is_late: bool


@dataclass(frozen=True)
class BatchModel(Record):
    """Duration of a micro-batch of m rows: `fixed_s` + `per_row_s` m, give or take `sd_s` (standard deviation).

    `batches` were fitted, of `least_rows` to `most_rows`; 0 where the figures come from elsewhere.
    """

    fixed_s: float
    per_row_s: float
    sd_s: float = 0.0
    batches: int = 0
    least_rows: float = 0.0
    most_rows: float = 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_told_apart(self) -> bool:
        """Whether batches differed enough in size to tell fixed time from time per row.

        The largest must take longer than the smallest by more than batches of one size differ among themselves.
        """
        if not self.batches:
            return True
        grows_s = self.per_row_s * (self.most_rows - self.least_rows)
        return self.most_rows >= TOLD_APART * max(self.least_rows, 1.0) and grows_s > self.sd_s

    @property
    def largest_per_row_s(self) -> float:
        """The most that a row can take, given batches whose sizes do not tell it apart.

        The upper end (95 %) of the slope, k + 1.645 s / sqrt(Sxx), where Sxx is at least (range of sizes)^2 / 2; and no
        more than if all of a batch's time were that of its rows. Durations are told to the millisecond, so that equal
        ones leave room for one.
        """
        if not self.most_rows > 0:
            return self.per_row_s
        sd_s, reach = max(self.sd_s, _TOLD_TO_S), self.most_rows - self.least_rows
        whole_s = (self.duration_s(self.most_rows) + _UPPER * sd_s) / self.most_rows
        return min(whole_s, self.per_row_s + _UPPER * sd_s * math.sqrt(2.0) / reach) if reach > 0 else whole_s

    def duration_s(self, rows: float) -> float:
        """Predicted duration of a batch."""
        return self.fixed_s + self.per_row_s * rows

    def latency(self, rate: float, trigger_s: float, statistic: str = "mean") -> BatchLatency | None:
        """Latency of rows that arrive evenly at `rate` rows/s; None where batches never keep up.

        A row waits for the rest of the interval it falls into, evenly spread, and for its batch. The quantile is that
        of the sum of both, with a normal batch duration.

        Examples
        --------
        >>> BatchModel(0.5, 4e-6).latency(100_000, 5.0).mean_s
        5.0
        >>> BatchModel(0.5, 4e-6).latency(250_000, 5.0) is None
        True
        """
        load = rate * self.per_row_s
        if load >= 1:
            return None
        interval_s = max(trigger_s, self.fixed_s / (1 - load))
        if interval_s <= 0:
            return None
        batch_s = self.duration_s(rate * interval_s)
        level = quantile_level(statistic)
        return BatchLatency(
            rate=rate,
            trigger_s=trigger_s,
            interval_s=interval_s,
            batch_s=batch_s,
            mean_s=interval_s / 2 + batch_s,
            statistic_s=batch_s + wait_s(interval_s, self.sd_s, level),
            rows=rate * interval_s,
            utilisation=batch_s / interval_s,
            is_late=interval_s > trigger_s,
        )

    def latency_interval(
        self, rate: float, trigger_s: float, statistic: str = "mean", *, fitted_trigger_s: float
    ) -> tuple[float, float] | None:
        """90 % interval of the mean or a quantile over as many batches as were fitted, at `fitted_trigger_s`.

        The upper end is infinite where batches may never keep up; None where the figures come from no batches.

        Notes
        -----
        Two things are not known. The line has the error of its sample at m rows, t s sqrt(2/n + (m - c)^2 / Sxx), with
        c the middle of the sizes and Sxx that of sizes evenly spread, n range^2 / 12; the second 1/n is that of the
        batches to come. And batches of one trigger do not tell what of F is each batch's from what is each second's
        (files to list, partitions to poll), so that at another trigger F lies between F and F T / T_fit.
        """
        if self.batches < MIN_BATCHES:
            return None
        share = trigger_s / fitted_trigger_s if fitted_trigger_s > 0 and trigger_s > 0 else 1.0
        latencies = []
        for sign, fixed_s in ((-1, self.fixed_s * min(1.0, share)), (1, self.fixed_s * max(1.0, share))):
            model = replace(self, fixed_s=fixed_s)
            middle = model.latency(rate, trigger_s, statistic)
            if middle is not None:
                fixed_s = max(0.0, fixed_s + sign * self._line_error_s(middle.rows))
                middle = replace(model, fixed_s=fixed_s).latency(rate, trigger_s, statistic)
            latencies.append(math.inf if middle is None else middle.statistic_s)
        return latencies[0], latencies[1]

    def _line_error_s(self, rows: float) -> float:
        free = self.batches - 2
        # Student's t of 95 % with so many degrees of freedom, by Cornish and Fisher.
        t = _UPPER + (_UPPER**3 + _UPPER) / (4 * free) + (5 * _UPPER**5 + 16 * _UPPER**3 + 3 * _UPPER) / (96 * free**2)
        reach = self.most_rows - self.least_rows
        aside = (rows - (self.most_rows + self.least_rows) / 2) / reach if reach > 0 else math.inf
        return t * self.sd_s * math.sqrt((2.0 + 12.0 * aside**2) / self.batches)


def quantile_level(statistic: str) -> float | None:
    """Level of a statistic: None of ``mean``, 0.95 of ``q0.95``.

    Raises
    ------
    DocumentError
        Any other statistic, and levels outside (0, 1).
    """
    faults: list[Fault] = []
    if Statistic().read(statistic, "", "statistic", faults) is BAD:
        raise DocumentError(faults, "latency question")
    return None if statistic == "mean" else float(statistic[1:])


@dataclass(frozen=True)
class Statistic(FieldKind):
    """The mean, or a quantile."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        try:
            is_known = value == "mean" or (value[:1] == "q" and 0 < float(value[1:]) < 1)
        except (TypeError, ValueError):
            is_known = False
        if is_known:
            return value
        allowed = "mean, or a quantile between q0 and q1 such as q0.95"
        faults.append(Fault(join_path(parent, key), f"{key_name(key)} is {value_words(value)}; allowed: {allowed}"))
        return BAD

    def schema(self) -> JsonSchemaValue:
        return {"type": "string"}


def wait_s(interval_s: float, sd_s: float, level: float | None) -> float:
    """The part of the latency that is not the mean batch: half the interval, or what the quantile adds to the batch.

    The quantile is that of a uniform wait plus a normal deviation, exactly: with no deviation the level's share of the
    interval. The distribution function is (A(y) - A(y - T)) / T with A(y) = y Phi(y/s) + s phi(y/s).

    Examples
    --------
    >>> wait_s(2.0, 0.0, None), wait_s(2.0, 0.0, 0.95)
    (1.0, 1.9)
    >>> round(wait_s(1e-9, 1.0, 0.95), 3)
    1.645
    """
    if level is None:
        return interval_s / 2
    if sd_s <= 0:
        return level * interval_s
    reach = max(8.0, abs(_NORMAL.inv_cdf(level)) + 2) * sd_s

    def share_below(y: float) -> float:
        return (_rise(y / sd_s) - _rise((y - interval_s) / sd_s)) * sd_s / interval_s

    return rising_root(lambda y: share_below(y) - level, -reach, interval_s + reach)


def _rise(z: float) -> float:
    """Integral of Phi up to z."""
    return z * _NORMAL.cdf(z) + _NORMAL.pdf(z)


def rising_root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Argument between `low` and `high` at which a rising function crosses 0, by bisection."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def coefficients(
    *,
    cores: int,
    input_partitions: int,
    shuffle_partitions: int,
    f0_s: float,
    t_task_s: float,
    c_in_s: float,
    c_sh_s: float,
    alpha: float,
    cv: float = 0.0,
) -> tuple[float, float]:
    """Fixed seconds F and seconds per row k of a batch with one map stage and one shuffle stage.

    Parameters
    ----------
    cores : int
        Tasks that run at the same time.
    f0_s : float
        Seconds of a batch before and after its tasks: offsets, planning, log and commit.
    t_task_s : float
        Seconds to start a wave of tasks and wait for its end.
    c_in_s, c_sh_s : float
        Seconds of one core for an input row, and for a row after the shuffle.
    alpha : float
        Rows after the shuffle for an input row.
    cv : float
        Coefficient of variation of tasks of a stage: the slowest of p takes 1 + a(p) cv of the mean.

    Notes
    -----
    p tasks on c cores need ceil(p / c) waves; a stage of m rows takes waves / p of the work of all rows.
    """
    waves = math.ceil(input_partitions / cores), math.ceil(shuffle_partitions / cores)
    slowest = [1 + normal_maximum(tasks)[0] * cv for tasks in (input_partitions, shuffle_partitions)]
    fixed_s = f0_s + sum(waves) * t_task_s
    per_row_s = c_in_s * waves[0] / input_partitions * slowest[0]
    return fixed_s, per_row_s + alpha * c_sh_s * waves[1] / shuffle_partitions * slowest[1]


def fit_batches(batches: Sequence[BatchProgress], *, warm_up: int = WARM_UP_BATCHES) -> BatchModel:
    """Fit F and k to batches with rows, by least squares; the first `warm_up` batches of each run are left out.

    Raises
    ------
    DocumentError
        Fewer than 3 batches with rows, or all of one size.
    """
    seen: dict[str, int] = {}
    kept = []
    for batch in sorted(batches, key=lambda batch: batch.begins_at):
        if batch.rows > 0:
            seen[batch.run_id] = seen.get(batch.run_id, 0) + 1
            if seen[batch.run_id] > warm_up:
                kept.append((float(batch.rows), batch.duration_s))
    return least_squares(kept)


def least_squares(points: Sequence[tuple[float, float]]) -> BatchModel:
    """Fit F and k to (rows, seconds); where the line would begin below zero, to a line through zero.

    Raises
    ------
    DocumentError
        Fewer than 3 points, or all of one size.
    """
    sizes = {rows for rows, _ in points}
    if len(points) < MIN_BATCHES or len(sizes) < 2:
        got = f"{len(points)} of {len(sizes)} different sizes"
        message = f"batches with rows, after warm-up, are {got}; allowed: at least {MIN_BATCHES}, of 2 sizes"
        raise DocumentError([Fault("progress", message)], "progress of a Spark query")
    rows, seconds = [list(column) for column in zip(*points, strict=True)]
    line = statistics.linear_regression(rows, seconds)
    fixed_s, per_row_s = line.intercept, line.slope
    if fixed_s < 0:
        fixed_s = 0.0
        per_row_s = math.fsum(x * y for x, y in points) / math.fsum(x * x for x in rows)
    residuals = [y - fixed_s - per_row_s * x for x, y in points]
    mean = math.fsum(residuals) / len(residuals)
    sd_s = math.sqrt(math.fsum((residual - mean) ** 2 for residual in residuals) / (len(points) - 2))
    return BatchModel(fixed_s, max(per_row_s, 0.0), sd_s, len(points), min(rows), max(rows))


def fit_durations(points: Sequence[tuple[float, float]]) -> BatchModel:
    """Fit that predicts: the line of `least_squares`, or the mean where larger batches were no slower.

    Without a slope, the intercept of a falling line is more than any of its batches took.

    Raises
    ------
    DocumentError
        Fewer than 3 points, or all of one size.
    """
    model = least_squares(points)
    if model.per_row_s > 0:
        return model
    seconds = [duration_s for _, duration_s in points]
    return replace(model, fixed_s=statistics.fmean(seconds), sd_s=statistics.stdev(seconds))


@dataclass(frozen=True, slots=True)
class ObservedLatency:
    """Latency of rows as batches had it; `rows` counted in `batches`."""

    rows: int
    batches: int
    mean_s: float
    statistic_s: float
    interval_s: float
    batch_s: float


def observed_latency(batches: Sequence[BatchProgress], statistic: str = "mean") -> ObservedLatency | None:
    """Latency that rows of these batches of one run had, taken to arrive evenly between the beginnings of batches.

    Rows of a batch came since the batch before it began, and were done when the batch ended. None with fewer than two
    batches in a row.
    """
    level = quantile_level(statistic)
    ordered = sorted(batches, key=lambda batch: batch.begins_at)
    parts = []  # (rows, seconds from the batch's beginning to its end, seconds since the one before began)
    for before, batch in pairwise(ordered):
        if before.run_id == batch.run_id and batch.batch == before.batch + 1 and batch.rows > 0:
            interval_s = (batch.begins_at - before.begins_at).total_seconds()
            parts.append((batch.rows, batch.duration_s, max(interval_s, 0.0)))
    total = sum(rows for rows, _, _ in parts)
    if not total:
        return None
    mean_s = sum(rows * (batch_s + interval_s / 2) for rows, batch_s, interval_s in parts) / total

    def share_below(latency_s: float) -> float:
        return sum(rows * _share(latency_s, batch_s, interval_s) for rows, batch_s, interval_s in parts) / total

    longest = max(batch_s + interval_s for _, batch_s, interval_s in parts)
    return ObservedLatency(
        rows=total,
        batches=len(parts),
        mean_s=mean_s,
        statistic_s=mean_s if level is None else rising_root(lambda y: share_below(y) - level, 0.0, longest),
        interval_s=statistics.fmean(interval_s for _, _, interval_s in parts),
        batch_s=statistics.fmean(batch_s for _, batch_s, _ in parts),
    )


def _share(latency_s: float, batch_s: float, interval_s: float) -> float:
    """Share of a batch's rows that took no longer than this."""
    if interval_s <= 0:
        return float(latency_s >= batch_s)
    return min(max((latency_s - batch_s) / interval_s, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class BatchDrift:
    """Distance between measured and predicted batches: `share` is the median of |measured / predicted - 1|.

    `bias` is the median of measured / predicted - 1: positive where batches take longer than predicted.
    """

    share: float
    bias: float
    batches: int

    @property
    def is_drifting(self) -> bool:
        return self.share > MAX_DRIFT


def batch_drift(measured: Sequence[tuple[float, float]]) -> BatchDrift | None:
    """Drift of the newest batches, given as (measured, predicted) seconds, oldest first; None below 5 batches.

    Examples
    --------
    >>> batch_drift([(1.2, 1.0)] * 6).is_drifting
    True
    """
    ratios = [actual / predicted - 1 for actual, predicted in measured[-DRIFT_BATCHES:] if predicted > 0]
    if len(ratios) < MIN_DRIFT_BATCHES:
        return None
    share = statistics.median(abs(ratio) for ratio in ratios)
    return BatchDrift(share, statistics.median(ratios), len(ratios))
