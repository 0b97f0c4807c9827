"""The section of the forecast of shortage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from apps.reports.blocks import Block, ReportCell, ReportColumn, ReportHeading, ReportPicture, ReportTable, ReportText
from apps.reports.drawings import Curve, Drawing, Plot
from apps.reports.notation import local_time
from apps.ui.numbers import MISSING, money, percent, scaled, seconds, seconds_range, significant
from engine.words import counted, statistic_text

__all__ = ["forecast_blocks"]

_SHORTAGES = (
    ReportColumn("Query", "query", width=1.9),
    ReportColumn("Objective", "objective_s", num=True, width=1.2),
    ReportColumn("At risk", "from_risk", width=1.6),
    ReportColumn("At the 90% band", "from_high", width=1.6),
    ReportColumn("As expected", "from_mean", width=1.6),
    ReportColumn("Latency then", "latency_s", num=True, width=1.5),
    ReportColumn("Holds with", "probability", num=True, width=0.9),
    ReportColumn("Where", "bottleneck", width=0.9),
    ReportColumn("What helps", "help", width=1.8),
)
_TESTS = (
    ReportColumn("Source", "source", width=1.5),
    ReportColumn("Model", "model", width=3),
    ReportColumn("Error on the past", "mape_share", num=True, width=1.2),
    ReportColumn("Inside the band", "coverage_share", num=True, width=1.2),
)


def forecast_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Violations by date, the curve of the first one, and how far the forecast can be trusted."""
    forecast, zone = facts["forecast"], ZoneInfo(facts["time_zone"])
    yield ReportHeading("forecast", "Forecast of shortage", f"The next {forecast['horizon_days']} days")
    if not forecast["available"]:
        yield ReportText(forecast["text"])
        return
    yield ReportText(_sentence(forecast, zone))
    if forecast["curve"]:
        yield _latency(forecast, zone)
    if forecast["load"]:
        yield _load(forecast, zone)
    if forecast["shortages"]:
        currency = facts["fleet"]["currency"]
        rows = [_cells(shortage, zone, currency) for shortage in forecast["shortages"]]
        yield ReportTable("shortages", "Shortages", _SHORTAGES, rows, shown=20)
    if forecast["backtests"]:
        yield ReportTable(
            "backtests",
            "How good it was on the past",
            _TESTS,
            [_test(shortage) for shortage in forecast["backtests"]],
            12,
        )
    yield ReportText(_basis(forecast, zone), quiet=True)


def _sentence(forecast: dict[str, Any], zone: ZoneInfo) -> str:
    days, later = counted(forecast["horizon_days"], "day"), forecast["later"]
    if not forecast["shortages"]:
        sentences = [f"No objective is violated or at risk within {days}, at the upper end of the band either."]
        if lacking := forecast.get("lacking"):
            sentences = [f"No objective is violated within {days} by stimulus time.", *lacking]
        if later:
            sentences.append("1 is, later than that." if later == 1 else f"{later} are, later than that.")
        return " ".join(sentences)
    first, more = forecast["shortages"][0], len(forecast["shortages"]) - 1
    query, since = first["query"], local_time(first["first_at"], zone)
    sentences = [f"The objective of {query} is violated from {since} at the expected load."]
    if first["band"] == "high":
        sentences = [f"The objective of {query} is violated from {since} at the 90% band."]
    if first["band"] == "risk":
        sentences = [f"The objective of {query} is at risk from {since}: random costs and arrivals may break it."]
    if more:
        sentences.append(f"1 more follows within {days}." if more == 1 else f"{more} more follow within {days}.")
    return " ".join(sentences)


def _cells(shortage: dict[str, Any], zone: ZoneInfo, currency: str) -> list[ReportCell]:
    return [
        ReportCell(shortage["query"], shortage["query"], strong=True),
        ReportCell(f"{statistic_text(shortage['statistic'])} ≤ {seconds(shortage['bound_s'])}", shortage["bound_s"]),
        ReportCell(local_time(shortage.get("risk_at"), zone), shortage.get("risk_at")),
        ReportCell(local_time(shortage["high_at"], zone), shortage["high_at"]),
        ReportCell(local_time(shortage["mean_at"], zone), shortage["mean_at"]),
        ReportCell(_latency_text(shortage), shortage["latency_s"]),
        ReportCell(str(percent(shortage["holds"])), shortage["holds"]),
        ReportCell(shortage["bottleneck"] or MISSING, shortage["bottleneck"]),
        ReportCell(_help(shortage["fix"], currency), (shortage["fix"] or {}).get("size")),
    ]


def _latency_text(shortage: dict[str, Any]) -> str:
    """5.2 s (4.1 to 6.9 s): the median with its interval, where that was kept."""
    value = str(seconds(shortage["latency_s"], apart_from=shortage["bound_s"]))
    if shortage.get("upper_s") is None:
        return value
    return f"{value} ({seconds_range(shortage['low_s'], shortage['upper_s'], apart_from=shortage['bound_s'])})"


