"""A query's curves: latency over the horizon, and estimates over the past runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apps.estimates.curves import curves_unpack
from apps.estimates.models import QueryEstimate
from apps.estimates.selectors import HistoryPoint
from apps.ui.charts import Chart, Mark, Series, elapsed_axis, time_axis
from apps.ui.numbers import percent, seconds

__all__ = ["history_chart", "latency_chart"]

# Two labels nearer to each other than this share of the picture's width would overlap.
_LABELS_APART = 0.2


def latency_chart(row: QueryEstimate) -> Chart | None:
    """Worst latency in each subinterval, with the interval, the objective, and where the excess behind it builds up."""
    if row.series is None:
        return None
    curves = curves_unpack(row.series)
    times, estimate = curves["time_s"], curves["estimate_s"]
    step_s = times[1] - times[0] if len(times) > 1 else row.run.subinterval_s
    series = []
    if curves["high_s"] is not None:
        level = percent((row.result or {}).get("level", 0.9))
        series.append(Series("band", f"{level} interval", low=curves["low_s"], high=curves["high_s"]))
    series.append(Series("estimate", "Estimate", y=estimate))
    against = f" against an objective of {seconds(row.bound_s)}" if row.bound_s else ""
    return Chart(
        id="latency",
        finding=f"Latency over the estimated stretch: at most {seconds(max(estimate, default=0.0))}{against}.",
        unit="s",
        x=elapsed_axis(step_s),
        series=series,
        objective_s=row.bound_s or None,
        marks=_build_up(row),
    )


def _build_up(row: QueryEstimate) -> list[Mark]:
    """Where the bottleneck's excess begins to build up and where it is largest."""
    found = (row.result or {}).get("bottleneck") or {}
    if not found.get("excess_s"):
        return []
    width_s = row.run.subinterval_s
    begin_s, end_s = (found["from_p"] - 1) * width_s, found["to_p"] * width_s
    room_s = _LABELS_APART * row.run.slices * row.run.slice_s
    where = found.get("node") or found.get("server")
    peak = Mark(end_s, f"excess of {where} peaks", side=_side(end_s, row.run.slices * row.run.slice_s, room_s))
    if end_s - begin_s >= room_s:
        return [Mark(begin_s, "excess builds up", side=_side(begin_s, end_s, room_s)), peak]
    if begin_s < room_s or peak.side == "left":
        return [peak]  # no place for a second label, and a line without one says nothing
    return [Mark(begin_s, "excess builds up", side="left"), replace(peak, side="right")]


def _side(at_s: float, span_s: float, room_s: float) -> str:
    """On which side of its line a label has room inside a picture of this span."""
    return "right" if at_s < room_s / 2 else "left" if span_s - at_s < room_s / 2 else "center"


def history_chart(points: Sequence[HistoryPoint], bound_s: float | None) -> Chart | None:
    """Estimates of the past runs over real time."""
    if len(points) < 2:
        return None
    start = points[0].at
    x = [(point.at - start).total_seconds() for point in points]
    span_s = max(x[-1], 1.0)
    estimates, worst = [point.estimate_s for point in points], [point.worst_s for point in points]
    curves = [Series("estimate", "Estimate", y=estimates, x=x)]
    if worst != estimates:  # the objective is about another statistic
        curves.insert(0, Series("alt", "Worst case", y=worst, x=x))
    return Chart(
        id="history",
        finding=f"{len(points)} estimates, the newest {seconds(points[-1].estimate_s)}.",
        unit="s",
        x=time_axis(start, span_s, 1),
        series=curves,
        objective_s=bound_s or None,
        height=220,
        steps=True,
    )
