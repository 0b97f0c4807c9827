"""Curves of a forecast: load with its band, and the latency of a query over the coming weeks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from django.utils import timezone

from apps.forecasts.bucketing import coarser
from apps.forecasts.models import Forecast, LoadHistory
from apps.forecasts.services import history_values
from apps.ui.charts import Chart, Mark, Series, time_axis
from apps.ui.numbers import percent, rate, seconds

__all__ = ["history_chart", "load_chart", "query_chart"]

_POINTS = 720
_BACK_DAYS = 28


def load_chart(row: Forecast, series: dict[str, Any], histories: Sequence[LoadHistory], source: str) -> Chart:
    """History, forecast and band of one source, or of the total of those that were forecast."""
    names = [source] if source else list(series["sources"])
    curves = series["sources"][source] if source else series["total"]
    back = _BACK_DAYS * 86_400 // row.bucket_s
    past = _past([one for one in histories if one.source_id in names], row, back, len(names))
    known = np.flatnonzero(np.isfinite(past))
    past = past[known[0] :] if len(known) else past[:0]
    back, ahead = len(past), row.horizon
    blank = [None] * back
    history = [value if math.isfinite(value) else None for value in past.tolist()]
    x_s = [float((back + i) * row.bucket_s) for i in range(ahead)]
    start = row.starts_at - timedelta(seconds=back * row.bucket_s)
    highest = max(curves["mean"])
    what = source or f"{len(names)} sources together"
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
    marks = [Mark(back * row.bucket_s, "history ends" if is_old else "now", solid=True)]
    return Chart(id="load", finding=finding, unit="/s", x=axis, series=lines, marks=marks)


def _past(histories: Sequence[LoadHistory], row: Forecast, back: int, wanted: int) -> Any:
    """Events/s in the buckets before the forecast begins; NaN where any of the sources is not known."""
    end_s = row.starts_at.timestamp()
    total = np.zeros(back)
    if len(histories) < wanted:
        return np.full(back, np.nan)
    for history in histories:
        if row.bucket_s % history.bucket_s:
            return np.full(back, np.nan)
        start_s, values = coarser(
            history.starts_at.timestamp(), history_values(history), history.bucket_s, row.bucket_s
        )
        line = np.full(back, np.nan)
        first = round((end_s - start_s) / row.bucket_s) - back  # place in `values` where the picture begins
        part = values[max(0, first) : max(0, first + back)]
        at = max(0, -first)
        line[at : at + len(part)] = part[: back - at]
        total = total + line / row.bucket_s
    return total


def query_chart(row: Forecast, facts: dict[str, Any], curves: dict[str, list[float]], number: int) -> Chart:
    """Latency of a query's statistic at the expected load and at the upper end, against its objective."""
    bound_s = facts["bound_s"]
    per_day = max(1, 86_400 // row.bucket_s)
    axis = time_axis(row.starts_at, float(row.bucket_s * per_day), -(-row.horizon // per_day) + 1)
    top = 3.0 * bound_s  # what lies beyond is as bad, and would flatten everything that can still be read
    lines = [
        Series("alt", "At the 90% band", y=_daily(curves["high"], per_day, top)),
        Series("estimate", "At the expected load", y=_daily(curves["mean"], per_day, top)),
    ]
    cut = f"; drawn up to {seconds(top)}" if facts["worst_high_s"] > top else ""
    finding = (
        f"{facts['query']}: at most {seconds(facts['worst_mean_s'])} at the expected load and "
        f"{seconds(facts['worst_high_s'])} at the band, against {seconds(bound_s)}{cut}."
    )
    marks = []
    first = facts["first_high"] or facts["first_mean"]
    if first:
        share = first["index"] / max(1, row.horizon)
        side = "right" if share < 0.2 else "left" if share > 0.8 else "center"
        marks.append(Mark(first["index"] * row.bucket_s, "violated from here", side=side))
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
    found = [min(max(values[i : i + per_day]), top) for i in range(0, len(values), per_day)]
    return [*found, *found[-1:]]


def history_chart(history: LoadHistory) -> Chart:
    """The whole of a history, downsampled to means; gaps stay gaps."""
    values = history_values(history) / history.bucket_s
    size = max(1, -(-len(values) // _POINTS))
    padded = np.concatenate([values, np.full(-len(values) % size, np.nan)]).reshape(-1, size)
    known = np.isfinite(padded)
    sums = np.where(known, padded, 0.0).sum(axis=1)
    counts = known.sum(axis=1)
    means = [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]
    shown = "" if not history.missing else f", {percent(history.missing / history.buckets)} of it unknown"
    return Chart(
        id="history",
        finding=f"Load of {history.source_id}: {rate(history.mean_eps)} on average{shown}.",
        unit="/s",
        x=time_axis(history.starts_at, float(history.bucket_s * size), len(means)),
        series=[Series("load", "Events per second", y=means, ink="c-estimate")],
    )
