"""SVG text of pictures drawn on the server: frame, labels, step lines and time axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.html import escape

__all__ = ["PictureFrame", "clock_axis", "shorten", "steps_path", "text_at"]

_LETTER = 6.6  # width of one, nearly
_TICKS_WANTED = 6  # in a picture 700 wide
_TICK_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)


@dataclass(frozen=True)
class PictureFrame:
    """A picture's width and margins: a wide one for desks, a narrow one for phones."""

    css: str
    width: int
    left: int
    right: int

    @property
    def span(self) -> int:
        return self.width - self.left - self.right


def text_at(x: float, y: float, text: object, css: str = "", anchor: str = "") -> str:
    """A `<text>`; what it says is escaped."""
    end = f' text-anchor="{anchor}"' if anchor else ""
    name = f' class="{css}"' if css else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}"{end}>{escape(str(text))}</text>'


def shorten(name: str, width: float) -> str:
    """A name that fits into so much room."""
    letters = max(int(width / _LETTER), 2)
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def steps_path(xs: Sequence[float], values: Sequence[float], at: Callable[[float], float]) -> str:
    """A value holds for its epoch, then jumps."""
    path = f"M{xs[0]:.1f} {at(values[0]):.1f}"
    return path + "".join(f"H{x:.1f}V{at(value):.1f}" for x, value in zip(xs[1:], values[1:], strict=True))


def clock_axis(room: PictureFrame, base: float, first_us: float, last_us: float, x: Callable[[float], float]) -> str:
    """Times in the active zone below a picture; `x` gives the place of a moment in microseconds since 1970."""
    seconds = (last_us - first_us) / 1e6
    step = next((one for one in _TICK_STEPS_S if seconds / one <= _TICKS_WANTED * room.span / 700), 600)
    first = datetime.fromtimestamp(first_us / 1e6, UTC)
    at = first.replace(microsecond=0) + timedelta(seconds=step - first.timestamp() // 1 % step)
    parts = [f'<path class="axis" d="M{room.left} {base:g}h{room.span}"/>']
    while at.timestamp() <= last_us / 1e6:
        parts.append(text_at(x(at.timestamp() * 1e6), base + 15, f"{timezone.localtime(at):%H:%M:%S}", "", "middle"))
        at += timedelta(seconds=step)
    return "".join(parts)
