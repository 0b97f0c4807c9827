"""Frames and axes of pictures: widths for desks and phones, names that fit, steps, and round local times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.ui.svg.shapes import Shape, path, path_data, text
from engine.words import duration_words

__all__ = [
    "PictureFrame",
    "clock_axis",
    "grid_line",
    "line_data",
    "shorten",
    "span_words",
    "step_data",
    "strip_axis",
    "time_ticks",
]

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


_DAY_S = 86_400
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY_S, 7 * _DAY_S)
_TICKS_WANTED = 6  # in a picture 700 wide
_STRIP_TICKS = 5
_ENDS_SHARE = 0.14  # of a strip's width that the words at its ends take


def time_ticks(first: datetime, span_s: float, wanted: float) -> list[tuple[float, str]]:
    """Round times in the active zone, about `wanted` of them: (seconds after `first`, words)."""
    step_s = next((size for size in _STEPS_S if span_s / size <= wanted), _STEPS_S[-1])
    local = timezone.localtime(first)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    since_s = (local - midnight).total_seconds()
    at_s = math.ceil(since_s / step_s - 1e-9) * step_s - since_s
    ticks = []
    while at_s <= span_s:
        ticks.append((at_s, _words(first + timedelta(seconds=at_s), step_s)))
        at_s += step_s
    return ticks


def _words(moment: datetime, step_s: float) -> str:
    local = timezone.localtime(moment)
    if step_s >= _DAY_S:
        return f"{local.day} {local:%b}"
    return f"{local:%H:%M}" if step_s >= 60 else f"{local:%H:%M:%S}"


def clock_axis(
    frame: PictureFrame, base: float, first_us: float, last_us: float, x: Callable[[float], float]
) -> list[Shape]:
    """Times below a picture; `x` gives the place of a moment in microseconds since 1970."""
    first = datetime.fromtimestamp(first_us / 1e6, UTC)
    ticks = time_ticks(first, (last_us - first_us) / 1e6, _TICKS_WANTED * frame.span / 700)
    line = grid_line(frame.left, base, frame.left + frame.span, css="axis")
    return [line, *(text(x(first_us + at_s * 1e6), base + 15, words, anchor="middle") for at_s, words in ticks)]


def span_words(first: datetime, span_s: float) -> str:
    """A stretch of time: 10:36 to 11:06 CET, 30 min."""
    last = first + timedelta(seconds=span_s)
    step_s = 1.0 if span_s < 600 else _DAY_S if span_s > 4 * _DAY_S else 60.0
    zone = timezone.localtime(last).tzname()
    return f"{_words(first, step_s)} to {_words(last, step_s)} {zone}, {duration_words(span_s)}"


def strip_axis(first: datetime | None, span_s: float | None) -> SafeString:
    """Axis of strips that are stretched and hold no text: both ends, round times between, zone and duration."""
    if first is None or not span_s:
        return SafeString("")
    begin, _, end = span_words(first, span_s).partition(" to ")
    ticks = [
        (f"{100 * at_s / span_s:.2f}", words)
        for at_s, words in time_ticks(first, span_s, _STRIP_TICKS)
        if _ENDS_SHARE <= at_s / span_s <= 1 - 2 * _ENDS_SHARE
    ]
    between = format_html_join("", '<span class="mid" style="left:{}%">{}</span>', ticks)
    return format_html(
        '<div class="taxis" role="img" aria-label="Time, {}"><span>{}</span>{}<span class="end">{}</span></div>',
        span_words(first, span_s),
        begin,
        between,
        end,
    )
