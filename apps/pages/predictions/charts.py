"""Pictures of predictions: an interval on the axis of its objective, and errors over executions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from apps.pages.predictions.candidates import NARROW, WIDE, PredictionFrame
from apps.predictions.choices import TargetMetric
from apps.ui.numbers import seconds, seconds_range, significant
from apps.ui.svg.axes import grid_line, line_data
from apps.ui.svg.scales import LogScale, Scale, log_ticks, nice_ticks
from apps.ui.svg.shapes import Shape, circle, path, picture, rect, text
from engine.words import counted

__all__ = ["ErrorChart", "interval_figure"]


def interval_figure(label: str, estimate_s: float, low_s: float, high_s: float, bound_s: float | None) -> SafeString:
    """A predicted latency with its interval on the axis of its objective, for desks and for phones."""
    said = seconds(estimate_s)
    finding = f"{label} {said}, interval {seconds_range(low_s, high_s)}"
    if bound_s:
        finding += f", objective {seconds(bound_s)}"
    top = max(high_s, bound_s or 0.0) * 1.12 or 1.0
    drawn = ""
    for css, width, count in (("fig wide", 760, 6), ("fig narrow", 366, 3)):
        x = Scale(0.0, top, begin=12, end=width - 12)
        shapes = [grid_line(12, 58, width - 12, css="axis")]
        for tick in nice_ticks(top, count):
            shapes.append(path("M", x(tick), 58, "v", 4, css="axis"))
            shapes.append(text(x(tick), 75, str(seconds(tick)) if tick else "0", anchor="middle"))
        shapes.append(rect(x(low_s), 34, max(x(high_s) - x(low_s), 2), 14, rx=2, fill="c-band"))
        shapes.append(path("M", x(estimate_s), 30, "v", 22, stroke="c-estimate", stroke_width=2.5))
        shapes.append(_beside(x(estimate_s), 24, f"{label} {said}", "ta halo", width))
        if bound_s:
            shapes.append(path("M", x(bound_s), 14, "V", 58, css="obj"))
            shapes.append(_beside(x(bound_s), 11, f"Objective {seconds(bound_s)}", "to halo", width))
        drawn += picture(width, 82, f"{finding}.", shapes, css=css)
    return SafeString(drawn)


def _beside(x: float, y: float, words: str, css: str, width: float) -> Shape:
    """A label in the middle of its line, or beside it at the edges of the picture."""
    half = 3.2 * len(words)
    if x - half < 4:
        return text(4, y, words, css)
    return text(width - 4, y, words, css, "end") if x + half > width - 4 else text(x, y, words, css, "middle")


@dataclass(frozen=True)
class _ErrorLine:
    """q-errors of a metric by the number of the execution, and their running median."""

    metric: str
    role: str
    points: Sequence[tuple[int, float]]

    @property
    def median(self) -> list[tuple[int, float]]:
        values = [value for _, value in self.points]
        return [
            (at, statistics.median(values[max(0, i + 1 - _RUNNING) : i + 1]))
            for i, (at, _) in enumerate(self.points)
            if i + 1 >= _LEAST
        ]


_RUNNING, _LEAST = 20, 5  # executions of a running median, and from how many on it is drawn
_DRAWN = 240  # the newest executions
_ROLES: dict[str, tuple[str, dict[str, Any]]] = {
    "T": ("third", {"stroke": "c-third", "stroke_width": 2, "stroke_dasharray": "2 4", "stroke_linecap": "round"}),
    "Lp": ("alt", {"stroke": "c-alt", "stroke_width": 2, "stroke_dasharray": "7 4"}),
    "Le": ("estimate", {"stroke": "c-estimate", "stroke_width": 2}),
}


class ErrorChart:
    """q-errors of predictions over the executions that were observed after them, oldest first.

    Parameters
    ----------
    errors : mapping
        Per metric the q-error of each execution, None where it has none.
    models : sequence of str
        Name of the model that predicted each execution.
    """

    def __init__(self, errors: Mapping[str, Sequence[float | None]], models: Sequence[str]) -> None:
        self.first = max(0, len(models) - _DRAWN)
        self.models = models[self.first :]
        self.lines = []
        for metric, (role, _) in _ROLES.items():
            points = [(i + 1, q) for i, q in enumerate(errors[metric]) if q is not None and i >= self.first]
            if points:
                self.lines.append(_ErrorLine(metric, role, points))

    @cached_property
    def top(self) -> float:
        """Upper end of the axis: a few of the greatest errors may lie above it."""
        values = sorted(q for line in self.lines for _, q in line.points)
        return max(1.5, values[int(0.98 * (len(values) - 1))] * 1.1) if values else 1.5

    @property
    def beyond(self) -> int:
        return sum(q > self.top for line in self.lines for _, q in line.points)

    @property
    def finding(self) -> str:
        medians = [
            f"{TargetMetric(line.metric).label} {significant(line.median[-1][1])}" for line in self.lines if line.median
        ]
        return f"q-errors of {counted(len(self.models), 'execution')}; newest running medians: {', '.join(medians)}."

    @property
    def key(self) -> list[tuple[str, str]]:
        return [(line.role, TargetMetric(line.metric).label) for line in self.lines]

    @property
    def svg(self) -> SafeString:
        return self._drawn(WIDE) + self._drawn(NARROW)

    def _drawn(self, frame: PredictionFrame) -> SafeString:
        last = self.first + len(self.models)
        x = Scale(self.first + 0.5, last + 0.5, begin=frame.left, end=frame.right)
        y = LogScale(1.0, self.top, begin=frame.base, end=frame.top)
        shapes = [text(frame.left, 12, "q-error, 1 is exact", "t2")]
        for tick in log_ticks(1.0, self.top, 5):
            shapes.append(grid_line(frame.left, y(tick), frame.right, css="axis" if tick == 1 else "grid"))
            shapes.append(text(frame.left - 8, y(tick) + 4, f"{tick:g}", anchor="end"))
        numbers = [tick for tick in nice_ticks(last, 6 if frame is WIDE else 3) if tick > self.first]
        shapes += [
            text(x(tick), frame.base + 17, f"{tick:,.0f}", anchor="middle") for tick in numbers if tick == int(tick)
        ]
        shapes.append(text(frame.right, frame.base + 33, "observed executions, oldest first", "t2", "end"))
        for line in self.lines:
            paint = _ROLES[line.metric][1]
            shapes += [
                circle(x(at), y(q), 1.75, fill=paint["stroke"], opacity=0.45) for at, q in line.points if q <= self.top
            ]
        for line in self.lines:
            points = [(x(at), y(q)) for at, q in line.median]
            shapes.append(path(line_data(points), fill="none", stroke_linejoin="round", **_ROLES[line.metric][1]))
        return picture(frame.width, frame.height, self.finding, shapes, self._changes(frame, x), css=frame.css)

    def _changes(self, frame: PredictionFrame, x: Scale) -> list[Shape]:
        """A dotted line where another model began to predict."""
        shapes = []
        for i in range(1, len(self.models)):
            if self.models[i] != self.models[i - 1]:
                at = x(self.first + i + 0.5)
                shapes.append(path("M", at, frame.top, "V", frame.base, stroke="ink-3", stroke_dasharray="2 3"))
                shapes.append(_beside(at, frame.top - 4, self.models[i], "halo", frame.width))
        return shapes
