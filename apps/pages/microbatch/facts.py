"""Facts of a Spark query's page: batches, fit, drift, latency, settings, state, and how to connect it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from apps.fleet.choices import InputOrigin
from apps.microbatch.models import BatchFit, MicroBatch, SparkQuery, SparkQueryState
from apps.microbatch.selectors import RATE_BATCHES, batches_newest, fit_in_force, newest_rate, spark_query_state
from apps.pages.microbatch.tables import BatchInterval, intervals_of
from apps.pages.overview.findings import Stat
from apps.ui.charts import Chart, ChartMark, Series, time_axis
from apps.ui.numbers import MISSING, Quantity, percent, rate, scaled, seconds, seconds_range
from apps.ui.sentences import sentence
from engine.microbatch.model import (
    DRIFT_BATCHES,
    BatchLatency,
    ObservedLatency,
    observed_latency,
    quantile_level,
    wait_s,
)
from engine.microbatch.sizing import UTILISATION_CEILING
from engine.words import counted, statistic_words

__all__ = ["SHOWN", "SparkQueryFacts", "listener_code"]


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
    finding = f"The {statistic_words(statistic)} latency of the newest micro-batch was {seconds(measured_s[-1])}."
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


SHOWN = (120, 480, 2_000)
_QUANTILE = "q0.95"
_LABELS = {
    "trigger_s": "Trigger interval",
    "executors": "Executors",
    "cores_per_executor": "Cores of an executor",
    "input_partitions": "Input partitions",
    "shuffle_partitions": "Shuffle partitions",
    "max_rows_per_trigger": "Largest batch",
    "stateful": "State between batches",
}
_TIMES = ("update", "removal", "commit")


@dataclass(frozen=True)
class SettingFact:
    """A setting with its value in words, and where that comes from."""

    label: str
    text: str
    origin: InputOrigin


def _setting_text(name: str, value: Any) -> str:
    """A setting's value in words."""
    if name == "trigger_s":
        return str(seconds(value)) if value else "without a pause"
    if name == "stateful":
        return "yes" if value else "no"
    return "no limit" if value is None else f"{value:,}"


def listener_code(query: SparkQuery, request: HttpRequest) -> str:
    """A listener of Spark, in Python, that posts each micro-batch of the query."""
    base = settings.PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")
    url = f"{base}/api/v1/spark-queries/{query.pk}/progress"
    return render_to_string("pages/microbatch/listener.py.txt", {"url": url})


