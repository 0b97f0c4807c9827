"""Pictures of a decision: latencies before and after on one time axis, and beneath them the loads of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from zoneinfo import ZoneInfo

from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.ui.numbers import ratio, seconds, significant
from apps.ui.svg.axes import PictureFrame, grid_line, line_data, shorten
from apps.ui.svg.scales import Scale, nice_step, round_up
from apps.ui.svg.shapes import Shape, path, path_data, picture, rect, text
from engine.admission.answer import DecisionCurves, QueryEffect
from engine.words import duration_words, listed, server_words

__all__ = ["LoadStrip", "OutcomePicture", "QueryPanel", "time_at"]

_WIDE = PictureFrame("fig wide", 760, 46, 30)
_NARROW = PictureFrame("fig narrow", 366, 46, 20)
_MAX_PANELS = 6
_UNIT_S = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_PANEL, _PLOT, _STRIP, _STRIP_PLOT, _HEAD = 112.0, 66.0, 54.0, 24.0, 24.0
_TICK_STEPS_S = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_TICKS = 6  # in a picture of 760


@dataclass(frozen=True)
class QueryPanel:
    """A query before and after: curves of its mean path, and what the decision says of it."""

    name: str
    before: Sequence[float] | None
    after: Sequence[float] | None
    effect: QueryEffect

    @property
    def bound_s(self) -> float | None:
        return self.effect.bound_s

    @property
    def breaks_s(self) -> float | None:
        """Moment at which most of its work is late; None where it keeps its objective, or has none."""
        return self.effect.when_s if self.effect.after_state == "breached" else None

    @property
    def top(self) -> float:
        values = [*(self.before or ()), *(self.after or ())]
        values += [value for value in (self.bound_s, self.effect.high_s, self.effect.after_s) if value]
        return max(values, default=0.0) or 1.0

    @property
    def words(self) -> str:
        """7.4 s → 15.6 s, objective 10 s."""
        was = self.effect.before_s
        change = now = str(seconds(self.effect.after_s, apart_from=self.bound_s))
        if self.effect.after_state == "unknown":
            change = "latency unknown"
        elif self.effect.standing and self.effect.standing.is_endless:
            change = "never catches up"
        elif was is not None:
            old = str(seconds(was, apart_from=self.bound_s))
            change = f"{now} as before" if old == now else f"{old} → {now}"
        return f"{change}, objective {seconds(self.bound_s)}" if self.bound_s else change


@dataclass(frozen=True)
class LoadStrip:
    """A node before and after: the load of its busiest core."""

    name: str
    before: Sequence[float] | None
    after: Sequence[float]

    @property
    def words(self) -> str:
        """1.08 → 1.23."""
        old, now = "new" if self.before is None else ratio(max(self.before)), ratio(max(self.after))
        return f"{now} as before" if old == now else f"{old} → {now}"


class OutcomePicture:
    """The picture of one outcome: what was asked, or an alternative.

    `curves`: as the request keeps them. `outcome`: id of an alternative; empty for what was asked. `effects`: those of
    that outcome, in the order in which queries are shown. `starts_at`: beginning of the horizon. `zone`: of the time
    axis.
    """

    def __init__(
        self,
        curves: DecisionCurves,
        outcome: str,
        effects: Sequence[QueryEffect],
        starts_at: datetime,
        zone: ZoneInfo,
    ) -> None:
        self.step_s = curves.step_s
        self.start = starts_at.astimezone(zone)
        self._before, self._asked = curves.before, curves.after
        self._after = curves.alternatives.get(outcome, {}) if outcome else self._asked
        self._effects = effects

    @cached_property
    def panels(self) -> list[QueryPanel]:
        """Queries that change by this outcome, or would by what was asked."""
        was, now = self._before["queries"], self._after.get("queries", {})
        shown = {*now, *self._asked.get("queries", {})}
        return [
            QueryPanel(name, was.get(name), now.get(name, was.get(name)), effect)
            for effect in self._effects
            if (name := effect.query) in shown and (name in now or name in was)
        ]

    @cached_property
    def strips(self) -> list[LoadStrip]:
        """The same of nodes, the busiest first."""
        was, now = self._before["nodes"], self._after.get("nodes", {})
        names = [*now, *(name for name in self._asked.get("nodes", {}) if name not in now and name in was)]
        strips = [LoadStrip(name, was.get(name), now.get(name, was.get(name))) for name in names]
        return sorted(strips, key=lambda strip: -max(strip.after))

    @property
    def has_marks(self) -> bool:
        """Whether a moment is marked at which most of a query's work is late."""
        return any(panel.breaks_s is not None for panel in self.panels[:_MAX_PANELS])

    @property
    def more(self) -> str:
        """Queries and nodes for which there is no room; empty where there is for all."""
        names = [row.name for row in (*self.panels[_MAX_PANELS:], *self.strips[_MAX_PANELS:])]
        return listed(names, len(names))

    @cached_property
    def span_s(self) -> float:
        curves = [*self._before["queries"].values(), *self._after.get("queries", {}).values()]
        curves += [*self._before["nodes"].values(), *self._after.get("nodes", {}).values()]
        return self.step_s * max((len(curve) for curve in curves), default=1)

    @property
    def finding(self) -> str:
        """The picture in words."""
        sentences = [f"Latency and load over {duration_words(self.span_s)} from {self.start:%H:%M %Z}."]
        sentences += [f"{panel.name}: {panel.words}." for panel in self.panels[:_MAX_PANELS]]
        sentences += [f"{strip.name}: load {strip.words} at peak." for strip in self.strips[:_MAX_PANELS]]
        return " ".join(sentences)

    @property
    def svg(self) -> SafeString:
        """Empty where nothing changes."""
        if not self.panels and not self.strips:
            return SafeString("")
        return self._drawn(_WIDE) + self._drawn(_NARROW)

    def _drawn(self, frame: PictureFrame) -> SafeString:
        x = Scale(0.0, self.span_s, begin=frame.left, end=frame.left + frame.span)
        panels, strips = self.panels[:_MAX_PANELS], self.strips[:_MAX_PANELS]
        shapes: list[Shape] = []
        y = 0.0
        for panel in panels:
            shapes += self._panel(panel, frame, x, y)
            y += _PANEL
        for strip in strips:
            shapes += self._strip(strip, frame, x, y)
            y += _STRIP
        shapes += self._axis(frame, x, y)
        return picture(frame.width, y + 38, self.finding, shapes, css=frame.css)

    # -- latencies

    def _panel(self, panel: QueryPanel, frame: PictureFrame, x: Scale, top: float) -> list[Shape]:
        begin, base = top + _HEAD + 4, top + _HEAD + 4 + _PLOT
        unit = seconds(panel.top).unit  # all of an axis in one unit
        step = nice_step(panel.top / _UNIT_S[unit] / 3) * _UNIT_S[unit]
        highest = round_up(panel.top, step)
        y = Scale(0.0, highest, begin=base, end=begin)
        shapes = [*_title(panel.name, panel.words, frame, top + 15)]
        for tick in range(round(highest / step) + 1):
            value = step * tick
            figure = significant(value / _UNIT_S[unit])
            words = f"{figure}\u00a0{unit}" if value == highest else figure
            shapes.append(grid_line(frame.left, y(value), frame.left + frame.span, css="grid" if tick else "axis"))
            shapes.append(text(frame.left - 6, y(value) + 4, words, anchor="end"))
        if panel.before is not None:
            line = self._line(panel.before, x, y)
            shapes.append(path(line, css="before", fill="none", stroke="c-fill", stroke_width=2.5))
        if panel.after is not None:
            shapes.append(path(self._line(panel.after, x, y), css="est"))
            shapes += self._over(panel, x, y)
        if panel.bound_s:
            shapes.append(grid_line(frame.left, y(panel.bound_s), frame.left + frame.span, css="obj"))
        return [*shapes, *self._interval(panel, frame, y), *self._marker(panel, frame, x, begin, base)]

    def _line(self, values: Sequence[float], x: Scale, y: Scale) -> str:
        """A line through the middles of the steps."""
        return line_data([(x((i + 0.5) * self.step_s), y(value)) for i, value in enumerate(values)])

    def _over(self, panel: QueryPanel, x: Scale, y: Scale) -> list[Shape]:
        """The parts of the curve after that lie over the objective, drawn once more."""
        after, bound = panel.after, panel.bound_s
        if after is None or not bound or max(after, default=0.0) <= bound:
            return []
        points = [((i + 0.5) * self.step_s, value) for i, value in enumerate(after)]
        pieces = [
            path_data("M", x(a[0]), y(a[1]), "L", x(b[0]), y(b[1]))
            for pair in pairwise(points)
            if (cut := _cut_below(*pair, bound)) is not None
            for a, b in (cut,)
        ]
        return [path("".join(pieces), css="over", fill="none", stroke="bad", stroke_width=3)]

    def _interval(self, panel: QueryPanel, frame: PictureFrame, y: Scale) -> list[Shape]:
        """Interval of the realised statistic, right of the curves: it belongs to no moment."""
        low, high, after = panel.effect.low_s, panel.effect.high_s, panel.effect.after_s
        if after is None:
            return []
        left = frame.left + frame.span + 6
        shapes = []
        if low is not None and high is not None:
            shapes.append(rect(left, y(high), 10, max(y(low) - y(high), 2.0), css="band"))
        return [*shapes, path("M", left, y(after), "h", 10, stroke="c-estimate", stroke_width=2)]

    def _marker(self, panel: QueryPanel, frame: PictureFrame, x: Scale, begin: float, base: float) -> list[Shape]:
        """The moment at which most of the work is late."""
        if panel.breaks_s is None:
            return []
        at = x(panel.breaks_s)
        right = at > frame.left + frame.span * 0.6
        where = server_words(panel.effect.bottleneck or "")
        words = f"{_clock(self.start, panel.breaks_s)} {where}".strip()
        return [
            path("M", at, begin - 4, "V", base, css="breaks", stroke="bad", stroke_width=1.5, stroke_dasharray="2 3"),
            text(at + (-5 if right else 5), begin + 7, words, "tbad halo", "end" if right else "start"),
        ]

    # -- loads

    def _strip(self, strip: LoadStrip, frame: PictureFrame, x: Scale, top: float) -> list[Shape]:
        begin, base = top + 22, top + 22 + _STRIP_PLOT
        highest = max(1.0, *strip.after, *(strip.before or (0.0,))) * 1.04
        y = Scale(0.0, highest, begin=base, end=begin)
        shapes = [*_title(strip.name, f"peak load {strip.words}", frame, top + 15)]
        shapes.append(text(frame.left - 6, y(1.0) + 4, "1", anchor="end"))
        shapes.append(grid_line(frame.left, base, frame.left + frame.span, css="axis"))
        shapes.append(path(self._area(strip.after, x, y), fill="c-band", css="load"))
        if strip.before is not None:
            shapes.append(path(self._line(strip.before, x, y), fill="none", stroke="c-fill", stroke_width=1.75))
        shapes.append(path(self._line(strip.after, x, y), fill="none", stroke="c-estimate", stroke_width=1.5))
        shapes.append(grid_line(frame.left, y(1.0), frame.left + frame.span, css="obj"))
        return shapes

    def _area(self, values: Sequence[float], x: Scale, y: Scale) -> str:
        first, last = x(0.5 * self.step_s), x((len(values) - 0.5) * self.step_s)
        return self._line(values, x, y) + path_data("L", last, y(0.0), "L", first, y(0.0), "Z")

    # -- time

    def _axis(self, frame: PictureFrame, x: Scale, base: float) -> list[Shape]:
        """Clock times in the cluster's zone, and below them the time into the horizon."""
        wanted = _TICKS * frame.span / 684
        step = next((size for size in _TICK_STEPS_S if self.span_s / size <= wanted + 0.5), _TICK_STEPS_S[-1])
        begin = -self._past(step) % step
        written = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%-d %b"
        shapes = [grid_line(frame.left, base + 4, frame.left + frame.span, css="axis")]
        at_s = float(begin)
        while at_s <= self.span_s:
            moment = self.start + timedelta(seconds=at_s)
            anchor = "start" if x(at_s) < frame.left + 14 else "end" if x(at_s) > frame.width - 20 else "middle"
            shapes.append(path("M", x(at_s), base + 4, "v", 4, css="axis"))
            shapes.append(text(x(at_s), base + 19, f"{moment:{written}}", anchor=anchor))
            shapes.append(text(x(at_s), base + 33, f"+{duration_words(round(at_s))}", "tdim", anchor))
            at_s += step
        shapes.append(text(2, base + 19, f"{self.start:%Z}"))
        return shapes

    def _past(self, step_s: int) -> float:
        """Seconds that the beginning of the horizon lies after a round time of day."""
        midnight = self.start.replace(hour=0, minute=0, second=0, microsecond=0)
        return (self.start - midnight).total_seconds() % step_s


def time_at(start: datetime, at_s: float, cluster: Cluster) -> str:
    """10:46 CET for seconds after `start`, in the cluster's zone."""
    local = start.astimezone(ZoneInfo(cluster.time_zone))
    return f"{_clock(local, at_s)} {local + timedelta(seconds=at_s):%Z}"


def _clock(start: datetime, at_s: float) -> str:
    return f"{start + timedelta(seconds=at_s):%H:%M}"


def _title(name: str, words: str, frame: PictureFrame, y: float) -> list[Shape]:
    end = frame.left + frame.span
    room = frame.span - 6.2 * len(words)
    return [text(frame.left, y, shorten(name, max(room, 60.0)), "tb"), text(end, y, words, "t2", "end")]


def _cut_below(
    a: tuple[float, float], b: tuple[float, float], bound: float
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The part of a line that lies above a bound."""
    if a[1] <= bound and b[1] <= bound:
        return None
    if a[1] > bound and b[1] > bound:
        return a, b
    share = (bound - a[1]) / (b[1] - a[1])
    at = a[0] + (b[0] - a[0]) * share, bound
    return (at, b) if b[1] > bound else (a, at)
