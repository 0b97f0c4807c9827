"""Sweeping watermarks of one query: when each came after its window's end, beside the interval it was expected in."""

from __future__ import annotations

import math
from functools import cached_property

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.pages.drawing import Room, text_at
from apps.pages.provisioning_scale import nice_step
from apps.pages.schedule_words import clock_of
from apps.scheduling.lines import QueryLine
from apps.telemetry.epochs import Sweep
from apps.ui.numbers import MISSING, counted, percent, seconds, seconds_range

__all__ = ["SweepPicture"]

_WIDE, _NARROW = Room("fig wide", 1040, 64, 12), Room("fig narrow", 366, 48, 8)
_HEAD, _TALL = 14, 150
_LINES = 4  # of the grid, or so
_MOST = {"fig wide": 60, "fig narrow": 30}  # windows


class SweepPicture:
    """The newest windows of a query, oldest first."""

    def __init__(self, line: QueryLine) -> None:
        self.line = line

    def __bool__(self) -> bool:
        return len(self.line.sweeps) > 1

    @property
    def sentence(self) -> str:
        """`46 of 48 came within their interval (96%, 95% wanted).`"""
        judged, wanted = self.line.judged, percent(self.line.settings.confidence)
        if not judged:
            return "No interval yet: three windows have to be known before there is one."
        hits = sum(bool(one.is_hit) for one in judged)
        what = counted(len(judged), "watermark")
        return f"{hits} of {what} came within the interval: {percent(self.line.hit_rate)}, {wanted} wanted."

    @property
    def finding(self) -> str:
        return f"Delay of the sweeping watermarks of {self.line.name}. {self.sentence}"

    @cached_property
    def step_s(self) -> float:
        """Between two lines of the grid."""
        return nice_step(self._highest_s / _LINES) if self._highest_s > 0 else 1.0 / _LINES

    @property
    def top_s(self) -> float:
        """A line of the grid above what is drawn."""
        return max(math.ceil(self._highest_s / self.step_s - 1e-9), 1) * self.step_s

    @cached_property
    def _highest_s(self) -> float:
        shown = self._shown(_WIDE)
        return max([max(one.delay_s, one.interval_s[1] if one.interval_s else 0.0) for one in shown], default=0.0)

    @property
    def svg(self) -> SafeString:
        return mark_safe(self._drawn(_WIDE) + self._drawn(_NARROW))

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """(window's end, expected, arrived, result) of the windows drawn, newest first; delays after the end."""
        return [
            (
                clock_of(one.deadline_us),
                str(seconds_range(max(one.interval_s[0], 0.0), one.interval_s[1])) if one.interval_s else MISSING,
                str(seconds(one.delay_s)),
                str(seconds(one.latency_s)),
            )
            for one in reversed(self._shown(_WIDE))
        ]

    def _shown(self, room: Room) -> list[Sweep]:
        return self.line.sweeps[-_MOST[room.css] :]

    def _drawn(self, room: Room) -> str:
        shown = self._shown(room)
        step = room.span / len(shown)
        parts = [self._grid(room)]
        parts += [self._window(room.left + step * (place + 0.5), step, one) for place, one in enumerate(shown)]
        parts += self._times(room, step, shown)
        return format_html(
            '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
            room.css, room.width, _HEAD + _TALL + 22, self.finding, mark_safe("".join(parts)),
        )  # fmt: skip

    def _y(self, delay_s: float) -> float:
        return _HEAD + _TALL * (1 - min(max(delay_s, 0.0), self.top_s) / self.top_s)

    def _grid(self, room: Room) -> str:
        parts = []
        for line in range(round(self.top_s / self.step_s) + 1):
            y = self._y(line * self.step_s)
            parts.append(f'<path class="{"grid" if line else "axis"}" d="M{room.left} {y:.1f}h{room.span}"/>')
            parts.append(text_at(room.left - 8, y + 4, seconds(line * self.step_s) if line else "0", "", "end"))
        return "".join(parts)

    def _window(self, x: float, step: float, one: Sweep) -> str:
        """The interval as a bar; a ring where the watermark came within it or had none, a cross where it did not."""
        band, half = "", min(step * 0.32, 7)
        if one.interval_s is not None:
            upper, lower = self._y(one.interval_s[1]), self._y(one.interval_s[0])
            size = f'width="{2 * half:.1f}" height="{max(lower - upper, 1.5):.1f}"'
            band = f'<rect class="band" x="{x - half:.1f}" y="{upper:.1f}" {size}/>'
        y = self._y(one.delay_s)
        if one.is_hit is False:
            mark = f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" stroke="var(--bad)" stroke-width="1.75"/>'
        else:
            mark = f'<circle class="mea" cx="{x:.1f}" cy="{y:.1f}" r="{min(3, max(half, 1.5)):.1f}"/>'
        return f"<g><title>{escape(self._said(one))}</title>{band}{mark}</g>"

    def _said(self, one: Sweep) -> str:
        text = f"Window until {clock_of(one.deadline_us)}: watermark {seconds(one.delay_s)} after its end"
        if one.interval_s is None:
            return f"{text}; nothing was expected yet"
        least, most = one.interval_s
        return f"{text}; expected {seconds(max(least, 0.0))} to {seconds(most)} after it"

    def _times(self, room: Room, step: float, shown: list[Sweep]) -> list[str]:
        every = max(1, math.ceil(len(shown) / max(2, room.span // 110)))
        places = range(0, len(shown), every)
        base = _HEAD + _TALL + 16
        ends = [(room.left + step * (place + 0.5), clock_of(shown[place].deadline_us)) for place in places]
        fits = [(x, text) for x, text in ends if x + 26 <= room.width]
        return [text_at(max(x, 26), base, text, "", "middle") for x, text in fits]
