"""Charts of reports: lines over axes from zero, headroom of queries, excess of nodes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reportlab.graphics.shapes import Circle, Drawing, Line, Polygon, PolyLine, Rect, String

from apps.reports.drawings.ink import ink, label, load_fonts, state_shape, text_width
from apps.ui.numbers import ratio, seconds
from apps.ui.pictures import EXCESS_STEPS_S

__all__ = ["Curve", "Plot", "excess_strips", "headroom_bars", "nice_ticks"]


_DASHES = {"c-estimate": None, "c-alt": [5, 2.5], "c-third": [1.5, 2]}


@dataclass(frozen=True)
class Curve:
    """A line: `role` names its colour and dash, `name` is written at its right end; markers where points are few."""

    role: str
    name: str
    x: Sequence[float]
    y: Sequence[float]
    markers: bool = False


@dataclass
class Plot:
    """The frame of a chart: from data to points of the page."""

    width: float
    height: float
    x_range: tuple[float, float]
    y_max: float
    left: float = 34.0
    right: float = 78.0
    bottom: float = 22.0
    top: float = 14.0
    drawing: Drawing = field(init=False)

    def __post_init__(self) -> None:
        load_fonts()
        self.drawing = Drawing(self.width, self.height)
        self._ends: list[tuple[float, String]] = []

    def x(self, value: float) -> float:
        low, high = self.x_range
        share = (value - low) / ((high - low) or 1.0)
        return self.left + min(max(share, 0.0), 1.0) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        share = value / (self.y_max or 1.0)
        return self.bottom + min(max(share, 0.0), 1.02) * (self.height - self.bottom - self.top)

    def y_axis(self, write: Callable[[float, bool], str], caption: str = "") -> None:
        """Horizontal grid; `write(value, is_top)` gives a tick's text, with the unit on the top one."""
        ticks = nice_ticks(self.y_max)
        for value in ticks:
            at = self.y(value)
            tone = "line-strong" if value == 0 else "c-grid"
            self.drawing.add(Line(self.left, at, self.width - self.right, at, strokeColor=ink(tone), strokeWidth=0.7))
            self.drawing.add(label(self.left - 5, at - 2.6, write(value, value == ticks[-1]), size=7.5, anchor="end"))
        if caption:
            self.drawing.add(label(self.left, self.height - 7, caption, size=7.5))

    def x_axis(self, ticks: Sequence[tuple[float, str]], caption: str = "") -> None:
        for value, text in ticks:
            self.drawing.add(label(self.x(value), self.bottom - 11, text, size=7.5, anchor="middle"))
        if caption:
            self.drawing.add(label(self.width - self.right + 8, self.bottom - 11, caption, size=7.5))

    def band(self, x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
        upper = [(self.x(a), self.y(b)) for a, b in zip(x, high, strict=True)]
        lower = [(self.x(a), self.y(b)) for a, b in zip(x, low, strict=True)]
        points = [value for point in [*upper, *reversed(lower)] for value in point]
        self.drawing.add(Polygon(points, fillColor=ink("c-band"), strokeColor=None))

    def objective(self, value: float, text: str) -> None:
        at = self.y(value)
        self.drawing.add(
            Line(self.left, at, self.width - self.right, at, strokeColor=ink("c-objective"), strokeWidth=1.3)
        )
        self._end(at, label(self.width - self.right + 6, at - 2.6, text, size=8, colour="c-objective", bold=True))

    def curve(self, curve: Curve) -> None:
        colour = ink(curve.role)
        points = [(self.x(a), self.y(b)) for a, b in zip(curve.x, curve.y, strict=True)]
        flat = [value for point in points for value in point]
        line = PolyLine(
            flat, strokeColor=colour, strokeWidth=1.5, strokeDashArray=_DASHES.get(curve.role), strokeLineJoin=1
        )
        if len(points) > 1:
            self.drawing.add(line)
        for x, y in points if curve.markers else ():
            self._marker(curve.role, x, y)
        if curve.name and points:
            x, y = self.width - self.right + 6, points[-1][1] - 2.6
            self._end(points[-1][1], label(x, y, curve.name, size=8, colour=curve.role, bold=True))

    def mark_x(self, value: float, text: str, *, wide: float = 0.0) -> None:
        """A vertical that says something about one place; `wide` (in data) makes it a soft column."""
        top = self.height - self.top
        if wide:
            left, right = self.x(value - wide / 2), self.x(value + wide / 2)
            self.drawing.insert(
                0, Rect(left, self.bottom, right - left, top - self.bottom, fillColor=ink("sunken"), strokeColor=None)
            )
        else:
            at = self.x(value)
            self.drawing.add(
                Line(at, self.bottom, at, top, strokeColor=ink("ink-3"), strokeWidth=0.8, strokeDashArray=[2, 2])
            )
        if text:
            self.drawing.add(label(self.x(value), top + 3, text, size=7.5, colour="ink", bold=True, anchor="middle"))

    def _marker(self, role: str, x: float, y: float) -> None:
        if role == "c-alt":
            self.drawing.add(Rect(x - 2, y - 2, 4, 4, fillColor=ink(role), strokeColor=None))
        elif role == "c-third":
            self.drawing.add(
                Polygon([x, y + 2.6, x - 2.4, y - 1.7, x + 2.4, y - 1.7], fillColor=ink(role), strokeColor=None)
            )
        else:
            self.drawing.add(Circle(x, y, 2.1, fillColor=ink(role), strokeColor=None))

    def _end(self, at: float, text: String) -> None:
        self._ends.append((at, text))

    def finish(self) -> Drawing:
        """Words at the right end are moved apart where lines end close to each other."""
        last = -math.inf
        for at, text in sorted(self._ends, key=lambda one: one[0]):
            text.y = max(text.y, last + 9.5)
            last = text.y
            self.drawing.add(text)
            del at
        return self.drawing


def nice_ticks(most: float, count: int = 4) -> list[float]:
    """Zero and a few round values up to `most`.

    Examples
    --------
    >>> nice_ticks(14.0)
    [0.0, 5.0, 10.0]
    """
    if most <= 0:
        return [0.0]
    raw = most / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    return [round(step * k, 12) for k in range(int(most / step + 1e-9) + 1)]


_ROW = 15.0
_CAP_STEP = EXCESS_STEPS_S.index(4.0)
#: The objective always stands at three quarters of a bar's width, so that rows compare by eye.
_OBJECTIVE_AT = 0.75


def headroom_bars(rows: Sequence[dict[str, Any]], width: float) -> Drawing:
    """Estimate, interval and objective of each query on one scale: shares of its objective."""
    load_fonts()
    rows = [row for row in rows if row["bound_s"]]
    names = max((text_width(row["query"], 8.5) for row in rows), default=0)
    left = min(names + 18, 0.3 * width)
    right = 118.0
    height = _ROW * len(rows) + 12
    drawing = Drawing(width, height)
    bar = width - left - right
    line_x = left + _OBJECTIVE_AT * bar
    for index, row in enumerate(rows):
        _headroom_row(drawing, row, left, bar, height - 12 - _ROW * (index + 1) + 3.5, width)
    drawing.add(Line(line_x, 0, line_x, height - 11, strokeColor=ink("c-objective"), strokeWidth=1.3))
    drawing.add(label(line_x, height - 8, "Objective", size=7.5, colour="c-objective", bold=True, anchor="middle"))
    return drawing


def _headroom_row(drawing: Drawing, row: dict[str, Any], left: float, bar: float, y: float, width: float) -> None:
    def x(value_s: float) -> float:
        return left + min(max(value_s / row["bound_s"] * _OBJECTIVE_AT, 0.0), 1.0) * bar

    drawing.add(state_shape(row["state"], 0, y - 0.5, 8.5))
    drawing.add(label(12, y + 1, _fitted(row["query"], left - 16), size=8.5, colour="ink"))
    drawing.add(Rect(left, y, bar, 7, fillColor=ink("sunken"), strokeColor=None))
    if row["low_s"] is not None and row["high_s"] is not None:
        low, high = x(row["low_s"]), x(row["high_s"])
        drawing.add(Rect(low, y - 1.5, max(high - low, 0.8), 10, fillColor=ink("c-band"), strokeColor=None))
    end, limit = x(row["estimate_s"]), left + _OBJECTIVE_AT * bar
    drawing.add(Rect(left, y + 1, max(min(end, limit) - left, 0), 5, fillColor=ink("c-fill"), strokeColor=None))
    if end > limit:
        drawing.add(Rect(limit, y + 1, end - limit, 5, fillColor=ink("bad"), strokeColor=None))
    drawing.add(Line(end, y - 1.5, end, y + 8.5, strokeColor=ink("c-estimate"), strokeWidth=1.6))
    told = f"{seconds(row['estimate_s'], apart_from=row['bound_s'])} of {seconds(row['bound_s'])}"
    drawing.add(label(left + bar + 8, y + 1, told, size=8, colour="ink-2"))
    gap = row["headroom_s"]
    over = f"{seconds(-gap)} over" if gap < 0 else f"{seconds(gap)} left"
    drawing.add(label(width, y + 1, over, size=8, colour="bad" if gap < 0 else "ink-3", bold=gap < 0, anchor="end"))


def excess_strips(rows: Sequence[dict[str, Any]], width: float) -> Drawing:
    """Work that waits on each node over the stretch, in six steps of lightness; a cap marks four seconds and more."""
    load_fonts()
    left, right = min(max((text_width(row["name"], 8.5) for row in rows), default=0) + 8, 0.24 * width), 112.0
    height = 13.5 * len(rows) + 14
    drawing = Drawing(width, height)
    bar = width - left - right
    drawing.add(label(left + bar + 8, height - 8, "highest excess", size=7, anchor="start"))
    drawing.add(label(width, height - 8, "mean load", size=7, anchor="end"))
    for index, row in enumerate(rows):
        y = height - 14 - 13.5 * (index + 1) + 3
        drawing.add(label(0, y + 1, _fitted(row["name"], left - 4), size=8.5, colour="ink"))
        _strip(drawing, row["excess"], left, bar, y)
        drawing.add(label(left + bar + 8, y + 1, str(seconds(row["excess_s"])), size=8, colour="ink-2"))
        drawing.add(label(width, y + 1, ratio(row["mean_load"]), size=8, colour="ink-2", anchor="end"))
    return drawing


def _strip(drawing: Drawing, values: Sequence[float], left: float, bar: float, y: float) -> None:
    """Neighbours of the same step are one rectangle: fewer lines in the file, and no hair between them."""
    drawing.add(Rect(left, y, bar, 8, fillColor=ink("h0"), strokeColor=None))
    count = len(values)
    begin = 0
    for index in range(1, count + 1):
        step = _step(values[begin])
        if index < count and _step(values[index]) == step:
            continue
        if step:
            x, wide = left + begin / count * bar, (index - begin) / count * bar
            drawing.add(Rect(x, y, wide, 8, fillColor=ink(f"h{step}"), strokeColor=None))
            if step >= _CAP_STEP:
                drawing.add(Rect(x, y + 8, wide, 1.6, fillColor=ink("bad"), strokeColor=None))
        begin = index


def _step(value_s: float) -> int:
    """h0 is nothing that would be noticed; each further step begins at its lower edge."""
    return max(0, bisect_right(EXCESS_STEPS_S[1:], value_s))


def _fitted(text: str, width: float, size: float = 8.5) -> str:
    """The text, shortened with an ellipsis to so many points."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text}…"