def _help(fix: dict[str, Any] | None, currency: str) -> str:
    if fix is None:
        return "No pool that was judged"
    added = fix.get("added")
    if added is not None and added <= 0:
        return "Placing operators anew"
    nodes = f"{fix['size']} nodes" if added is None else f"+{counted(added, 'node')}"
    if fix.get("price_per_hour") is None:
        return nodes
    return f"{nodes}, {money(fix['price_per_hour'], currency)} per hour in all"


def _test(test: dict[str, Any]) -> list[ReportCell]:
    return [
        ReportCell(test["source"], test["source"], strong=True),
        ReportCell(test["model"], test["model"]),
        ReportCell(str(percent(test["error_share"])), test["error_share"]),
        ReportCell(str(percent(test["coverage"])), test["coverage"]),
    ]


def _basis(forecast: dict[str, Any], zone: ZoneInfo) -> str:
    begin, end = local_time(forecast["made_at"], zone), local_time(forecast["ends_at"], zone)
    sentences = [f"Forecast of {begin}, to {end}."]
    if forecast["changes"]:
        sentences.append(f"Since then: {'; '.join(forecast['changes'])}.")
    return " ".join([*sentences, *forecast["assumptions"]])


def _latency(forecast: dict[str, Any], zone: ZoneInfo) -> ReportPicture:
    curve = forecast["curve"]
    what = f"{curve['query']}: {statistic_text(curve['statistic'])} latency by hour"
    finding = f"{what}, at the expected load and at the upper end of the band."
    band = (("band", "90% interval of costs and arrivals"),) if "upper" in curve else ()
    key = (("estimate", "At the expected load"), ("alt", "At the 90% band"), *band, ("objective-line", "Objective"))
    return ReportPicture(finding, partial(_draw_latency, forecast, zone), key)


def _draw_latency(forecast: dict[str, Any], zone: ZoneInfo, width: float) -> Drawing:
    curve = forecast["curve"]
    x = list(range(len(curve["high"])))
    # a queue that never empties would flatten everything below it
    top = min(max([*curve["high"], curve["bound_s"]]) * 1.08, 4 * curve["bound_s"])
    plot = Plot(width, 150, (0, max(x[-1], 1)), top, right=100)
    plot.y_axis(lambda value, is_top: f"{significant(value)}{' s' if is_top else ''}")
    plot.x_axis(_days(forecast, zone, len(x)))
    if "upper" in curve:
        plot.band(x, curve["low"], [min(value, top) for value in curve["upper"]])
    plot.curve(Curve("c-alt", "", x, curve["high"]))
    plot.curve(Curve("c-estimate", "", x, curve["mean"]))
    plot.objective(curve["bound_s"], f"Objective {seconds(curve['bound_s'])}")
    first = forecast["shortages"][0] if forecast["shortages"] else None
    if first is not None and first["query"] == curve["query"]:
        plot.mark_x(_share(forecast, first["first_at"]) * x[-1], local_time(first["first_at"], zone))
    return plot.drawing()


def _load(forecast: dict[str, Any], zone: ZoneInfo) -> ReportPicture:
    key = (("estimate", "Expected"), ("band", "Band, 90%"))
    return ReportPicture(
        "Load of all sources that have a history, in records per second.", partial(_draw_load, forecast, zone), key
    )


def _draw_load(forecast: dict[str, Any], zone: ZoneInfo, width: float) -> Drawing:
    load = forecast["load"]
    x = list(range(len(load["mean"])))
    plot = Plot(width, 115, (0, max(x[-1], 1)), max(load["high"]) * 1.06, right=100)
    plot.y_axis(lambda value, is_top: str(scaled(value, "/s")).replace("\u00a0", " ") if is_top else _short(value))
    plot.x_axis(_days(forecast, zone, len(x)))
    plot.band(x, load["low"], load["high"])
    plot.curve(Curve("c-estimate", "", x, load["mean"]))
    return plot.drawing()


def _short(value: float) -> str:
    return str(scaled(value)).replace("\u00a0", " ")


def _end(forecast: dict[str, Any]) -> datetime:
    start = datetime.fromisoformat(forecast["starts_at"])
    return min(datetime.fromisoformat(forecast["ends_at"]), start + timedelta(days=forecast["horizon_days"]))


def _share(forecast: dict[str, Any], moment: str) -> float:
    start = datetime.fromisoformat(forecast["starts_at"])
    span = (_end(forecast) - start).total_seconds() or 1.0
    return (datetime.fromisoformat(moment) - start).total_seconds() / span


def _days(forecast: dict[str, Any], zone: ZoneInfo, points: int) -> list[tuple[float, str]]:
    """Midnights in the report's zone, at most eight of them."""
    start = datetime.fromisoformat(forecast["starts_at"]).astimezone(zone)
    count = max(1, (_end(forecast) - start).days)
    step = -(-count // 7)
    first = datetime(start.year, start.month, start.day, tzinfo=zone) + timedelta(days=1)
    days = [first + timedelta(days=step * k) for k in range(8)]
    return [
        (_share(forecast, day.isoformat()) * (points - 1), f"{day.day} {day:%b}")
        for day in days
        if day < _end(forecast)
    ]
