"""Charts of a Spark query's micro-batches: duration, latency, rows and utilisation over time."""

from __future__ import annotations

from collections.abc import Sequence

from apps.microbatch.models import BatchFit, MicroBatch
from apps.pages.microbatch.intervals import BatchInterval
from apps.ui.charts import Chart, ChartMark, Series, time_axis
from apps.ui.numbers import percent, scaled, seconds
from engine.microbatch.model import quantile_level, wait_s

__all__ = ["duration_chart", "latency_chart_of_batches", "rows_chart", "utilisation_chart"]


class _Axis:
    """Time over some batches, oldest first."""

    def __init__(self, batches: Sequence[MicroBatch]) -> None:
        self._start = batches[0].begins_at
        span_s = (batches[-1].begins_at - self._start).total_seconds()
        self.axis = time_axis(self._start, max(span_s, 1.0) / max(len(batches), 1), len(batches))
        self._end = batches[-1].begins_at

    def at(self, batch: MicroBatch) -> float:
        return float((batch.begins_at - self._start).total_seconds())

    def marks(self, fits: Sequence[BatchFit]) -> list[ChartMark]:
        """Beginnings of what fits rest on, where they lie within."""
        inside = [fit for fit in fits if self._start < fit.first_at <= self._end]
        return [ChartMark((fit.first_at - self._start).total_seconds(), "new fit") for fit in inside]


def duration_chart(batches: Sequence[MicroBatch], fits: Sequence[BatchFit]) -> Chart:
    """Duration of each batch, and what was predicted of it before it was known."""
    axis = _Axis(batches)
    predicted = [batch for batch in batches if batch.predicted_s is not None]
    series = [
        Series(
            "measured", "Measured", x=[axis.at(batch) for batch in batches], y=[batch.duration_s for batch in batches]
        )
    ]
    if predicted:
        line = Series(
            "estimate",
            "Predicted",
            x=[axis.at(batch) for batch in predicted],
            y=[batch.predicted_s for batch in predicted],
        )
        series.insert(0, line)
    last = batches[-1]
    told = f", {seconds(last.predicted_s)} predicted" if last.predicted_s is not None else ""
    finding = f"The newest micro-batch took {seconds(last.duration_s)}{told}."
    return Chart("batch-durations", finding, "s", axis.axis, series, marks=axis.marks(fits))


def latency_chart_of_batches(
    intervals: Sequence[BatchInterval], statistic: str, constraint_s: float | None, fits: Sequence[BatchFit]
) -> Chart:
    """Latency of the rows of each batch by a statistic, measured and predicted, against the constraint."""
    batches = [interval.batch for interval in intervals]
    axis, level = _Axis(batches), quantile_level(statistic)
    spreads_s = {fit.pk: fit.sd_s for fit in fits}
    measured_s = [interval.batch.duration_s + wait_s(interval.interval_s, 0.0, level) for interval in intervals]
    series = [Series("measured", "Measured", x=[axis.at(batch) for batch in batches], y=measured_s)]
    predicted = [interval for interval in intervals if interval.batch.predicted_s is not None]
    if predicted:
        line = Series(
            "estimate",
            "Predicted",
            x=[axis.at(interval.batch) for interval in predicted],
            y=[
                (interval.batch.predicted_s or 0.0)
                + wait_s(interval.interval_s, spreads_s.get(interval.batch.fit_id or 0, 0.0), level)
                for interval in predicted
            ],
        )
        series.insert(0, line)
    finding = f"The {statistic} latency of the newest micro-batch was {seconds(measured_s[-1])}."
    return Chart("batch-latency", finding, "s", axis.axis, series, constraint_s, "Constraint", axis.marks(fits))


def rows_chart(batches: Sequence[MicroBatch]) -> Chart:
    """Rows of each batch."""
    axis = _Axis(batches)
    line = Series("load", "Rows", x=[axis.at(batch) for batch in batches], y=[float(batch.rows) for batch in batches])
    finding = f"The newest micro-batch had {scaled(batches[-1].rows)} rows."
    return Chart("batch-rows", finding, "", axis.axis, [line], height=180)


def utilisation_chart(intervals: Sequence[BatchInterval]) -> Chart:
    """Share of the interval between batches in which each batch ran."""
    batches = [interval.batch for interval in intervals]
    axis = _Axis(batches)
    shares = [100.0 * interval.utilisation for interval in intervals]
    line = Series("alt", "Utilisation", x=[axis.at(batch) for batch in batches], y=shares)
    finding = f"The newest micro-batch filled {percent(intervals[-1].utilisation)} of its interval."
    return Chart("batch-utilisation", finding, "%", axis.axis, [line], height=180)
