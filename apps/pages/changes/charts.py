"""Curve of a cluster's headroom, from which its moments are opened."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils import timezone

from apps.ui.charts import Chart, Series, time_axis
from apps.ui.numbers import percent

__all__ = ["headroom_chart", "moment_text"]

_LOCAL = "%Y-%m-%dT%H:%M:%S"


def headroom_chart(points: Sequence[tuple[datetime, float]], address: str) -> Chart | None:
    """The least headroom of an objective by estimate; a click opens `address` at its moment. None of fewer than two."""
    if len(points) < 2:
        return None
    start = points[0][0]
    x = [(at - start).total_seconds() for at, _ in points]
    shares = [100.0 * share for _, share in points]
    lowest = min(points, key=lambda point: point[1])
    return Chart(
        id="headroom",
        finding=f"Least headroom of {len(points)} estimates; the lowest is {percent(lowest[1])}.",
        unit="%",
        x=time_axis(start, max(x[-1], 1.0), 1),
        series=[Series("estimate", "Least headroom", y=shares, x=x)],
        height=200,
        steps=True,
        moments=address,
    )


def moment_text(at: datetime) -> str:
    """A moment in the reader's zone, as the page takes it in its address."""
    return timezone.localtime(at).strftime(_LOCAL)
