"""A plain line chart: one quantity, axes from zero, lines told apart by dash and marker, limits labelled directly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reportlab.graphics.shapes import Circle, Drawing, Line, Polygon, PolyLine, Rect, String

from apps.reports.drawings.ink import ink, label, load_fonts

__all__ = ["Curve", "Plot", "nice_ticks"]

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
