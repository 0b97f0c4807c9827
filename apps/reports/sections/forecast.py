"""Shortages that the newest forecast of load sees within the horizon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal
from zoneinfo import ZoneInfo

from apps.fleet.models import Cluster
from apps.jobs.api import job_wait
from apps.jobs.models import JobKind, JobState
from apps.jobs.selectors import job_under_way
from apps.planning.forecast_findings import (
    PoolFix,
    Shortage,
    forecast_answer,
    forecast_changes,
    forecast_latest,
    forecast_series,
    shortages,
)
from apps.planning.models import Forecast
from apps.reports.blocks import (
    Block,
    ReportColumn,
    ReportHeading,
    ReportPicture,
    ReportTable,
    ReportText,
    local_time,
    or_missing,
)
from apps.reports.drawings import Curve, Plot
from apps.ui.numbers import money, percent, scaled, seconds, seconds_range, significant
from apps.ui.svg.shapes import Drawing
from engine.forecasts.answer import ForecastAnswer
from engine.records import Moment, Omitted, Record
from engine.words import counted, statistic_text

__all__ = ["NoForecast", "ReportForecast", "forecast_blocks", "forecast_facts"]

_POINTS = 700
_WAIT_S = 60.0  #: for the first forecast, where a worker is at it
_MISSING = (
    "There is no forecast: upload or generate load history under Provisioning, Forecast. From then on Sluice renews "
    "the forecast every day, and the next report says when an objective would be violated."
)
_UNDER_WAY = "The first forecast is being computed: the next report says when an objective would be violated."


@dataclass(frozen=True)
class NoForecast(Record):
    """Why there is no forecast."""

    available: Literal[False]
    text: str
    horizon_days: int


@dataclass(frozen=True)
class ReportShortage(Record):
    """An objective that is violated or at risk; the fields are those of `forecast_findings.Shortage`."""

    query: str
    statistic: str
    bound_s: float
    first_at: Moment
    band: str
    mean_at: Moment | None
    high_at: Moment | None
    risk_at: Moment | None
    latency_s: float | None
    low_s: float | None
    upper_s: float | None
    confirmed: bool
    holds: float | None
    bottleneck: str
    fix: PoolFix | None

    @property
    def fix_size(self) -> int | None:
        return None if self.fix is None else self.fix.size

    @property
    def objective(self) -> str:
        return f"{statistic_text(self.statistic)} ≤ {seconds(self.bound_s)}"

    @property
    def latency(self) -> str:
        """5.2 s (4.1 to 6.9 s): the median with its interval, where that was kept."""
        value = str(seconds(self.latency_s, apart_from=self.bound_s))
        if self.upper_s is None:
            return value
        return f"{value} ({seconds_range(self.low_s, self.upper_s, apart_from=self.bound_s)})"

    def sentence(self, since: str) -> str:
        """The violation in words, from a moment in words."""
        match self.band:
            case "risk":
                text = f"is at risk from {since}: random costs and arrivals may break it."
            case "high":
                text = f"is violated from {since} at the 90% band."
            case _:
                text = f"is violated from {since} at the expected load."
        return f"The objective of {self.query} {text}"


@dataclass(frozen=True)
class ForecastCurve(Record):
    """Latency of a query by bucket; without the interval of costs and arrivals where that was not kept."""

    query: str
    bound_s: float
    statistic: str
    mean: list[float]
    high: list[float]
    low: Omitted[list[float]] = None
    upper: Omitted[list[float]] = None


@dataclass(frozen=True)
class ReportLoad(Record):
    """Load of all sources that have a history, by bucket."""

    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class SourceBacktest(Record):
    """Quality of the forecast of a source on the past."""

    source: str
    model: str
    error_share: float | None
    coverage: float | None
    origins: int | None


@dataclass(frozen=True)
class ReportForecast(Record):
    """Violated objectives with their dates, how good the forecast was on the past, and the curve of the earliest."""

    available: Literal[True]
    horizon_days: int
    made_at: Moment
    starts_at: Moment
    ends_at: Moment
    bucket_s: int
    changes: list[str]
    shortages: list[ReportShortage]
    later: int
    lacking: list[str]
    curve: ForecastCurve | None
    load: ReportLoad | None
    backtests: list[SourceBacktest]
    assumptions: list[str]

    @property
    def shown_until(self) -> datetime:
        return min(self.ends_at, self.starts_at + timedelta(days=self.horizon_days))

    def share(self, moment: datetime) -> float:
        """Place of a moment between the ends of what is shown."""
        span_s = (self.shown_until - self.starts_at).total_seconds() or 1.0
        return (moment - self.starts_at).total_seconds() / span_s


def forecast_facts(cluster: Cluster, horizon_days: int, now: datetime) -> ReportForecast | NoForecast:
    """Findings of the newest forecast; the first is waited for, outside of a transaction, while a worker is at it."""
    row = forecast_latest(cluster)
    first = None if row is not None else job_under_way(JobKind.FORECAST, cluster)
    if first is not None and first.state == JobState.RUNNING:  # one that waits may wait for this worker
        job_wait(first, _WAIT_S)
        row = forecast_latest(cluster)
    if row is None:
        text = _UNDER_WAY if job_under_way(JobKind.FORECAST, cluster) else _MISSING
        return NoForecast(False, text, horizon_days)
    if row.is_over:
        text = f"The newest forecast rests on load histories that end on {row.starts_at:%d %B %Y}: upload newer load."
        return NoForecast(False, text, horizon_days)
    until = now + timedelta(days=horizon_days)
    every = shortages(cluster, row)
    due = [shortage for shortage in every if shortage.first_at <= until]
    buckets = max(1, min(row.horizon, int((until - row.starts_at).total_seconds() // row.bucket_s)))
    answer, total = forecast_answer(row), forecast_series(row).get("total")
    return ReportForecast(
        available=True,
        horizon_days=horizon_days,
        made_at=row.created_at,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        bucket_s=row.bucket_s,
        changes=list(forecast_changes(row))[:5],
        shortages=[_shortage(shortage) for shortage in due],
        later=len(every) - len(due),
        lacking=[f"Of {entry.query} {entry.lacking}." for entry in answer.queries if entry.is_for_person],
        curve=_curve(row, answer, due[0].query if due else "", buckets),
        load=ReportLoad(**_thinned(total, ("mean", "low", "high"), buckets)) if total else None,
        backtests=[
            SourceBacktest(
                name, str(source.model), source.backtest.mape, source.backtest.coverage, source.backtest.n_origins
            )
            for name, source in answer.sources.items()
        ],
        assumptions=[str(found) for found in answer.assumptions],
    )


def _shortage(shortage: Shortage) -> ReportShortage:
    bottleneck = shortage.bottleneck
    where = bottleneck.node or bottleneck.server if bottleneck else ""
    return ReportShortage(**vars(shortage) | {"bottleneck": where})


def _curve(row: Forecast, answer: ForecastAnswer, query: str, buckets: int) -> ForecastCurve | None:
    """Latency of the query that is violated first (else of the one nearest to its bound), by bucket."""
    bounded = {entry.query: entry for entry in answer.queries if entry.bound_s}
    curves = forecast_series(row).get("queries", {})
    if not query:
        query = max(bounded, key=lambda name: bounded[name].worst_high_s / bounded[name].bound_s, default="")
    if query not in curves or query not in bounded:
        return None
    lists = _thinned(curves[query], ("mean", "high", "low", "upper"), buckets)
    return ForecastCurve(query, bounded[query].bound_s, bounded[query].statistic, **lists)


def _thinned(curves: Mapping[str, Sequence[float]], names: Sequence[str], buckets: int) -> dict[str, list[float]]:
    """The maximum of each of at most `_POINTS` parts: a peak that is not drawn would hide a violation."""
    thinned = {}
    for name in names:
        if name in curves:
            values = curves[name][:buckets]
            width = -(-len(values) // _POINTS)
            parts = (values[k : k + width] for k in range(0, len(values), width))
            thinned[name] = [max(value or 0.0 for value in part) for part in parts]
    return thinned


def forecast_blocks(forecast: ReportForecast | NoForecast, currency: str, zone: ZoneInfo) -> Iterator[Block]:
    """Violations by date, the curve of the first one, and how far the forecast can be trusted."""
    yield ReportHeading("forecast", "Forecast of shortage", f"The next {forecast.horizon_days} days")
    if isinstance(forecast, NoForecast):
        yield ReportText(forecast.text)
        return
    yield ReportText(_sentences(forecast, zone))
    if forecast.curve:
        yield _latency(forecast, forecast.curve, zone)
    if forecast.load:
        finding = "Load of all sources that have a history, in records per second."
        draw = partial(_draw_load, forecast, forecast.load, zone)
        yield ReportPicture(finding, draw, (("estimate", "Expected"), ("band", "Band, 90%")))
    if forecast.shortages:
        yield ReportTable("shortages", "Shortages", _columns(currency, zone), forecast.shortages, limit=20)
    if forecast.backtests:
        yield ReportTable("backtests", "How good it was on the past", _BACKTESTS, forecast.backtests, limit=12)
    yield ReportText(_basis(forecast, zone), quiet=True)


def _sentences(forecast: ReportForecast, zone: ZoneInfo) -> str:
    days, later = counted(forecast.horizon_days, "day"), forecast.later
    if not forecast.shortages:
        sentences = [f"No objective is violated or at risk within {days}, at the upper end of the band either."]
        if forecast.lacking:
            sentences = [f"No objective is violated within {days} by stimulus time.", *forecast.lacking]
        if later:
            sentences.append("1 is, later than that." if later == 1 else f"{later} are, later than that.")
        return " ".join(sentences)
    first, more = forecast.shortages[0], len(forecast.shortages) - 1
    sentences = [first.sentence(local_time(first.first_at, zone))]
    if more:
        sentences.append(f"1 more follows within {days}." if more == 1 else f"{more} more follow within {days}.")
    return " ".join(sentences)


def _columns(currency: str, zone: ZoneInfo) -> list[ReportColumn[ReportShortage]]:
    time = partial(local_time, zone=zone)
    return [
        ReportColumn("Query", "query", strong=True, width=1.9),
        ReportColumn("Objective", "objective_s", "bound_s", show=lambda row: row.objective, num=True, width=1.2),
        ReportColumn("At risk", "from_risk", "risk_at", time, width=1.6),
        ReportColumn("At the 90% band", "from_high", "high_at", time, width=1.6),
        ReportColumn("As expected", "from_mean", "mean_at", time, width=1.6),
        ReportColumn("Latency then", "latency_s", show=lambda row: row.latency, num=True, width=1.5),
        ReportColumn("Holds with", "probability", "holds", percent, num=True, width=0.9),
        ReportColumn("Where", "bottleneck", write=or_missing, width=0.9),
        ReportColumn("What helps", "help", "fix_size", show=lambda row: _help(row.fix, currency), width=1.8),
    ]


def _help(fix: PoolFix | None, currency: str) -> str:
    if fix is None:
        return "No pool that was judged"
    if fix.added is not None and fix.added <= 0:
        return "Placing operators anew"
    nodes = f"{fix.size} nodes" if fix.added is None else f"+{counted(fix.added, 'node')}"
    if fix.price_per_hour is None:
        return nodes
    return f"{nodes}, {money(fix.price_per_hour, currency)} per hour in all"


_BACKTESTS: Sequence[ReportColumn[SourceBacktest]] = (
    ReportColumn("Source", "source", strong=True, width=1.5),
    ReportColumn("Model", "model", width=3),
    ReportColumn("Error on the past", "mape_share", "error_share", percent, num=True, width=1.2),
    ReportColumn("Inside the band", "coverage_share", "coverage", percent, num=True, width=1.2),
)


def _basis(forecast: ReportForecast, zone: ZoneInfo) -> str:
    begin, end = local_time(forecast.made_at, zone), local_time(forecast.ends_at, zone)
    since = [f"Since then: {'; '.join(forecast.changes)}."] if forecast.changes else []
    return " ".join([f"Forecast of {begin}, to {end}.", *since, *forecast.assumptions])


def _latency(forecast: ReportForecast, curve: ForecastCurve, zone: ZoneInfo) -> ReportPicture:
    what = f"{curve.query}: {statistic_text(curve.statistic)} latency by hour"
    band = (("band", "90% interval of costs and arrivals"),) if curve.upper is not None else ()
    return ReportPicture(
        f"{what}, at the expected load and at the upper end of the band.",
        partial(_draw_latency, forecast, curve, zone),
        (("estimate", "At the expected load"), ("alt", "At the 90% band"), *band, ("objective-line", "Objective")),
    )


def _draw_latency(forecast: ReportForecast, curve: ForecastCurve, zone: ZoneInfo, width: float) -> Drawing:
    x = list(range(len(curve.high)))
    # a queue that never empties would flatten everything below it
    top = min(max([*curve.high, curve.bound_s]) * 1.08, 4 * curve.bound_s)
    plot = Plot(width, 150, (0, max(x[-1], 1)), top, right=100)
    plot.y_axis(lambda value, is_top: f"{significant(value)}{' s' if is_top else ''}")
    plot.x_axis(_days(forecast, zone, len(x)))
    if curve.low is not None and curve.upper is not None:
        plot.band(x, curve.low, [min(value, top) for value in curve.upper])
    plot.curve(Curve("c-alt", "", x, curve.high))
    plot.curve(Curve("c-estimate", "", x, curve.mean))
    plot.objective(curve.bound_s, f"Objective {seconds(curve.bound_s)}")
    first = next(iter(forecast.shortages), None)
    if first is not None and first.query == curve.query:
        plot.mark_x(forecast.share(first.first_at) * x[-1], local_time(first.first_at, zone))
    return plot.drawing()


def _draw_load(forecast: ReportForecast, load: ReportLoad, zone: ZoneInfo, width: float) -> Drawing:
    x = list(range(len(load.mean)))
    plot = Plot(width, 115, (0, max(x[-1], 1)), max(load.high) * 1.06, right=100)
    plot.y_axis(lambda value, is_top: str(scaled(value, "/s" if is_top else "")).replace("\u00a0", " "))
    plot.x_axis(_days(forecast, zone, len(x)))
    plot.band(x, load.low, load.high)
    plot.curve(Curve("c-estimate", "", x, load.mean))
    return plot.drawing()


def _days(forecast: ReportForecast, zone: ZoneInfo, points: int) -> list[tuple[float, str]]:
    """Midnights in the report's zone, at most eight of them."""
    start, end = forecast.starts_at.astimezone(zone), forecast.shown_until
    step = -(-max(1, (end - start).days) // 7)
    first = datetime(start.year, start.month, start.day, tzinfo=zone) + timedelta(days=1)
    days = [first + timedelta(days=step * k) for k in range(8)]
    return [(forecast.share(day) * (points - 1), f"{day.day} {day:%b}") for day in days if day < end]
