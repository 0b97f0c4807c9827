"""Drawings of reports: ink, shapes of states and keys, told apart without colour, and the charts made of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import font_source_sans_pro as source_sans
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from apps.ui.numbers import ratio, seconds
from apps.ui.pictures import EXCESS_STEPS_S
from apps.ui.svg.axes import line_data
from apps.ui.svg.scales import nice_ticks
from apps.ui.svg.shapes import Shape, circle, path, place, rect, text

__all__ = [
    "BOLD",
    "PALETTE",
    "REGULAR",
    "Curve",
    "Drawing",
    "Plot",
    "excess_strips",
    "headroom_bars",
    "key_drawing",
    "label",
    "load_fonts",
    "state_drawing",
]

REGULAR, BOLD, ITALIC = "SourceSans", "SourceSans-Semibold", "SourceSans-It"
_SHAPE_SIZE = 9.0
_KEY_TEXT_SIZE = 8.0
_LABEL_GAP = 9.5
_ROW = 15.0
_STRIP_ROW = 13.5
_CAP_STEP = EXCESS_STEPS_S.index(4.0)
#: The objective always stands at three quarters of a bar's width, so that rows compare by eye.
_OBJECTIVE_AT = 0.75

#: The light values of static/css/tokens.css, by their names there.
PALETTE: dict[str, str] = {
    "ink": "#14201e",
    "ink-2": "#43504d",
    "ink-3": "#5a6764",
    "surface": "#ffffff",
    "sunken": "#eaedec",
    "line": "#dfe3e2",
    "line-strong": "#bcc4c2",
    "ok": "#1c6b3c",
    "watch": "#855000",
    "bad": "#ae241c",
    "c-estimate": "#0a6274",
    "c-band": "#b9dde3",
    "c-objective": "#9c1420",
    "c-alt": "#aa5f00",
    "c-third": "#683c9c",
    "c-grid": "#e6eae9",
    "c-fill": "#7fb3bd",
    "h0": "#e8eceb",
    "h1": "#f3e0bd",
    "h2": "#e9b973",
    "h3": "#d08433",
    "h4": "#a14c13",
    "h5": "#66230b",
}


@dataclass(frozen=True)
class Drawing:
    """Shapes on a sheet, in points; the PDF and the page draw the same ones."""

    width: float
    height: float
    shapes: Sequence[Shape]


@cache
def load_fonts() -> None:
    """Register the fonts with reportlab, once per process."""
    for name, file in ((REGULAR, source_sans.SourceSansPro), (BOLD, source_sans.SourceSansProSemibold)):
        pdfmetrics.registerFont(TTFont(name, file.replace(".otf", ".ttf")))
    pdfmetrics.registerFont(TTFont(ITALIC, source_sans.SourceSansProIt.replace(".otf", ".ttf")))
    pdfmetrics.registerFontFamily(REGULAR, normal=REGULAR, bold=BOLD, italic=ITALIC, boldItalic=BOLD)


def text_width(words: str, size: float, font: str = REGULAR) -> float:
    load_fonts()
    return float(pdfmetrics.stringWidth(words, font, size))


def label(
    x: float, y: float, words: str, *, size: float = 8, colour: str = "ink-3", bold: bool = False, anchor: str = ""
) -> Shape:
    """A line of text; `anchor` is start, middle or end."""
    weight = 600 if bold else None
    return text(x, y, words, anchor=anchor, font_size=size, font_weight=weight, fill=colour)


def state_shape(state: str, x: float, y: float, size: float = _SHAPE_SIZE) -> Shape:
    """The state's shape in the square whose upper left corner is (x, y)."""
    shapes = {"holds": _holds, "at_risk": _at_risk, "breached": _breached}.get(state, _unknown)()
    return place(x, y, shapes, scale=size / _SHAPE_SIZE)


def state_drawing(state: str, size: float = 7.5) -> Drawing:
    """The same as a drawing of its own."""
    return Drawing(size, size, [state_shape(state, 0, 0, size)])


