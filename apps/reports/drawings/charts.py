"""Charts of reports: lines over axes from zero, headroom of queries, excess of nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.reports.drawings.ink import DASHES, Drawing, label, marker, state_shape, text_width
from apps.ui.numbers import ratio, seconds
from apps.ui.pictures import EXCESS_STEPS_S
from apps.ui.svg.axes import line_data
from apps.ui.svg.scales import nice_ticks
from apps.ui.svg.shapes import Shape, path, rect

__all__ = ["Curve", "Plot", "excess_strips", "headroom_bars"]

_LABEL_GAP = 9.5
_ROW = 15.0
_STRIP_ROW = 13.5
_CAP_STEP = EXCESS_STEPS_S.index(4.0)
#: The objective always stands at three quarters of a bar's width, so that rows compare by eye.
_OBJECTIVE_AT = 0.75


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
    """The frame of a chart: from data to points of the sheet."""

    width: float
    height: float
    x_range: tuple[float, float]
    y_max: float
    left: float = 34.0
    right: float = 78.0
    bottom: float = 22.0
    top: float = 14.0
    shapes: list[Shape] = field(default_factory=list)
    _line_ends: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def base(self) -> float:
        """Height of the x axis."""
        return self.height - self.bottom

    @property
    def line_end(self) -> float:
        """Right end of the lines; their names stand beyond it."""
        return self.width - self.right

    def x(self, value: float) -> float:
        low, high = self.x_range
        share = (value - low) / ((high - low) or 1.0)
        return self.left + min(max(share, 0.0), 1.0) * (self.line_end - self.left)

    def y(self, value: float) -> float:
        share = value / (self.y_max or 1.0)
        return self.base - min(max(share, 0.0), 1.02) * (self.base - self.top)

    def y_axis(self, write: Callable[[float, bool], str], caption: str = "") -> None:
        """Horizontal grid; `write(value, is_top)` gives a tick's text, with the unit on the top one."""
        ticks = nice_ticks(self.y_max)
        for value in ticks:
            at = self.y(value)
            colour = "c-grid" if value else "line-strong"
            self.shapes.append(path("M", self.left, at, "H", self.line_end, stroke=colour, stroke_width=0.7))
            words = write(value, value == ticks[-1])
            self.shapes.append(label(self.left - 5, at + 2.6, words, size=7.5, anchor="end"))
        if caption:
            self.shapes.append(label(self.left, 7, caption, size=7.5))

    def x_axis(self, ticks: Sequence[tuple[float, str]], caption: str = "") -> None:
        for value, words in ticks:
            self.shapes.append(label(self.x(value), self.base + 11, words, size=7.5, anchor="middle"))
        if caption:
            self.shapes.append(label(self.line_end + 8, self.base + 11, caption, size=7.5))

    def band(self, x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
        upper = [(self.x(a), self.y(b)) for a, b in zip(x, high, strict=True)]
        lower = [(self.x(a), self.y(b)) for a, b in zip(x, low, strict=True)]
        self.shapes.append(path(line_data([*upper, *reversed(lower)]) + "Z", fill="c-band"))

    def objective(self, value: float, words: str) -> None:
        at = self.y(value)
        self.shapes.append(path("M", self.left, at, "H", self.line_end, stroke="c-objective", stroke_width=1.3))
        self._line_ends.append((at, words, "c-objective"))

    def curve(self, curve: Curve) -> None:
        points = [(self.x(a), self.y(b)) for a, b in zip(curve.x, curve.y, strict=True)]
        if len(points) > 1:
            stroke: dict[str, Any] = {
                "stroke": curve.role,
                "stroke_width": 1.5,
                "stroke_dasharray": DASHES.get(curve.role),
            }
            self.shapes.append(path(line_data(points), fill="none", stroke_linejoin="round", **stroke))
        if curve.markers:
            self.shapes += [marker(curve.role, x, y) for x, y in points]
        if curve.name and points:
            self._line_ends.append((points[-1][1], curve.name, curve.role))

    def mark_x(self, value: float, words: str, *, wide: float = 0.0) -> None:
        """A vertical that says something about one place; `wide` (in data) makes it a soft column."""
        if wide:
            left, right = self.x(value - wide / 2), self.x(value + wide / 2)
            self.shapes.insert(0, rect(left, self.top, right - left, self.base - self.top, fill="sunken"))
        else:
            line: dict[str, Any] = {"stroke": "ink-3", "stroke_width": 0.8, "stroke_dasharray": "2 2"}
            self.shapes.append(path("M", self.x(value), self.base, "V", self.top, **line))
        if words:
            at = self.x(value)
            self.shapes.append(label(at, self.top - 3, words, size=7.5, colour="ink", bold=True, anchor="middle"))

    def drawing(self) -> Drawing:
        """The chart, with the names at the ends of its lines moved up where they would lie on each other."""
        above = float("inf")
        for at, words, colour in sorted(self._line_ends, key=lambda end: -end[0]):
            y = min(at + 2.6, above - _LABEL_GAP)
            self.shapes.append(label(self.line_end + 6, y, words, size=8, colour=colour, bold=True))
            above = y
        return Drawing(self.width, self.height, self.shapes)


def headroom_bars(rows: Sequence[dict[str, Any]], width: float) -> Drawing:
    """Estimate, interval and objective of each query on one scale: shares of its objective."""
    rows = [row for row in rows if row["bound_s"]]
    names = max((text_width(row["query"], 8.5) for row in rows), default=0)
    left = min(names + 18, 0.3 * width)
    bar = width - left - 118.0
    height = _ROW * len(rows) + 12
    x = left + _OBJECTIVE_AT * bar
    shapes: list[Shape] = []
    for place, row in enumerate(rows):
        shapes += _headroom_row(row, left, bar, 12 + _ROW * (place + 1) - 3.5, width)
    shapes.append(path("M", x, height, "V", 11, stroke="c-objective", stroke_width=1.3))
    shapes.append(label(x, 8, "Objective", size=7.5, colour="c-objective", bold=True, anchor="middle"))
    return Drawing(width, height, shapes)


def _headroom_row(row: dict[str, Any], left: float, bar: float, base: float, width: float) -> list[Shape]:
    def x(value_s: float) -> float:
        return left + min(max(value_s / row["bound_s"] * _OBJECTIVE_AT, 0.0), 1.0) * bar

    end, limit = x(row["estimate_s"]), left + _OBJECTIVE_AT * bar
    shapes = [
        state_shape(row["state"], 0, base - 8, 8.5),
        label(12, base - 1, _fitted(row["query"], left - 16), size=8.5, colour="ink"),
        rect(left, base - 7, bar, 7, fill="sunken"),
    ]
    if row["low_s"] is not None and row["high_s"] is not None:
        low, high = x(row["low_s"]), x(row["high_s"])
        shapes.append(rect(low, base - 8.5, max(high - low, 0.8), 10, fill="c-band"))
    shapes.append(rect(left, base - 6, min(end, limit) - left, 5, fill="c-fill"))
    if end > limit:
        shapes.append(rect(limit, base - 6, end - limit, 5, fill="bad"))
    shapes.append(path("M", end, base + 1.5, "V", base - 8.5, stroke="c-estimate", stroke_width=1.6))
    words = f"{seconds(row['estimate_s'], apart_from=row['bound_s'])} of {seconds(row['bound_s'])}"
    shapes.append(label(left + bar + 8, base - 1, words, size=8, colour="ink-2"))
    is_over = row["headroom_s"] is None or row["headroom_s"] < 0
    colour = "bad" if is_over else "ink-3"
    return [
        *shapes,
        label(width, base - 1, _headroom_words(row["headroom_s"]), size=8, colour=colour, bold=is_over, anchor="end"),
    ]


def _headroom_words(gap_s: float | None) -> str:
    """Words for what is left of an objective; there is no such number where a latency is unknown, or only grows."""
    if gap_s is None:
        return "no headroom"
    return f"{seconds(-gap_s)} over" if gap_s < 0 else f"{seconds(gap_s)} left"


def excess_strips(rows: Sequence[dict[str, Any]], width: float) -> Drawing:
    """Excess of each node over the horizon, in six steps of lightness; a cap marks four seconds and more."""
    left = min(max((text_width(row["name"], 8.5) for row in rows), default=0) + 8, 0.24 * width)
    bar = width - left - 112.0
    shapes = [
        label(left + bar + 8, 8, "highest excess", size=7),
        label(width, 8, "mean load", size=7, anchor="end"),
    ]
    for place, row in enumerate(rows):
        base = 14 + _STRIP_ROW * (place + 1) - 3
        shapes.append(label(0, base - 1, _fitted(row["name"], left - 4), size=8.5, colour="ink"))
        shapes += _strip(row["excess"], left, bar, base)
        shapes.append(label(left + bar + 8, base - 1, str(seconds(row["excess_s"])), size=8, colour="ink-2"))
        shapes.append(label(width, base - 1, str(ratio(row["mean_load"])), size=8, colour="ink-2", anchor="end"))
    return Drawing(width, _STRIP_ROW * len(rows) + 14, shapes)


def _strip(values: Sequence[float], left: float, bar: float, base: float) -> list[Shape]:
    """Neighbours of the same step are one rectangle: fewer lines in the file, and no hair between them."""
    shapes = [rect(left, base - 8, bar, 8, fill="h0")]
    count = len(values)
    begin = 0
    for index in range(1, count + 1):
        step = _step(values[begin])
        if index < count and _step(values[index]) == step:
            continue
        if step:
            x, width = left + begin / count * bar, (index - begin) / count * bar
            shapes.append(rect(x, base - 8, width, 8, fill=f"h{step}"))
            if step >= _CAP_STEP:
                shapes.append(rect(x, base - 9.6, width, 1.6, fill="bad"))
        begin = index
    return shapes


def _step(value_s: float) -> int:
    """h0 is nothing that would be noticed; each further step begins at its lower edge."""
    return max(0, bisect_right(EXCESS_STEPS_S[1:], value_s))


def _fitted(words: str, width: float, size: float = 8.5) -> str:
    """Words, shortened with an ellipsis to so many points."""
    if text_width(words, size) <= width:
        return words
    while words and text_width(f"{words}…", size) > width:
        words = words[:-1]
    return f"{words}…"
