"""Facts of the newest forecast of a cluster, with its charts of load and latency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.jobs.models import FINISHED, Job, JobKind
from apps.pages.overview.findings import Stat
from apps.planning.forecast_findings import (
    Shortage,
    forecast_answer,
    forecast_changes,
    forecast_latest,
    forecast_regret,
    forecast_series,
    pools_basis,
    shortages,
)
from apps.planning.load_buckets import coarsen_buckets
from apps.planning.load_histories import histories_visible, history_values
from apps.planning.models import Forecast, LoadHistory
from apps.ui.charts import Chart, ChartMark, Series, time_axis
from apps.ui.numbers import MISSING, Quantity, percent, rate, ratio, seconds
from apps.ui.sentences import sentence
from engine.forecasts.answer import Curves, ForecastAnswer, ForecastCurves, PoolForecast, QueryForecast, SourceForecast
from engine.forecasts.regret import LeastRegret, SizeCost
from engine.words import counted, server_words

__all__ = ["ForecastFacts", "history_chart", "load_chart", "moment", "query_chart"]


_POINTS = 720
_BACK_DAYS = 28


def load_chart(row: Forecast, series: ForecastCurves, histories: Sequence[LoadHistory], source: str) -> Chart:
    """History, forecast and band of one source, or of the total of those that were forecast."""
    names = [source] if source else list(series["sources"])
    curves = series["sources"][source] if source else series["total"]
    back = _BACK_DAYS * 86_400 // row.bucket_s
    past = _past([history for history in histories if history.source_id in names], row, back, len(names))
    measured = np.flatnonzero(np.isfinite(past))
    past = past[measured[0] :] if len(measured) else past[:0]
    back, ahead = len(past), row.horizon
    blank = [None] * back
    history = [value if math.isfinite(value) else None for value in past.tolist()]
    x_s = [float((back + i) * row.bucket_s) for i in range(ahead)]
    start = row.starts_at - timedelta(seconds=back * row.bucket_s)
    highest = max(curves["mean"])
    what = source or (next(iter(names)) if len(names) == 1 else f"{len(names)} sources together")
    lines = [
        Series("band", "90% band", low=curves["low"], high=curves["high"], x=x_s),
        Series("estimate", "History", y=[*history, *([None] * ahead)]),
        Series("forecast", "Forecast", y=[*blank, *curves["mean"]]),
    ]
    finding = (
        f"Load of {what}: expected to peak at {rate(highest)}, at most {rate(max(curves['high']))} in the 90% band."
    )
    axis = time_axis(start, float(row.bucket_s), back + ahead)
    is_old = timezone.now() - row.starts_at > timedelta(days=2)
    marks = [ChartMark(back * row.bucket_s, "history ends" if is_old else "now", solid=True)]
    return Chart(id="load", finding=finding, unit="/s", x=axis, series=lines, marks=marks)


def _past(histories: Sequence[LoadHistory], row: Forecast, back: int, points: int) -> Any:
    """Events/s in the buckets before the forecast begins; NaN where any of the sources is not known."""
    end_s = row.starts_at.timestamp()
    total = np.zeros(back)
    if len(histories) < points:
        return np.full(back, np.nan)
    for history in histories:
        if row.bucket_s % history.bucket_s:
            return np.full(back, np.nan)
        start_s, values = coarsen_buckets(
            history.starts_at.timestamp(), history_values(history), history.bucket_s, row.bucket_s
        )
        line = np.full(back, np.nan)
        first = round((end_s - start_s) / row.bucket_s) - back  # place in `values` where the picture begins
        part = values[max(0, first) : max(0, first + back)]
        at = max(0, -first)
        line[at : at + len(part)] = part[: back - at]
        total = total + line / row.bucket_s
    return total


def query_chart(row: Forecast, facts: QueryForecast, curves: Curves, number: int) -> Chart:
    """Latency of a query's statistic at the expected load with its interval, and at the upper end of the band."""
    bound_s = facts.bound_s
    per_day = max(1, 86_400 // row.bucket_s)
    axis = time_axis(row.starts_at, float(row.bucket_s * per_day), -(-row.horizon // per_day) + 1)
    top = 3.0 * bound_s  # what lies beyond is as bad, and would flatten everything that can still be read
    lines = [
        Series("alt", "At the 90% band of loads", y=_daily(curves["high"], per_day, top)),
        Series("estimate", "At the expected load", y=_daily(curves["mean"], per_day, top)),
    ]
    if "upper" in curves:
        low, high = (_daily(curves[name], per_day, top) for name in ("low", "upper"))
        lines.insert(0, Series("band", "90% interval of costs and arrivals", low=low, high=high))
    finding = (
        f"{facts.query}: at most {seconds(facts.worst_mean_s)} at the expected load and "
        f"{seconds(facts.worst_high_s)} at the band, against {seconds(bound_s)}."
    )
    if facts.worst_high_s > top:
        finding = f"{finding} Drawn up to {seconds(top)}."
    marks = []
    if band := facts.first_band:
        index, label = facts.violations[band].index, "at risk from here" if band == "risk" else "violated from here"
        share = index / max(1, row.horizon)
        side = "right" if share < 0.2 else "left" if share > 0.8 else "center"
        marks.append(ChartMark(index * row.bucket_s, label, side=side))
    return Chart(
        id=f"query-{number}",
        finding=finding,
        unit="s",
        x=axis,
        series=lines,
        objective_s=bound_s,
        marks=marks,
        height=190,
        steps=True,
    )


def _daily(values: Sequence[float], per_day: int, top: float) -> list[float]:
    """The highest of each day, and not above `top`; the last one twice, for its step to have a width."""
    highs = [min(max(values[i : i + per_day]), top) for i in range(0, len(values), per_day)]
    return [*highs, *highs[-1:]]


def history_chart(history: LoadHistory) -> Chart:
    """The whole of a history, downsampled to means; gaps stay gaps."""
    values = history_values(history) / history.bucket_s
    size = max(1, -(-len(values) // _POINTS))
    padded = np.concatenate([values, np.full(-len(values) % size, np.nan)]).reshape(-1, size)
    measured = np.isfinite(padded)
    sums = np.where(measured, padded, 0.0).sum(axis=1)
    counts = measured.sum(axis=1)
    means = [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]
    finding = f"Load of {history.source_id}: {rate(history.mean_eps)} on average."
    if history.missing:
        unknown = percent(history.missing / history.buckets)
        finding = f"Load of {history.source_id}: {rate(history.mean_eps)} on average, {unknown} of it unknown."
    return Chart(
        id="history",
        finding=finding,
        unit="/s",
        x=time_axis(history.starts_at, float(history.bucket_s * size), len(means)),
        series=[Series("load", "Events per second", y=means, ink="c-estimate")],
    )


_MAX_CHARTS = 6
DEFAULT_COST = 50.0


def moment(at: datetime | None, now: datetime | None = None) -> str:
    """12 Dec, 19:00 in the active zone, with the year where it is another one; "now" for what has begun."""
    if at is None:
        return MISSING
    local, today = timezone.localtime(at), timezone.localtime(now)
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local.day} {local:%b}{year}, {local:%H:%M}"


class ForecastFacts:
    """The newest forecast, read once; every property is computed when a template asks for it."""

    def __init__(self, cluster: Cluster, given: Mapping[str, str]) -> None:
        self.cluster, self.given = cluster, given

    @cached_property
    def row(self) -> Forecast | None:
        return forecast_latest(self.cluster)

    @cached_property
    def answer(self) -> ForecastAnswer | None:
        return forecast_answer(self.row) if self.row else None

    @cached_property
    def series(self) -> ForecastCurves:
        return forecast_series(self.row) if self.row else {}

    @cached_property
    def histories(self) -> list[LoadHistory]:
        return list(histories_visible().filter(cluster=self.cluster))

    @cached_property
    def job(self) -> Job | None:
        """The newest request, while it is at work or if it failed after the newest forecast."""
        job = Job.objects.filter(cluster=self.cluster, kind=JobKind.FORECAST).order_by("-created_at").first()
        if job is None or job.state not in FINISHED:
            return job
        is_news = job.error and (self.row is None or job.created_at > self.row.created_at)
        return job if is_news else None

    @cached_property
    def changes(self) -> list[str]:
        return list(forecast_changes(self.row)) if self.row else []

    @cached_property
    def shortages(self) -> list[Shortage]:
        return shortages(self.cluster, self.row) if self.row else []

    # -- the finding

    @property
    def sentence(self) -> SafeString:
        row, first = self.row, next(iter(self.shortages), None)
        facts: dict[str, object] = {"row": row}
        if row is not None:
            facts["judged"] = self.answer.queries
            facts["lacking"] = next((query for query in self.answer.queries if query.is_for_person), None)
            facts["days"], facts["until"] = f"{row.horizon * row.bucket_s / 86_400:g}", moment(row.ends_at)
        if row is not None and first is not None:
            facts |= {"first": first, "first_at": moment(first.first_at), "more": len(self.shortages) - 1}
            facts |= {"band": first.band, "is_first_hour": first.first_at == row.starts_at}
            facts["later_at"] = moment(first.high_at or first.mean_at) if first.high_at or first.mean_at else ""
            facts["mean_at"] = moment(first.mean_at) if first.mean_at else ""
        return sentence("pages/forecasts/sentences/finding.html", **facts)

    @property
    def when(self) -> str:
        row = self.row
        if row is None:
            return ""
        sources = len(self.answer.sources)
        return f"{counted(sources, 'source')} forecast from {moment(row.starts_at)}, {self.cluster.time_zone}"

    # -- the strip

    @property
    def stats(self) -> list[Stat]:
        row = self.row
        assert row is not None
        return [self._threatened(), self._holding(), self._growth(), self._error()]

    def _threatened(self) -> Stat:
        number, judged = len(self.shortages), len(self.answer.queries)
        note = f"of {judged}; {self.shortages[0].query} first" if number else f"of {judged} within the horizon"
        return Stat("Objectives threatened", Quantity(str(number)), note, "watch" if number else "")

    def _holding(self) -> Stat:
        chance = self.answer.probability
        if not chance:
            return Stat("All objectives hold", Quantity(MISSING), "Nothing to judge")
        note = f"± {percent(chance.all_hold_error)}, {chance.paths} futures drawn"
        return Stat("All objectives hold", percent(chance.all_hold), note)

    def _growth(self) -> Stat:
        total = self.series.get("total")
        if not total:
            return Stat("Load at its peak", Quantity(MISSING), "No curves kept")
        week = max(1, round(604_800 / self.row.bucket_s))
        first, last = max(total["mean"][:week]), max(total["mean"][-week:])
        change = last / first - 1 if first else 0.0
        sign = "+" if change >= 0 else "−"
        note = "peak of the last week over that of the first"
        return Stat("Growth expected", Quantity(f"{sign}{abs(change) * 100:.1f}", "%"), note)

    def _error(self) -> Stat:
        medians = [source.backtest.median_ape for source in self.answer.sources.values()]
        errors = sorted(error for error in medians if error is not None)
        if not errors:
            return Stat("Error so far", Quantity(MISSING), "The histories are too short to tell")
        return Stat("Error so far", percent(errors[len(errors) // 2]), "median of the sources, from rolling origins")

    # -- load

    @cached_property
    def source(self) -> str:
        """The source that is looked at; empty for the total."""
        name = self.given.get("source", "")
        return name if name in self.series.get("sources", {}) else ""

    @cached_property
    def load(self) -> Chart | None:
        return load_chart(self.row, self.series, self.histories, self.source) if self.series.get("sources") else None

    @property
    def charts(self) -> list[Chart]:
        """Latency of every threatened query; without any, of the one nearest to its objective."""
        series = self.series.get("queries", {})
        names = [shortage.query for shortage in self.shortages if shortage.query in series]
        if not names and series:
            names = [max(self.answer.queries, key=lambda query: query.worst_high_s / query.bound_s).query]
        facts = {query.query: query for query in self.answer.queries} if self.answer else {}
        return [query_chart(self.row, facts[name], series[name], i) for i, name in enumerate(names[:_MAX_CHARTS])]

    @property
    def tests(self) -> list[tuple[str, SourceForecast]]:
        """Sources with their backtests, by name."""
        return sorted(self.answer.sources.items()) if self.answer else []

    @property
    def tested(self) -> tuple[str, SourceForecast] | None:
        """The source whose backtest is shown band by band: the chosen one, or the first."""
        return next((test for test in self.tests if test[0] == self.source), self.tests[0] if self.tests else None)

    # -- cost

    @property
    def most_days(self) -> int:
        row = self.row
        return max(1, row.horizon * row.bucket_s // 86_400) if row else 1

    @cached_property
    def cost(self) -> tuple[float, str]:
        """Cost per hour of violation as the address has it, and what is wrong with it."""
        text = self.given.get("cost", "").strip()
        if not text:
            return DEFAULT_COST, ""
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if 0.0 <= value <= 1e12 and "_" not in text:
            return value, ""
        return DEFAULT_COST, f"{text[:20]} is not a cost: enter a number of at least 0. Shown for {DEFAULT_COST:g}."

    @cached_property
    def days(self) -> tuple[int, str]:
        """Days compared as the address has them, and what is wrong with them."""
        text, limit = self.given.get("days", "").strip(), self.most_days
        if not text:
            return limit, ""
        days = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
        if 1 <= days <= limit:
            return days, ""
        return limit, f"{text[:20]} is no number of days from 1 to {limit}. Shown for {limit}."

    @cached_property
    def regret(self) -> LeastRegret | None:
        try:
            cost = self.cost[0]
            return forecast_regret(
                self.row, cost_per_violation_hour=cost, horizon_days=self.days[0], series=self.series
            )
        except SluiceError as error:
            self.no_regret = error.message
            return None

    no_regret = ""

    @property
    def pools_basis(self) -> str:
        return pools_basis(self.row) if self.row else ""

    @property
    def present(self) -> int:
        return self.answer.nodes if self.answer else 0

    @property
    def pools(self) -> list[tuple[PoolForecast, SizeCost | None]]:
        """Pool sizes with their costs, for the table."""
        costs = {cost.size: cost for cost in self.regret.sizes} if self.regret else {}
        judged = self.answer.pools if self.answer else ()
        return [(pool, costs.get(pool.size)) for pool in sorted(judged, key=lambda pool: pool.size)]

    @property
    def bottleneck_words(self) -> list[tuple[Shortage, str]]:
        return [(shortage, bottleneck_text(shortage)) for shortage in self.shortages]


def bottleneck_text(shortage: Shortage) -> str:
    """Core 2 of n09 runs at 1.1 of capacity at its peak; join-features takes 53% of it."""
    bottleneck = shortage.bottleneck
    if not bottleneck:
        return ""
    where = server_words(bottleneck.server, begins=True)
    load = ratio(bottleneck.load_peak)
    if not bottleneck.operator:
        return f"{where} runs at {load} of capacity at its peak"
    operator = bottleneck.operator.partition("/")[2] or bottleneck.operator
    return f"{where} runs at {load} of capacity at its peak; {operator} takes {percent(bottleneck.share)} of it"
