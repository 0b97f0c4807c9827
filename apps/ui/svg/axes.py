"""Frames and axes of pictures: widths for desks and phones, names that fit, steps over time, clock times below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from apps.ui.svg.shapes import Shape, path, path_data, text

__all__ = ["PictureFrame", "clock_axis", "grid_line", "line_data", "shorten", "step_data"]

_LETTER_WIDTH = 6.6  # nearly
_TICKS_WANTED = 6  # in a picture 700 wide
_TICK_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)


@dataclass(frozen=True)
class PictureFrame:
    """Width and margins of a picture: a wide one for desks, a narrow one for phones."""

    css: str
    width: int
    left: int
    right: int

    @property
    def span(self) -> int:
        return self.width - self.left - self.right


def shorten(name: str, width: float, letter_width: float = _LETTER_WIDTH) -> str:
    """A name, cut with an ellipsis where it is wider than `width`."""
    letters = max(int(width / letter_width), 2)
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def line_data(points: Sequence[tuple[float, float]]) -> str:
    """Points joined by straight lines, as data of a path."""
    return "".join(path_data("L" if place else "M", x, y) for place, (x, y) in enumerate(points))


def step_data(points: Sequence[tuple[float, float]]) -> str:
    """Steps, as data of a path: a value holds until the next point, then jumps."""
    return "".join(path_data("H", x, "V", y) if place else path_data("M", x, y) for place, (x, y) in enumerate(points))


def grid_line(left: float, y: float, right: float, css: str = "grid") -> Shape:
    """A line from left to right: of the grid, or an axis."""
    return path("M", left, y, "H", right, css=css)


def clock_axis(
    frame: PictureFrame, base: float, first_us: float, last_us: float, x: Callable[[float], float]
) -> list[Shape]:
    """Times in the active zone below a picture; `x` gives the place of a moment in microseconds since 1970."""
    span_s = (last_us - first_us) / 1e6
    step = next((size for size in _TICK_STEPS_S if span_s / size <= _TICKS_WANTED * frame.span / 700), 600)
    first = datetime.fromtimestamp(first_us / 1e6, UTC)
    at = first.replace(microsecond=0) + timedelta(seconds=step - first.timestamp() // 1 % step)
    shapes = [grid_line(frame.left, base, frame.left + frame.span, css="axis")]
    while at.timestamp() <= last_us / 1e6:
        words = f"{timezone.localtime(at):%H:%M:%S}"
        shapes.append(text(x(at.timestamp() * 1e6), base + 15, words, anchor="middle"))
        at += timedelta(seconds=step)
    return shapes
