"""Rate-latency curves of a resource plan: least latency by rate, with one size less and one more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.utils.safestring import SafeString

from apps.planning.resource_plans import PlanAnswer
from apps.ui.numbers import rate, scaled, seconds, significant
from apps.ui.svg.axes import grid_line
from apps.ui.svg.scales import Scale, nice_ticks, spread
from apps.ui.svg.shapes import Shape, circle, path, path_data, picture, text
from engine.words import counted, statistic_words

__all__ = ["CurveChart", "CurveLine", "OperatingPoint"]

_FLAT = 0.5  # of the constraint: a line that ends below it ends because a resource is full
_TOP_S = 1.6  # times the constraint: latency beyond is cut off
_STYLES: dict[str, dict[str, Any]] = {
    "estimate": {"stroke": "c-estimate", "stroke_width": 2},
    "alt": {"stroke": "c-alt", "stroke_width": 2, "stroke_dasharray": "7 4"},
    "third": {"stroke": "c-third", "stroke_width": 2, "stroke_dasharray": "2 4", "stroke_linecap": "round"},
}
_INKS = {"estimate": "ta", "alt": "talt", "third": "t2"}


@dataclass(frozen=True)
class _Frame:
    css: str
    width: int
    left: int
    right: int
    top: int = 24
    base: int = 250

    @property
    def height(self) -> int:
        return self.base + 38


_WIDE, _NARROW = _Frame("fig wide", 760, 52, 640), _Frame("fig narrow", 366, 44, 352)


@dataclass(frozen=True)
class CurveLine:
    """One size's curve: `points` are (events/s, s or None where nothing keeps up)."""

    size: int
    role: str
    max_rate: float
    points: Sequence[tuple[float, float | None]]

    @property
    def reached(self) -> list[tuple[float, float]]:
        """Points where something keeps up."""
        return [(at, value) for at, value in self.points if value is not None]

    @property
    def is_cut(self) -> bool:
        """Whether the line ends because nothing keeps up beyond."""
        return bool(self.reached) and self.points[-1][1] is None


@dataclass(frozen=True)
class OperatingPoint:
    """Latency of one end's settings at the asked rate."""

    latency_s: float
    is_chosen: bool


class CurveChart:
    """Picture of the curves, the constraint, and where the settings stand.

    `noun`: "node" or "executor".
    """

    def __init__(self, answer: PlanAnswer, noun: str, points: Sequence[OperatingPoint]) -> None:
        self.noun, self.points = noun, points
        self.rate, self.constraint_s = answer.rate, answer.constraint_s
        self.statistic = statistic_words(answer.statistic)
        own = answer.plan.size if answer.plan else None
        self.lines = [
            CurveLine(curve.size, self._role(curve.size, own), curve.max_rate, curve.points) for curve in answer.curve
        ]
        self.right = max([self.rate * 1.15, *(at for line in self.lines for at, _ in line.reached)])
        highest = [value for line in self.lines for _, value in line.reached if value <= _TOP_S * self.constraint_s]
        self.top = max([*highest, self.constraint_s, *(point.latency_s for point in points)]) * 1.08

    @staticmethod
    def _role(size: int, own: int | None) -> str:
        if own is None or size == own:
            return "estimate"
        return "alt" if size < own else "third"

    @property
    def finding(self) -> str:
        """The picture in words."""
        said = [f"{counted(line.size, self.noun)} up to {rate(line.max_rate)}" for line in self.lines]
        return f"Least {self.statistic} latency by rate, constraint {seconds(self.constraint_s)}: {'; '.join(said)}."

    @property
    def key(self) -> list[tuple[str, str]]:
        """Entries of the legend."""
        entries = [(line.role, counted(line.size, self.noun)) for line in self.lines]
        return [*entries, ("objective-line", "Constraint")]

    @property
    def svg(self) -> SafeString:
        return self._drawn(_WIDE) + self._drawn(_NARROW)

    def _drawn(self, frame: _Frame) -> SafeString:
        x = Scale(0, self.right, begin=frame.left, end=frame.right)
        y = Scale(0, self.top, begin=frame.base, end=frame.top)
        shapes = [*self._grid(frame, x, y), *self._marks(frame, x, y)]
        shapes += [path(self._data(line, x, y), css="", fill="none", **_STYLES[line.role]) for line in self.lines]
        for point in self.points:
            paint: dict[str, Any] = {"fill": "c-estimate"}
            if not point.is_chosen:
                paint = {"fill": "surface", "stroke": "c-estimate", "stroke_width": 1.5}
            shapes.append(circle(x(self.rate), y(point.latency_s), 4.5, **paint))
        return picture(frame.width, frame.height, self.finding, shapes, self._names(frame, y), css=frame.css)

    def _grid(self, frame: _Frame, x: Scale, y: Scale) -> list[Shape]:
        ticks = nice_ticks(self.top)
        shapes = [text(frame.left, frame.top - 10, f"Least {self.statistic} latency", "t2")]
        for tick in ticks:
            unit = " s" if tick == ticks[-1] else ""
            shapes.append(grid_line(frame.left, y(tick), frame.right, css="grid" if tick else "axis"))
            shapes.append(text(frame.left - 8, y(tick) + 4, f"{significant(tick)}{unit}", anchor="end"))
        across = nice_ticks(self.right, 5 if frame is _WIDE else 3)
        shapes += [text(x(tick), frame.base + 17, scaled(tick) if tick else "0", anchor="middle") for tick in across]
        shapes.append(text(frame.right, frame.base + 33, "events per second", "t2", "end"))
        return shapes

    def _marks(self, frame: _Frame, x: Scale, y: Scale) -> list[Shape]:
        """The constraint across, and the asked rate upright."""
        at = x(self.rate)
        upright = path_data("M", at, frame.top, "V", frame.base)
        shapes = [
            path(upright, stroke="ink-3", stroke_dasharray="2 3"),
            text(at + 6, frame.top + 8, "Your rate", "halo"),
        ]
        shapes.append(grid_line(frame.left, y(self.constraint_s), frame.right, css="obj"))
        return shapes

    def _data(self, line: CurveLine, x: Scale, y: Scale) -> str:
        """A line that leaves the picture at its top."""
        parts = []
        for (at, value), (then, next_value) in pairwise(line.reached):
            if value > self.top:
                break
            if next_value > self.top:
                then = at + (then - at) * (self.top - value) / (next_value - value)
            parts.append(path_data("M", x(at), y(value), "L", x(then), y(min(next_value, self.top))))
        if line.is_cut and line.reached[-1][1] < _FLAT * self.constraint_s:
            at, value = line.reached[-1]
            parts.append(path_data("M", x(at), y(value), "V", y(self.top)))  # where a resource is full
        return "".join(parts)

    def _names(self, frame: _Frame, y: Scale) -> list[Shape]:
        """Names at the right ends of the lines, apart from each other; on phones the constraint's alone."""
        words = f"Constraint {seconds(self.constraint_s)}"
        if frame is _NARROW:
            return [text(frame.left + 4, y(self.constraint_s) - 6, words, "to halo")]
        ends = [(y(min(line.reached[-1][1], self.top)) + 4, line) for line in self.lines if line.reached]
        wanted = [(at, _INKS[line.role], counted(line.size, self.noun)) for at, line in ends]
        wanted = sorted([*wanted, (y(self.constraint_s) + 4, "to", words)])
        down = spread([at for at, _, _ in wanted], 15)
        places = [-at for at in spread([-min(at, frame.base) for at in reversed(down)], 15)][::-1]
        return [text(frame.right + 10, at, name, css) for at, (_, css, name) in zip(places, wanted, strict=True)]
