"""Frames and axes of pictures: widths for desks and phones, names that fit, steps over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apps.ui.svg.shapes import Shape, path, path_data

__all__ = ["PictureFrame", "grid_line", "line_data", "shorten", "step_data"]

_LETTER_WIDTH = 6.6  # nearly


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
