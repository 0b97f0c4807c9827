"""Charts of a schedule: the timeline of a core, and sweeping watermarks against their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property, partial

from django.utils import timezone
from django.utils.safestring import SafeString

from apps.rollouts.scheduled_queries import ScheduledQuery, memory_of
from apps.ui.marks import Mark
from apps.ui.numbers import MISSING, bytes_size, percent, seconds, seconds_range
from apps.ui.svg.axes import PictureFrame, clock_axis, grid_line, shorten, step_data
from apps.ui.svg.scales import Scale, nice_step, round_up
from apps.ui.svg.shapes import Shape, circle, group, path, path_data, picture, rect, text, title
from engine.rollouts.measures import Sweep
from engine.words import counted

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
        judged, confidence = self.line.judged, percent(self.line.settings.confidence)
        if not judged:
            return "No interval yet: three windows have to be known before there is one."
        hits = sum(bool(sweep.is_hit) for sweep in judged)
        what = counted(len(judged), "watermark")
        return f"{hits} of {what} came within the interval: {percent(self.line.hit_rate)}, {confidence} wanted."

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
        return round_up(self._highest_s, self.step_s)

    @cached_property
    def _highest_s(self) -> float:
        shown = self._shown(_SWEEPS_WIDE)
        return max(
            [max(sweep.delay_s, sweep.interval_s[1] if sweep.interval_s else 0.0) for sweep in shown], default=0.0
        )

    @property
    def svg(self) -> SafeString:
        return self._drawn(_SWEEPS_WIDE) + self._drawn(_SWEEPS_NARROW)

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """(window's end, expected, arrived, result) of the windows drawn, newest first; delays after the end."""
        return [
            (
                clock_of(sweep.deadline_us),
                str(seconds_range(max(sweep.interval_s[0], 0.0), sweep.interval_s[1])) if sweep.interval_s else MISSING,
                str(seconds(sweep.delay_s)),
                str(seconds(sweep.latency_s)),
            )
            for sweep in reversed(self._shown(_SWEEPS_WIDE))
        ]

    def _shown(self, frame: PictureFrame) -> list[Sweep]:
        return self.line.sweeps[-_MAX_SWEEPS[frame.css] :]

    def _drawn(self, frame: PictureFrame) -> SafeString:
        shown = self._shown(frame)
        step = frame.span / len(shown)
        shapes = [
            *self._grid(frame),
            *(self._window(frame.left + step * (place + 0.5), step, sweep) for place, sweep in enumerate(shown)),
            *self._times(frame, step, shown),
        ]
        return picture(frame.width, _SWEEPS_HEAD + _TALL + 22, self.finding, shapes, css=frame.css)

    @property
    def _y(self) -> Scale:
        return Scale(0, self.top_s, begin=_SWEEPS_HEAD + _TALL, end=_SWEEPS_HEAD)

    def _grid(self, frame: PictureFrame) -> list[Shape]:
        shapes = []
        for line in range(round(self.top_s / self.step_s) + 1):
            y = self._y(line * self.step_s)
            words = seconds(line * self.step_s) if line else "0"
            shapes.append(grid_line(frame.left, y, frame.left + frame.span, "grid" if line else "axis"))
            shapes.append(text(frame.left - 8, y + 4, words, anchor="end"))
        return shapes

    def _window(self, x: float, step: float, sweep: Sweep) -> Shape:
        """The interval as a bar; a ring where the watermark came within it or had none, a cross where it did not."""
        band, half = None, min(step * 0.32, 7)
        if sweep.interval_s is not None:
            upper, lower = self._y(sweep.interval_s[1]), self._y(sweep.interval_s[0])
            band = rect(x - half, upper, 2 * half, max(lower - upper, 1.5), css="band")
        y = self._y(sweep.delay_s)
        if sweep.is_hit is False:
            cross = path("M", x - 3, y - 3, "l", 6, 6, "m", 0, -6, "l", -6, 6, stroke="bad", stroke_width=1.75)
            return group(title(self._said(sweep)), band, cross)
        return group(title(self._said(sweep)), band, circle(x, y, min(3, max(half, 1.5)), css="mea"))

    def _said(self, sweep: Sweep) -> str:
        words = f"Window until {clock_of(sweep.deadline_us)}: watermark {seconds(sweep.delay_s)} after its end"
        if sweep.interval_s is None:
            return f"{words}; nothing was expected yet"
        low, high = sweep.interval_s
        return f"{words}; expected {seconds(max(low, 0.0))} to {seconds(high)} after it"

    def _times(self, frame: PictureFrame, step: float, shown: list[Sweep]) -> list[Shape]:
        every = max(1, math.ceil(len(shown) / max(2, frame.span // 110)))
        places = range(0, len(shown), every)
        base = _SWEEPS_HEAD + _TALL + 16
        ends = [(frame.left + step * (place + 0.5), clock_of(shown[place].deadline_us)) for place in places]
        return [text(max(x, 26), base, words, anchor="middle") for x, words in ends if x + 26 <= frame.width]


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
        """The picture in words."""
        busy = sum(self.shares)
        span, swept = seconds(self.span_s), sum(len(self._swept(line)) for line in self.lines)
        if not busy:
            return f"{self.agent} over the last {span}: no query had its core. {counted(swept, 'window')} swept."
        busiest = max(range(len(self.lines)), key=lambda place: self.shares[place])
        return (
            f"{self.agent} over the last {span}: queries had its core {percent(busy)} of the time, "
            f"{self.lines[busiest].name} most with {percent(self.shares[busiest])}. {counted(swept, 'window')} swept."
        )

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
        return [sweep for sweep in line.sweeps if sweep.emitted_us >= self.begin_us]

    @cached_property
    def told(self) -> dict[str, object]:
        """Epochs for the page's pointer, by lane: [begin in s, records, slack in s, ran in ms]."""
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
        return self._drawn(_WIDE) + self._drawn(_NARROW)

    def _drawn(self, frame: PictureFrame) -> SafeString:
        is_wide = frame is _WIDE
        step = (24 if len(self.lines) > _MAX_SPANS else 32) if is_wide else 36
        height = step - 8 if is_wide else 16
        top = [_HEAD + step * place + (0 if is_wide else 16) for place in range(len(self.lines))]
        memory = _HEAD + step * len(self.lines) + (_GAP - 8)
        base = memory + _PANEL
        now = self._x(frame, self.end_us)
        return picture(
            frame.width,
            round(base + 20),
            self.finding,
            [self._lane(frame, place, y, height) for place, y in enumerate(top)],
            self._memory(frame, memory),
            path("M", now, _HEAD - 4, "V", base, stroke="ink"),
            text(now, 10, "now", "tx", "middle"),
            clock_axis(frame, base, self.begin_us, self.last_us, partial(self._x, frame)),
            css=frame.css,
            role="group",
            data_left=frame.left,
            data_span=frame.span,
            data_seconds=(self.last_us - self.begin_us) / 1e6,
        )

    def _x(self, frame: PictureFrame, moment_us: float) -> float:
        return frame.left + frame.span * (moment_us - self.begin_us) / (self.last_us - self.begin_us)

    def _lane(self, frame: PictureFrame, place: int, y: float, height: float) -> Shape:
        line, is_wide = self.lines[place], frame is _WIDE
        middle = y + height / 2 + 4
        if is_wide:
            name = text(frame.left - 8, middle, shorten(line.name, frame.left - 8), "tx", "end")
            slack = self._slack(frame.width - frame.right + 8, middle, line)
        else:
            name = text(frame.left, y - 4, shorten(line.name, 220), "tx")
            slack = self._slack(frame.width - frame.right, y - 4, line, "end")
        return group(
            title(self._said(place)),
            rect(frame.left, y, self._x(frame, self.end_us) - frame.left, height, fill="sunken"),
            self._next(frame, line, y, height),
            self._spans(frame, line, y, height),
            self._deadlines(frame, line, y, height),
            self._windows(frame, line, y, height),
            name,
            slack,
            css="sch-lane",
            id=f"lane-{'w' if is_wide else 'n'}{place}",
            tabindex=0,
            role="img",
            aria_label=self._said(place),
            data_lane=place,
        )

    def _slack(self, x: float, y: float, line: ScheduledQuery, anchor: str = "") -> Shape | None:
        if line.slack_s is None:
            return None
        return text(x, y, seconds(line.slack_s), "tbad" if line.slack_s < 0 else "t2", anchor)

    def _spans(self, frame: PictureFrame, line: ScheduledQuery, y: float, height: float) -> Shape | None:
        """One path for all spans: a picture of twenty queries has thousands."""
        data = []
        for row in line.rows:
            if row.epoch_us < self.begin_us:
                continue
            for start_ms, ms in row.spans:
                x = self._x(frame, row.epoch_us + 1e3 * start_ms)
                width = max(self._x(frame, row.epoch_us + 1e3 * (start_ms + ms)) - x, 0.3)
                data.append(path_data("M", x, y + 3, "h", width, "v", height - 6, "h", -width, "z"))
        return path(*data, fill="c-estimate") if data else None

    def _deadlines(self, frame: PictureFrame, line: ScheduledQuery, y: float, height: float) -> Shape | None:
        ends = {sweep.deadline_us for sweep in line.sweeps}
        if line.deadline_us is not None:
            ends.add(line.deadline_us)
        data = [
            path_data("M", self._x(frame, end_us), y - 2, "v", height + 4)
            for end_us in sorted(ends)
            if self.begin_us <= end_us <= self.last_us
        ]
        return path(*data, stroke="ink-2") if data else None

    def _windows(self, frame: PictureFrame, line: ScheduledQuery, y: float, height: float) -> list[Shape]:
        """From a window's end to its result: a line and a ring."""
        data, rings, at = [], [], y + height
        for sweep in self._swept(line):
            begin, end = max(self._x(frame, sweep.deadline_us), frame.left), self._x(frame, sweep.emitted_us)
            data.append(path_data("M", begin, at, "H", end))
            rings.append(circle(end, at, 3, title(self._window(line, sweep)), css="mea"))
        return [path(*data, stroke="c-measured", stroke_width=1.25), *rings] if data else []

    def _window(self, line: ScheduledQuery, sweep: Sweep) -> str:
        """A swept window in words."""
        hit = {True: ", as expected", False: ", not within what was expected", None: ""}[sweep.is_hit]
        words = f"{line.name}, window until {clock_of(sweep.deadline_us)}: result {_after(sweep.latency_s)}; "
        return f"{words}watermark {_after(sweep.delay_s)}{hit}"

    def _next(self, frame: PictureFrame, line: ScheduledQuery, y: float, height: float) -> Shape | None:
        """The interval in which the next sweeping watermark is expected, as a whisker with its mean."""
        if line.expected is None:
            return None
        start, middle = self._x(frame, self.end_us), y + height / 2
        mean, low, high = (max(self._x(frame, min(moment, self.last_us)), start) for moment in line.expected)
        caps = ("M", low, middle - 4, "v", 8, "M", low, middle, "H", high, "M", high, middle - 4, "v", 8)
        _, first, last = line.expected
        return group(
            title(f"{line.name}: next watermark expected {clock_of(first)} to {clock_of(last)}"),
            rect(low, y + 2, max(high - low, 1), height - 4, css="band"),
            path(*caps, fill="none", stroke="c-estimate"),
            circle(mean, middle, 2.5, fill="c-estimate"),
        )

    # -- memory
    @cached_property
    def memory(self) -> list[tuple[int, int]]:
        """(epoch, bytes waiting at its end) over all queries, oldest first."""
        return [sample for sample in memory_of(self.lines) if sample[0] >= self.begin_us]

    def _memory(self, frame: PictureFrame, y: float) -> list[Shape]:
        held = [size for _, size in self.memory]
        base = y + _PANEL
        scale = Scale(0, 1.15 * max([self.bound_bytes, *held]), begin=base, end=y)
        bound = scale(self.bound_bytes)
        grid = grid_line(frame.left, base, frame.left + frame.span)
        limit = path("M", frame.left, bound, "h", frame.span, css="obj")
        words = [text(frame.left, y - 6, "Memory limit", "t2 halo")]
        if frame is _WIDE:
            at = frame.width - frame.right + 8
            words.append(text(at, bound + 4, f"limit {bytes_size(self.bound_bytes)}", "to"))
            words.append(text(frame.left - 8, base, "0", anchor="end"))
        if not held:
            return [grid, limit, *words]
        points = [(self._x(frame, epoch_us + _EPOCH_US), scale(size)) for epoch_us, size in self.memory]
        line = step_data(points)
        area = path(line, path_data("V", base, "H", points[0][0], "z"), fill="c-fill", opacity=0.55)
        return [grid, area, path(line, css="est"), limit, *words]


def _after(duration_s: float) -> str:
    """`0.42 s after its end`."""
    return f"{seconds(duration_s)} after its end" if duration_s > 0 else "at its end"
