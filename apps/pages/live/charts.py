"""Charts of a live query: a column over its newest windows, and the latency measured of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from django.utils import timezone

from apps.pages.sources.facts import moment_of
from apps.queries.models import Query
from apps.results.models import ResultWindow
from apps.ui.charts import Chart, Series, time_axis
from apps.ui.numbers import seconds, significant
from engine.words import counted

__all__ = ["LivePictures", "value_text"]

#: More than three curves are hard to tell apart.
_ROLES = ("estimate", "alt", "third")
_MAX_POINTS = 2000
#: What the end of a column's name says of its unit: (unit drawn, how many of the column's make one of it).
_UNITS = {"_us": ("ms", 1e3), "_ms": ("ms", 1.0), "_s": ("s", 1.0), "_percent": ("%", 1.0), "_bytes": ("B", 1.0)}


def value_text(value: Any) -> str:
    """A cell of the results: numbers short, times by the clock."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, datetime):
        return f"{timezone.localtime(value):%H:%M:%S}"
    return str(value)


class LivePictures:
    """Built from the newest windows of one plan, oldest first."""

    def __init__(
        self,
        query: Query,
        windows: Sequence[ResultWindow],
        tables: Sequence[pa.Table],
        groups: Sequence[str],
        numbers: Sequence[str],
        wanted: str,
    ) -> None:
        self.query = query
        self.windows = windows
        self.tables = tables
        self.groups = list(groups)
        self.column = wanted if wanted in numbers else min(numbers, key=_plainness, default="")

    @property
    def heading(self) -> str:
        return f"{self.column} over time"

    @cached_property
    def chart(self) -> Chart | None:
        """The column for the groups that are largest in the newest window; None with fewer than two windows."""
        if not self.column or len(self.windows) < 2:
            return None
        steps_us = [b.window_us - a.window_us for a, b in pairwise(self.windows)]
        first_us, step_us = self.windows[0].window_us, min(steps_us)
        size = (self.windows[-1].window_us - first_us) // step_us + 1
        curves = self._curves()
        begin = moment_of(first_us)
        if not curves or size > _MAX_POINTS or begin is None:
            return None
        unit, per = next((scale for end, scale in _UNITS.items() if self.column.endswith(end)), ("", 1.0))
        series = []
        for role, (name, values) in zip(_ROLES, curves.items(), strict=False):
            curve: list[float | None] = [None] * size
            for window, value in zip(self.windows, values, strict=True):
                curve[(window.window_us - first_us) // step_us] = value / per if value is not None else None
            series.append(Series(role, name, y=curve))
        finding = f"{self.column} of {'; '.join(curves)} over the last {counted(len(self.windows), 'window')}"
        return Chart("live-column", finding, unit, time_axis(begin, step_us / 1e6, size), series, height=240)

    def _curves(self) -> dict[str, list[float | None]]:
        """By the name of a group: its value in every window. There may be thousands of groups: few become rows."""
        newest = [row for row in self._rows(self.tables[-1]) if row[self.column] is not None]
        leading = sorted(newest, key=lambda row: (-row[self.column], self._group_name(row)))[: len(_ROLES)]
        curves: dict[str, list[float | None]] = {}
        for row in leading:
            curves[self._group_name(row)] = [self._value(table, row) for table in self.tables]
        return curves

    def _rows(self, table: pa.Table) -> list[dict[str, Any]]:
        return table.select([*self.groups, self.column]).to_pylist() if self.column in table.column_names else []

    def _value(self, table: pa.Table, group: Mapping[str, Any]) -> float | None:
        """The column's value in the row of a group; None where there is none."""
        for name in self.groups:
            cells = table.column(name)
            table = table.filter(pc.is_null(cells) if group[name] is None else pc.equal(cells, group[name]))
        values = [row[self.column] for row in self._rows(table)]
        return float(values[0]) if values and values[0] is not None else None

    def _group_name(self, row: Mapping[str, Any]) -> str:
        return ", ".join(value_text(row[name]) for name in self.groups) or "all records"

    @cached_property
    def latency(self) -> Chart | None:
        """Measured of each window against the objective, by the time its result came."""
        points = [(window.emitted_at, window.latency_s) for window in self.windows if window.latency_s is not None]
        if len(points) < 2:
            return None
        begin = min(at for at, _ in points)
        offsets = [(at - begin).total_seconds() for at, _ in points]
        values = [latency_s for _, latency_s in points]
        extremes = f"median {seconds(median(values))}, worst {seconds(max(values))}"
        finding = f"Measured latency of {counted(len(points), 'window')}: {extremes}"
        series = [Series("measured", "Measured", y=values, x=offsets)]
        axis = time_axis(begin, max(*offsets, 1.0), 2)
        return Chart("live-latency", finding, "s", axis, series, objective_s=self.query.objective_bound_s, height=200)


def _plainness(name: str) -> int:
    """Order of columns by what they tell: medians first, then means, counts last."""
    words = name.lower().split("_")
    if {"median", "p50", "p90", "p95", "p99", "quantile"} & set(words):
        return 0
    if {"avg", "mean"} & set(words):
        return 1
    return 3 if {"n", "count", "probes", "records", "lines", "requests"} & set(words) else 2
