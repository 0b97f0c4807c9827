"""What the newest forecast of a cluster says, in the words and numbers of its page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.forecasts.forecasting import forecast_series
from apps.forecasts.models import Forecast, LoadHistory
from apps.forecasts.regrets import forecast_regret
from apps.forecasts.selectors import Shortage, forecast_changes, forecast_latest, histories_listed, shortages
from apps.jobs.choices import FINISHED, JobKind
from apps.jobs.models import Job
from apps.pages.findings import Stat
from apps.pages.forecast_charts import load_chart, query_chart
from apps.ui.charts import Chart
from apps.ui.numbers import MISSING, Quantity, counted, percent, ratio, seconds
from engine.forecasting.regret import LeastRegret

__all__ = ["ForecastFacts", "moment"]

_MOST_CHARTS = 6
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
    def series(self) -> dict[str, Any]:
        return forecast_series(self.row) if self.row else {}

    @cached_property
    def histories(self) -> list[LoadHistory]:
        return list(histories_listed().filter(cluster=self.cluster))

    @cached_property
    def job(self) -> Job | None:
        """The newest request, while it is at work or if it failed after the newest forecast."""
        found = Job.objects.filter(cluster=self.cluster, kind=JobKind.FORECAST).order_by("-created_at").first()
        if found is None or found.state not in FINISHED:
            return found
        is_news = found.error and (self.row is None or found.created_at > self.row.created_at)
        return found if is_news else None

    @cached_property
    def changes(self) -> list[str]:
        return list(forecast_changes(self.row)) if self.row else []

    @cached_property
    def shortages(self) -> list[Shortage]:
        return shortages(self.cluster, self.row) if self.row else []

    # -- the finding

    @property
    def sentence(self) -> SafeString:
        row = self.row
        if row is None:
            return SafeString("When will load outgrow the cluster? A forecast needs the load of the past weeks.")
        days = row.horizon * row.bucket_s / 86_400
        until = f"until {moment(row.ends_at)}"
        if not row.result["queries"]:
            return format_html(
                "Load is forecast for {} days, {}; no running query has an objective.", f"{days:g}", until
            )
        if not self.shortages:
            return format_html("Every objective holds {}, at the upper end of the 90% band too.", until)
        first = self.shortages[0]
        more = len(self.shortages) - 1
        others = f" {counted(more, 'further objective')} {'is' if more == 1 else 'are'} threatened." if more else ""
        return format_html("{}{}", self._violated(first), others)

    def _violated(self, one: Shortage) -> SafeString:
        band = "at the 90% band" if one.band == "high" else "at the expected load"
        when = "already in the first hour" if self.row and one.first_at == self.row.starts_at else moment(one.first_at)
        text = "The objective of <b>{}</b>, {}, is violated from {} {}"
        start = format_html(text, one.query, seconds(one.bound_s), when, band)
        if one.band == "high" and one.mean_at:
            return format_html("{}, at the expected load from {}.", start, moment(one.mean_at))
        return format_html("{}{}.", start, ", at the expected load not before the end" if one.band == "high" else "")

    @property
    def when(self) -> str:
        row = self.row
        if row is None:
            return ""
        sources = len(row.result["sources"])
        return f"{counted(sources, 'source')} forecast from {moment(row.starts_at)}, {self.cluster.time_zone}"

    # -- the strip

    @property
    def stats(self) -> list[Stat]:
        row = self.row
        assert row is not None
        return [self._threatened(), self._holding(), self._growth(), self._error()]

    def _threatened(self) -> Stat:
        number, judged = len(self.shortages), len(self.row.result["queries"])
        note = f"of {judged}; {self.shortages[0].query} first" if number else f"of {judged} within the horizon"
        return Stat("Objectives threatened", Quantity(str(number)), note, "watch" if number else "")

    def _holding(self) -> Stat:
        chance = self.row.result["probability"]
        if not chance:
            return Stat("All objectives hold", Quantity(MISSING), "Nothing to judge")
        error = percent(chance["all_hold_error"])
        note = f"± {error}, {chance['paths']} futures drawn"
        return Stat("All objectives hold", percent(chance["all_hold"]), note)

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
        tests = [one["backtest"] for one in self.row.result["sources"].values()]
        errors = sorted(test["median_ape"] for test in tests if test["median_ape"] is not None)
        if not errors:
            return Stat("Error so far", Quantity(MISSING), "The histories are too short to tell")
        return Stat("Error so far", percent(errors[len(errors) // 2]), "median of the sources, from rolling origins")

    # -- load

    @cached_property
    def source(self) -> str:
        """The source that is looked at; empty for the total."""
        wanted = self.given.get("source", "")
        return wanted if wanted in self.series.get("sources", {}) else ""

    @property
    def sources(self) -> list[str]:
        return sorted(self.series.get("sources", {}))

    @cached_property
    def load(self) -> Chart | None:
        return load_chart(self.row, self.series, self.histories, self.source) if self.series.get("sources") else None

    @property
    def charts(self) -> list[Chart]:
        """Latency of every threatened query; without any, of the one nearest to its objective."""
        known = self.series.get("queries", {})
        names = [one.query for one in self.shortages if one.query in known]
        if not names and known:
            nearest = max(self.row.result["queries"], key=lambda one: one["worst_high_s"] / one["bound_s"])
            names = [nearest["query"]]
        facts = {one["query"]: one for one in self.row.result["queries"]} if self.row else {}
        return [query_chart(self.row, facts[name], known[name], i) for i, name in enumerate(names[:_MOST_CHARTS])]

    @property
    def tests(self) -> list[dict[str, Any]]:
        """Backtests of the sources, band by band."""
        found = []
        for name, one in sorted((self.row.result["sources"] if self.row else {}).items()):
            found.append({"name": name, **one, "total": (one["backtest"]["bands"] or [None])[-1]})
        return found

    @property
    def tested(self) -> dict[str, Any] | None:
        """The source whose backtest is shown band by band: the chosen one, or the first."""
        return next((one for one in self.tests if one["name"] == self.source), self.tests[0] if self.tests else None)

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
        text, most = self.given.get("days", "").strip(), self.most_days
        if not text:
            return most, ""
        days = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
        if 1 <= days <= most:
            return days, ""
        return most, f"{text[:20]} is no number of days from 1 to {most}. Shown for {most}."

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
    def present(self) -> int:
        return self.row.result["nodes"] if self.row else 0

    @property
    def pools(self) -> list[dict[str, Any]]:
        """Pool sizes with their costs, for the table."""
        found = self.regret
        judged = {pool["size"]: pool for pool in (self.row.result["pools"] if self.row else [])}
        costs = {one.size: one for one in found.sizes} if found else {}
        return [
            {
                "size": size,
                "is_now": size == self.present,
                "is_best": bool(found) and size == found.recommended,
                "price": pool["price_per_hour"],
                "refused": pool["refused"],
                "holds": pool["probability"]["all_hold"] if pool["probability"] else None,
                "error": pool["probability"]["all_hold_error"] if pool["probability"] else None,
                "cost": costs.get(size),
            }
            for size, pool in sorted(judged.items())
        ]

    @property
    def bottleneck_words(self) -> list[tuple[Shortage, str]]:
        return [(one, bottleneck_text(one)) for one in self.shortages]


def bottleneck_text(one: Shortage) -> str:
    """n09 runs at 1.1 of capacity at its peak; join-features takes 53% of it."""
    found = one.bottleneck
    if not found:
        return ""
    where = found["node"] or found["server"]
    text = f"{where} runs at {ratio(found['load_peak'])} of capacity at its peak"
    if found["operator"]:
        text += f"; {found['operator'].partition('/')[2] or found['operator']} takes {percent(found['share'])} of it"
    return text
