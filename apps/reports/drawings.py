"""Drawings of reports: shapes of states and keys, told apart without colour, and the charts made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from apps.ui.pictures import KEYS
from apps.ui.svg.axes import line_data
from apps.ui.svg.pdf import text_width
from apps.ui.svg.scales import Scale, nice_ticks
from apps.ui.svg.shapes import Drawing, Shape, circle, path, path_data, place, rect, text

__all__ = ["Curve", "Plot", "fitted", "key_drawing", "label", "state_drawing", "state_shape"]

_SHAPE_SIZE = 9.0
_KEY_TEXT_SIZE = 8.0
_LABEL_GAP = 9.5
_ABOVE = 1.02


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
        sample = place(x, 2, KEYS[kind], scale=0.9) if kind in KEYS else place(x, 2, [_swatch(kind, width)])
        shapes += [sample, label(x + width + 4, 8.8, words, size=_KEY_TEXT_SIZE)]
        x += width + 4 + text_width(words, _KEY_TEXT_SIZE) + 14
    return Drawing(max(x, 1), 11, shapes)


def _swatch(kind: str, width: float) -> Shape:
    return rect(0, 1, width, 7, fill=kind, stroke="line-strong", stroke_width=0.4)


def marker(role: str, x: float, y: float) -> Shape:
    """The mark of a curve's points: circle or square."""
    if role == "c-alt":
        return rect(x - 2, y - 2, 4, 4, fill=role)
    return circle(x, y, 2.1, fill=role)


#: Dashes of a curve by its role, as in the keys.
DASHES = {"c-alt": "7 4"}


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

    @cached_property
    def x(self) -> Scale:
        return Scale(*self.x_range, begin=self.left, end=self.line_end)

    @cached_property
    def y(self) -> Scale:
        """A little more than `y_max` is still drawn where it is."""
        top = self.base - _ABOVE * (self.base - self.top)
        return Scale(0, _ABOVE * (self.y_max or 1.0), begin=self.base, end=top)

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
            line = path(
                line_data(points),
                fill="none",
                stroke_linejoin="round",
                stroke=curve.role,
                stroke_width=1.5,
                stroke_dasharray=DASHES.get(curve.role),
            )
            self.shapes.append(line)
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
            data = path_data("M", self.x(value), self.base, "V", self.top)
            self.shapes.append(path(data, stroke="ink-3", stroke_width=0.8, stroke_dasharray="2 2"))
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


def fitted(words: str, width: float, size: float = 8.5) -> str:
    """Words, shortened with an ellipsis to so many points."""
    if text_width(words, size) <= width:
        return words
    while words and text_width(f"{words}…", size) > width:
        words = words[:-1]
    return f"{words}…"