def _ring(colour: str, dashes: str = "") -> Shape:
    return circle(4.5, 4.5, 3.9, fill="none", stroke=colour, stroke_width=1, stroke_dasharray=dashes)


def _holds() -> list[Shape]:
    tick = path("M", 2.7, 4.5, "L", 4, 5.9, "L", 6.4, 3.1, fill="none", stroke="ok", stroke_width=1.1)
    return [_ring("ok"), tick]


def _at_risk() -> list[Shape]:
    outline = line_data([(4.5, 0.4), (0.3, 8.2), (8.7, 8.2)]) + "Z"
    return [
        path(outline, fill="none", stroke="watch", stroke_width=1, stroke_linejoin="round"),
        path("M", 4.5, 3.1, "V", 5.4, stroke="watch", stroke_width=1.1),
        circle(4.5, 6.7, 0.65, fill="watch"),
    ]


def _breached() -> list[Shape]:
    angles = [math.pi / 8 + k * math.pi / 4 for k in range(8)]
    octagon = line_data([(4.5 + 4.4 * math.cos(angle), 4.5 - 4.4 * math.sin(angle)) for angle in angles]) + "Z"
    cross = path("M", 2.9, 2.9, "L", 6.1, 6.1, "M", 6.1, 2.9, "L", 2.9, 6.1, stroke="surface", stroke_width=1.2)
    return [path(octagon, fill="bad"), cross]


def _unknown() -> list[Shape]:
    return [_ring("ink-3", "1.6 1.4")]


def key_drawing(entries: Sequence[tuple[str, str]]) -> Drawing:
    """One line of samples with their names."""
    x, shapes = 0.0, []
    for kind, words in entries:
        width = 12.0 if kind.startswith("h") else 20.0
        sample = _SAMPLES[kind]() if kind in _SAMPLES else [_swatch(kind, width)]
        shapes += [place(x, 2, sample), label(x + width + 4, 8.8, words, size=_KEY_TEXT_SIZE)]
        x += width + 4 + text_width(words, _KEY_TEXT_SIZE) + 14
    return Drawing(max(x, 1), 11, shapes)


def _swatch(kind: str, width: float) -> Shape:
    return rect(0, 1, width, 7, fill=kind, stroke="line-strong", stroke_width=0.4)


def _line(colour: str, dashes: str = "") -> Shape:
    return path("M", 0, 4.5, "H", 20, stroke=colour, stroke_width=1.5, stroke_dasharray=dashes)


def _bar() -> list[Shape]:
    return [rect(0, 2, 17, 5, fill="c-fill"), path("M", 17, 0, "V", 9, stroke="c-estimate", stroke_width=1.6)]


def marker(role: str, x: float, y: float) -> Shape:
    """The mark of a curve's points: circle, square or triangle."""
    if role == "c-alt":
        return rect(x - 2, y - 2, 4, 4, fill=role)
    if role == "c-third":
        return path(line_data([(x, y - 2.6), (x - 2.4, y + 1.7), (x + 2.4, y + 1.7)]) + "Z", fill=role)
    return circle(x, y, 2.1, fill=role)


#: Dashes of a curve by its role.
DASHES = {"c-alt": "5 2.5", "c-third": "1.5 2"}


def _curve_sample(role: str) -> list[Shape]:
    return [_line(role, DASHES.get(role, "")), marker(role, 10, 4.5)]


_SAMPLES: dict[str, Callable[[], list[Shape]]] = {
    "bar": _bar,
    "band": lambda: [rect(0, 0.5, 20, 8, fill="c-band")],
    "estimate": lambda: [_line("c-estimate")],
    "points": lambda: _curve_sample("c-estimate"),
    "alt": lambda: _curve_sample("c-alt"),
    "third": lambda: _curve_sample("c-third"),
    "objective-line": lambda: [_line("c-objective")],
}


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
    for i, row in enumerate(rows):
        shapes += _headroom_row(row, left, bar, 12 + _ROW * (i + 1) - 3.5, width)
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
    for i, row in enumerate(rows):
        base = 14 + _STRIP_ROW * (i + 1) - 3
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