class SparkQueryFacts:
    """A query and its newest batches, as its page shows them."""

    def __init__(self, query: SparkQuery, shown: int = SHOWN[0]) -> None:
        self.query, self.shown = query, shown

    @cached_property
    def batches(self) -> list[MicroBatch]:
        return batches_newest(self.query, self.shown)

    @cached_property
    def intervals(self) -> list[BatchInterval]:
        return intervals_of(self.batches)

    @cached_property
    def fits(self) -> list[BatchFit]:
        """Fits of the batches that are shown, and the one in force."""
        used = {batch.fit_id for batch in self.batches} | {self.fit.pk if self.fit else None}
        return list(BatchFit.objects.filter(query=self.query, pk__in=used - {None}))

    @cached_property
    def fit(self) -> BatchFit | None:
        return fit_in_force(self.query)

    @property
    def state(self) -> SparkQueryState:
        return spark_query_state(self.query)

    @property
    def statistic(self) -> str:
        """The statistic of the latency chart: the constraint's."""
        return self.query.statistic

    @cached_property
    def present(self) -> list[MicroBatch]:
        """Batches under the present settings, without warm-up; those before where there are none yet."""
        since = self.query.settings_since
        warm = [batch for batch in self.batches if not batch.is_warm_up]
        return [batch for batch in warm if since is None or batch.begins_at >= since] or warm

    @cached_property
    def rate(self) -> float | None:
        """Of the newest batches, as a resource plan takes it."""
        return newest_rate(self.batches)

    @cached_property
    def quantile(self) -> str:
        """The statistic beside the mean."""
        return _QUANTILE if self.statistic == "mean" else self.statistic

    @cached_property
    def observed(self) -> ObservedLatency | None:
        return observed_latency([batch.progress for batch in self.present], self.quantile)

    @cached_property
    def predicted(self) -> BatchLatency | None:
        if self.fit is None or not self.rate:
            return None
        return self.fit.model.latency(self.rate, self.query.trigger_s, self.quantile)

    def _interval(self, statistic: str) -> tuple[float, float] | None:
        """90 % interval of a predicted statistic; None where nothing is predicted."""
        if self.fit is None or self.predicted is None:
            return None
        trigger_s = self.query.trigger_s
        fitted_s = float(self.fit.setting_values.get("trigger_s", trigger_s))
        return self.fit.model.latency_interval(self.predicted.rate, trigger_s, statistic, fitted_trigger_s=fitted_s)

    # -- what is said of it

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/microbatch/sentences/state.html", facts=self, query=self.query)

    @property
    def drift(self) -> SafeString:
        return sentence("pages/microbatch/sentences/drift.html", query=self.query, fit=self.fit)

    @property
    def fit_sentence(self) -> SafeString:
        return sentence("pages/microbatch/sentences/fit.html", fit=self.fit, facts=self)

    @cached_property
    def stats(self) -> list[Stat]:
        return [
            self._latency("Latency, mean", "mean_s", self._interval("mean")),
            self._latency(f"Latency, {statistic_words(self.quantile)}", "statistic_s", self._interval(self.quantile)),
            self._utilisation,
            self._distance,
            Stat("Rate", rate(self.rate), f"Over {self._rated}"),
        ]

    @property
    def _rated(self) -> str:
        return counted(min(len(self.batches), RATE_BATCHES), "micro-batch", "micro-batches")

    def _latency(self, name: str, part: str, interval: tuple[float, float] | None) -> Stat:
        measured = getattr(self.observed, part, None)
        predicted = getattr(self.predicted, part, None)
        note = f"{seconds(predicted, apart_from=measured)} predicted" if predicted is not None else "Not predicted yet"
        if interval is not None and math.isfinite(interval[1]):
            note += f", 90% interval {seconds_range(*interval, apart_from=interval[0])}"
        is_constrained = self.query.constraint_s is not None and name.endswith(statistic_words(self.statistic))
        if is_constrained:
            note += f", constraint {seconds(self.query.constraint_s)}"
        is_late = is_constrained and measured is not None and measured > (self.query.constraint_s or 0.0)
        return Stat(name, seconds(measured, apart_from=predicted), note, "bad" if is_late else "")

    @property
    def _utilisation(self) -> Stat:
        if self.observed is None or self.observed.interval_s <= 0:
            return Stat("Utilisation", Quantity(MISSING), "Batch over interval")
        share = self.observed.batch_s / self.observed.interval_s
        note = f"{seconds(self.observed.batch_s)} of every {seconds(self.observed.interval_s)}"
        state = "bad" if share > 1 else "watch" if share > UTILISATION_CEILING else ""
        return Stat("Utilisation", percent(share), note, state)

    @property
    def _distance(self) -> Stat:
        share = self.query.drift_share
        if share is None:
            return Stat("Distance", Quantity(MISSING), f"Judged from {DRIFT_BATCHES} fitted batches on")
        note = "From the prediction, in the median"
        return Stat("Distance", percent(share), note, "watch" if self.query.drifting_since else "")

    # -- pictures

    @cached_property
    def charts(self) -> list[tuple[str, str, Chart]]:
        """Charts with their titles and notes."""
        if not self.batches:
            return []
        charts = []
        warm = [batch for batch in self.batches if not batch.is_warm_up]
        if warm:
            note = "From trigger to commit, warm-up left out"
            charts.append(("Duration of micro-batches", note, duration_chart(warm, self.fits)))
        following = [interval for interval in self.intervals if not interval.batch.is_warm_up]
        if following:
            note = f"{self._statistic_text} of the rows of each batch, wait for the trigger included"
            latency = latency_chart_of_batches(following, self.statistic, self.query.constraint_s, self.fits)
            charts.append(("Latency", note, latency))
        charts.append(("Rows", "Of each batch", rows_chart(self.batches)))
        if self.intervals:
            charts.append(("Utilisation", "Batch over interval", utilisation_chart(self.intervals)))
        return charts

    @property
    def _statistic_text(self) -> str:
        return statistic_words(self.statistic, begins=True)

    # -- settings, state, parts

    @property
    def setting_facts(self) -> list[SettingFact]:
        values = self.query.setting_values
        return [
            SettingFact(label, _setting_text(name, values[name]), self.query.setting_origin(name))
            for name, label in _LABELS.items()
        ]

    @cached_property
    def state_operators(self) -> list[dict[str, Any]]:
        """Figures of the newest batch that has some; durations in seconds."""
        newest: list[dict[str, Any]] = next((batch.state for batch in reversed(self.batches) if batch.state), [])
        return [
            {**figures, **{f"{name}_s": figures[f"{name}_ms"] / 1000 for name in _TIMES if f"{name}_ms" in figures}}
            for figures in newest
        ]

    @cached_property
    def parts(self) -> list[tuple[str, float]]:
        """Median seconds of each part of a batch, the longest first."""
        parts: dict[str, list[float]] = {}
        for batch in self.batches:
            if not batch.is_warm_up:
                for name, part_s in batch.parts_s.items():
                    parts.setdefault(name, []).append(part_s)
        medians = [(name, statistics.median(values)) for name, values in parts.items()]
        return sorted(medians, key=lambda part: -part[1])

    @property
    def event_lag_s(self) -> float | None:
        return next((batch.event_lag_s for batch in reversed(self.batches) if batch.event_lag_s is not None), None)

    @property
    def is_waiting(self) -> bool:
        """Whether the stream processor is yet to change to the trigger that is wanted."""
        wanted_s = self.query.wanted_trigger_s
        return wanted_s is not None and wanted_s != self.query.trigger_s

    @property
    def key(self) -> str:
        """The query's number, for addresses."""
        return str(self.query.pk)
