"""Charts of a schedule: the timeline of a core, and sweeping watermarks against their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

from django.utils import timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.pages.provisioning.charts import nice_step
from apps.rollouts.schedule.queries import ScheduledQuery, memory_of
from apps.ui.marks import Mark
from apps.ui.numbers import MISSING, bytes_size, counted, percent, seconds, seconds_range
from apps.ui.svg import PictureFrame, clock_axis, shorten, steps_path, text_at
from engine.rollouts.epochs import Sweep

__all__ = ["SweepPicture", "Timeline", "clock_of", "line_mark"]


def clock_of(moment_us: float) -> str:
    """14:32:08, in the active zone, of microseconds since 1970."""
    return f"{timezone.localtime(datetime.fromtimestamp(moment_us / 1e6, UTC)):%H:%M:%S}"


def line_mark(line: ScheduledQuery) -> Mark:
    """Shape, tone and words of how a query is."""
    if line.last is None:
        return Mark("unknown", "", "Not heard of yet")
    if line.late:
        return Mark("watch", "watch", line.late[:1].upper() + line.late[1:])
    if line.last.overflow:
        return Mark("watch", "watch", "Overflows")
    if line.slack_s is not None and line.slack_s < 0:
        return Mark("watch", "watch", "Behind its window")
    if line.period_s is None:
        return Mark("ok", "ok", "No windows")
    return Mark("ok", "ok", "In time") if line.sweeps else Mark("queue", "", "No window swept yet")


_SWEEPS_WIDE, _SWEEPS_NARROW = PictureFrame("fig wide", 1040, 64, 12), PictureFrame("fig narrow", 366, 48, 8)
_SWEEPS_HEAD, _TALL = 14, 150
_LINES = 4  # of the grid, or so
_MAX_SWEEPS = {"fig wide": 60, "fig narrow": 30}  # windows


class SweepPicture:
    """The newest windows of a query, oldest first."""

    def __init__(self, line: ScheduledQuery) -> None:
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
        shown = self._shown(_SWEEPS_WIDE)
        return max([max(one.delay_s, one.interval_s[1] if one.interval_s else 0.0) for one in shown], default=0.0)

    @property
    def svg(self) -> SafeString:
        return mark_safe(self._drawn(_SWEEPS_WIDE) + self._drawn(_SWEEPS_NARROW))

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
            for one in reversed(self._shown(_SWEEPS_WIDE))
        ]

    def _shown(self, room: PictureFrame) -> list[Sweep]:
        return self.line.sweeps[-_MAX_SWEEPS[room.css] :]

    def _drawn(self, room: PictureFrame) -> str:
        shown = self._shown(room)
        step = room.span / len(shown)
        parts = [self._grid(room)]
        parts += [self._window(room.left + step * (place + 0.5), step, one) for place, one in enumerate(shown)]
        parts += self._times(room, step, shown)
        return format_html(
            '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
            room.css, room.width, _SWEEPS_HEAD + _TALL + 22, self.finding, mark_safe("".join(parts)),
        )  # fmt: skip

    def _y(self, delay_s: float) -> float:
        return _SWEEPS_HEAD + _TALL * (1 - min(max(delay_s, 0.0), self.top_s) / self.top_s)

    def _grid(self, room: PictureFrame) -> str:
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

    def _times(self, room: PictureFrame, step: float, shown: list[Sweep]) -> list[str]:
        every = max(1, math.ceil(len(shown) / max(2, room.span // 110)))
        places = range(0, len(shown), every)
        base = _SWEEPS_HEAD + _TALL + 16
        ends = [(room.left + step * (place + 0.5), clock_of(shown[place].deadline_us)) for place in places]
        fits = [(x, text) for x, text in ends if x + 26 <= room.width]
        return [text_at(max(x, 26), base, text, "", "middle") for x, text in fits]


_WIDE, _NARROW = PictureFrame("fig wide", 1040, 132, 104), PictureFrame("fig narrow", 366, 8, 8)
_EPOCH_US = 1_000_000
_HEAD, _PANEL, _GAP = 18, 54, 34
_AHEAD = 0.18  # of the span is room for what is expected
_MIN_AHEAD_S = 5.0
_MAX_SPANS = 8  # lanes from which on they are lower


class Timeline:
    """The picture.

    Parameters
    ----------
    agent : str
        Its name, for who hears the picture.
    lines : sequence of QueryLine
        In the order of the lanes.
    span_s : float
        How much of the past is shown.
    bound_bytes : int
        Of waiting records, from which on they are what counts (b).
    """

    def __init__(self, agent: str, lines: Sequence[ScheduledQuery], span_s: float, bound_bytes: int) -> None:
        self.agent, self.lines, self.span_s, self.bound_bytes = agent, lines, span_s, bound_bytes

    def __bool__(self) -> bool:
        return any(line.rows for line in self.lines)

    @cached_property
    def end_us(self) -> int:
        """The end of the newest epoch of any query: what is known ends there."""
        return max(line.rows[-1].epoch_us for line in self.lines if line.rows) + _EPOCH_US

    @property
    def begin_us(self) -> float:
        return self.end_us - self.span_s * 1e6

    @property
    def last_us(self) -> float:
        return self.end_us + max(_AHEAD * self.span_s, _MIN_AHEAD_S) * 1e6

    @property
    def end(self) -> datetime:
        return datetime.fromtimestamp(self.end_us / 1e6, UTC)

    # -- in words
    @cached_property
    def shares(self) -> list[float]:
        """Of the span, that each query had the core."""
        return [line.ran_s(self.begin_us) / self.span_s for line in self.lines]

    @property
    def finding(self) -> str:
        """What a reader of the picture would take away."""
        busy = sum(self.shares)
        text = f"{self.agent} over the last {seconds(self.span_s)}: queries had its core {percent(busy)} of the time"
        most = max(range(len(self.lines)), key=lambda place: self.shares[place])
        text += f", {self.lines[most].name} most with {percent(self.shares[most])}" if busy else ""
        swept = sum(len(self._swept(line)) for line in self.lines)
        return f"{text}. {counted(swept, 'window')} swept."

    def _said(self, place: int) -> str:
        """A lane in words."""
        line, swept = self.lines[place], self._swept(self.lines[place])
        parts = [f"{line.name}: had the core {percent(self.shares[place])} of the time"]
        if swept:
            parts.append(f"{counted(len(swept), 'window')} swept, the last {_after(swept[-1].latency_s)}")
        if line.slack_s is not None:
            parts.append(f"slack {seconds(line.slack_s)}")
        if line.queued is not None:
            parts.append(f"{counted(line.queued, 'record')} waiting")
        return "; ".join(parts)

    def _swept(self, line: ScheduledQuery) -> list[Sweep]:
        return [one for one in line.sweeps if one.emitted_us >= self.begin_us]

    @cached_property
    def told(self) -> dict[str, Any]:
        """What the page says of the epoch that is pointed at: by lane, [begin in s, records, slack in s, ran in ms]."""
        local = timezone.localtime(self.end)
        offset = local.utcoffset()
        lanes = [{"name": line.name, "rows": self._told(line)} for line in self.lines]
        return {"begin": self.begin_us / 1e6, "offset": offset.total_seconds() if offset else 0, "lanes": lanes}

    def _told(self, line: ScheduledQuery) -> list[list[float | None]]:
        begin_s = self.begin_us / 1e6
        return [
            [round(row.epoch_us / 1e6 - begin_s, 3), row.queued, row.slack_s, round(sum(ms for _, ms in row.spans))]
            for row in line.rows
            if row.epoch_us >= self.begin_us
        ]

    # -- drawing
    @property
    def svg(self) -> SafeString:
        return mark_safe(self._drawn(_WIDE) + self._drawn(_NARROW))

    def _drawn(self, room: PictureFrame) -> str:
        is_wide = room is _WIDE
        step = (24 if len(self.lines) > _MAX_SPANS else 32) if is_wide else 36
        height = step - 8 if is_wide else 16
        top = [_HEAD + step * place + (0 if is_wide else 16) for place in range(len(self.lines))]
        memory = _HEAD + step * len(self.lines) + (_GAP - 8)
        base = memory + _PANEL
        x = partial(self._x, room)
        lanes = "".join(self._lane(room, place, y, height) for place, y in enumerate(top))
        at = x(self.end_us)
        now = f'<path d="M{at:.1f} {_HEAD - 4}V{base:g}" stroke="var(--ink)"/>' + text_at(at, 10, "now", "tx", "middle")
        parts = lanes + self._memory(room, memory) + now
        parts += clock_axis(room, base, self.begin_us, self.last_us, x)
        places = (
            f'data-left="{room.left}" data-span="{room.span}" data-seconds="{(self.last_us - self.begin_us) / 1e6:g}"'
        )
        return format_html(
            '<svg class="{}" viewBox="0 0 {} {}" role="group" aria-label="{}" {}>{}</svg>',
            room.css, room.width, round(base + 20), self.finding, mark_safe(places), mark_safe(parts),
        )  # fmt: skip

    def _x(self, room: PictureFrame, moment_us: float) -> float:
        return room.left + room.span * (moment_us - self.begin_us) / (self.last_us - self.begin_us)

    def _lane(self, room: PictureFrame, place: int, y: float, height: float) -> str:
        line, is_wide = self.lines[place], room is _WIDE
        track = self._x(room, self.end_us) - room.left
        ground = f'<rect x="{room.left}" y="{y:g}" width="{track:.1f}" height="{height:g}" fill="var(--sunken)"/>'
        drawn = ground + self._next(room, line, y, height) + self._spans(room, line, y, height)
        drawn += self._deadlines(room, line, y, height) + self._windows(room, line, y, height)
        middle = y + height / 2 + 4
        if is_wide:
            words = text_at(room.left - 8, middle, shorten(line.name, room.left - 8), "tx", "end")
            words += self._slack(room.width - room.right + 8, middle, line)
        else:
            words = text_at(room.left, y - 4, shorten(line.name, 220), "tx")
            words += self._slack(room.width - room.right, y - 4, line, "end")
        lane = f"{'w' if is_wide else 'n'}{place}"
        focus = f'id="lane-{lane}" tabindex="0" role="img" aria-label="{escape(self._said(place))}" data-lane="{place}"'
        return f'<g class="sch-lane" {focus}><title>{escape(self._said(place))}</title>{drawn}{words}</g>'

    def _slack(self, x: float, y: float, line: ScheduledQuery, anchor: str = "") -> str:
        if line.slack_s is None:
            return ""
        return text_at(x, y, seconds(line.slack_s), "tbad" if line.slack_s < 0 else "t2", anchor)

    def _spans(self, room: PictureFrame, line: ScheduledQuery, y: float, height: float) -> str:
        """One path for all spans: a picture of twenty queries has thousands."""
        path = []
        for row in line.rows:
            if row.epoch_us < self.begin_us:
                continue
            for start_ms, ms in row.spans:
                x = self._x(room, row.epoch_us + 1e3 * start_ms)
                width = max(self._x(room, row.epoch_us + 1e3 * (start_ms + ms)) - x, 0.3)
                path.append(f"M{x:.1f} {y + 3:g}h{width:.1f}v{height - 6:g}h-{width:.1f}z")
        return f'<path d="{"".join(path)}" fill="var(--c-estimate)"/>' if path else ""

    def _deadlines(self, room: PictureFrame, line: ScheduledQuery, y: float, height: float) -> str:
        ends = {one.deadline_us for one in line.sweeps}
        if line.deadline_us is not None:
            ends.add(line.deadline_us)
        path = "".join(
            f"M{self._x(room, one):.1f} {y - 2:g}v{height + 4:g}"
            for one in sorted(ends)
            if self.begin_us <= one <= self.last_us
        )
        return f'<path d="{path}" stroke="var(--ink-2)"/>' if path else ""

    def _windows(self, room: PictureFrame, line: ScheduledQuery, y: float, height: float) -> str:
        """From a window's end to its result: a line and a ring."""
        path, rings, at = "", "", y + height
        for one in self._swept(line):
            begin, end = max(self._x(room, one.deadline_us), room.left), self._x(room, one.emitted_us)
            path += f"M{begin:.1f} {at:g}H{end:.1f}"
            said = f"<title>{self._window(line, one)}</title>"
            rings += f'<circle class="mea" cx="{end:.1f}" cy="{at:g}" r="3">{said}</circle>'
        return f'<path d="{path}" stroke="var(--c-measured)" stroke-width="1.25"/>{rings}' if path else ""

    def _window(self, line: ScheduledQuery, one: Sweep) -> str:
        """A swept window in words."""
        hit = {True: ", as expected", False: ", not within what was expected", None: ""}[one.is_hit]
        text = f"{line.name}, window until {clock_of(one.deadline_us)}: result {_after(one.latency_s)}; "
        return escape(f"{text}watermark {_after(one.delay_s)}{hit}")

    def _next(self, room: PictureFrame, line: ScheduledQuery, y: float, height: float) -> str:
        """The interval in which the next sweeping watermark is expected, as a whisker with its mean."""
        if line.expected is None:
            return ""
        mean, least, most = (self._x(room, min(one, self.last_us)) for one in line.expected)
        start = self._x(room, self.end_us)
        least, most, mean = max(least, start), max(most, start), max(mean, start)
        middle = y + height / 2
        size = f'width="{max(most - least, 1):.1f}" height="{height - 4:g}"'
        band = f'<rect class="band" x="{least:.1f}" y="{y + 2:g}" {size}/>'
        caps = f"M{least:.1f} {middle - 4:g}v8M{least:.1f} {middle:g}H{most:.1f}M{most:.1f} {middle - 4:g}v8"
        lines = f'<path d="{caps}" fill="none" stroke="var(--c-estimate)"/>'
        dot = f'<circle cx="{mean:.1f}" cy="{middle:g}" r="2.5" fill="var(--c-estimate)"/>'
        _, first, last = line.expected
        title = f"{line.name}: next watermark expected {clock_of(first)} to {clock_of(last)}"
        return f"<g><title>{escape(title)}</title>{band}{lines}{dot}</g>"

    # -- memory
    @cached_property
    def memory(self) -> list[tuple[int, int]]:
        """(epoch, bytes waiting at its end) over all queries, oldest first."""
        return [one for one in memory_of(self.lines) if one[0] >= self.begin_us]

    def _memory(self, room: PictureFrame, y: float) -> str:
        held = [size for _, size in self.memory]
        top = 1.15 * max([self.bound_bytes, *held])
        scale = lambda size: y + _PANEL * (1 - size / top)  # noqa: E731
        xs = [self._x(room, epoch_us + _EPOCH_US) for epoch_us, _ in self.memory]
        grid = f'<path class="grid" d="M{room.left} {y + _PANEL:g}h{room.span}"/>'
        bound = scale(self.bound_bytes)
        limit = f'<path class="obj" d="M{room.left} {bound:.1f}h{room.span}"/>'
        words = text_at(room.left, y - 6, "Memory of waiting records", "t2 halo")
        if room is _WIDE:
            words += text_at(room.width - room.right + 8, bound + 4, f"at most {bytes_size(self.bound_bytes)}", "to")
            words += text_at(room.left - 8, y + _PANEL, "0", "", "end")
        if not held:
            return grid + limit + words
        line = steps_path(xs, held, scale)
        area = f'<path d="{line}V{y + _PANEL:g}H{xs[0]:.1f}z" fill="var(--c-fill)" opacity=".55"/>'
        return grid + area + f'<path class="est" d="{line}"/>' + limit + words


def _after(duration_s: float) -> str:
    """`0.42 s after its end`."""
    return f"{seconds(duration_s)} after its end" if duration_s > 0 else "at its end"
