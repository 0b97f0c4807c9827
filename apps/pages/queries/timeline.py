"""A query's measured latency and its estimates on one axis of time, up to now and a little beyond."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from statistics import median

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.estimates.objectives import latency_results
from apps.estimates.selectors import HistoryPoint, query_history
from apps.queries.models import Query
from apps.ui.numbers import MISSING, Quantity, seconds, seconds_range, significant
from apps.ui.svg.axes import PictureFrame, clock_axis, grid_line, line_data, step_data
from apps.ui.svg.scales import Scale, nice_step, round_up
from apps.ui.svg.shapes import Shape, circle, path, path_data, picture, text
from engine.measurement.objectives import LatencyResult, statistic_of
from engine.words import duration_words

__all__ = ["MeasuredPoint", "QueryTimeline"]

_PAST_S = 3 * 3600.0
_MIN_PAST_S = 600.0
_AHEAD_SHARE = 0.08  # of the past that is drawn beyond now
_PARTS = 180  # of the past, each with one point
_GAP_STEPS = 3.0  # a gap is longer than so many of the usual steps between points
_HEIGHT, _TOP, _BOTTOM = 240, 26, 24
_FRAMES = (PictureFrame("wide", 960, 46, 14), PictureFrame("narrow", 340, 40, 8))
_ROWS = 24


@dataclass(frozen=True)
class MeasuredPoint:
    """The objective's statistic of the results of a short part of the past."""

    at_s: float
    value_s: float
    results: int


class QueryTimeline:
    """Built for a running query; `is_empty` where there is nothing to draw."""

    def __init__(self, query: Query, statistic: str, bound_s: float | None, now: datetime | None = None) -> None:
        self.query = query
        self.statistic = statistic
        self.bound_s = bound_s
        self.now = now or timezone.now()

    @property
    def is_empty(self) -> bool:
        return not self.estimates and not self.points

    @cached_property
    def _results(self) -> list[LatencyResult]:
        return latency_results(self.query, self.now - timedelta(seconds=_PAST_S), self.now)

    @cached_property
    def estimates(self) -> list[HistoryPoint]:
        """Estimates in force in the past that is drawn, oldest first; the first may be older."""
        since = self.now - timedelta(seconds=_PAST_S)
        history = [point for point in query_history(self.query) if point.at <= self.now]
        later = [point for point in history if point.at >= since]
        return [*history[: len(history) - len(later)][-1:], *later]

    @cached_property
    def begin_s(self) -> float:
        """When the picture begins: three hours ago, or with what there is, but ten minutes ago at least."""
        now_s = self.now.timestamp()
        known = [result.at_s for result in self._results[:1]] + [point.at.timestamp() for point in self.estimates[:1]]
        return min(now_s - _MIN_PAST_S, max(now_s - _PAST_S, min(known, default=now_s)))

    @cached_property
    def points(self) -> list[MeasuredPoint]:
        """One point for each part of the past that has results."""
        width_s = (self.now.timestamp() - self.begin_s) / _PARTS
        parts: dict[int, list[LatencyResult]] = {}
        for result in self._results:
            parts.setdefault(int((result.at_s - self.begin_s) // width_s), []).append(result)
        return [
            MeasuredPoint(max(result.at_s for result in part), statistic_of(part, self.statistic), len(part))
            for _, part in sorted(parts.items())
        ]

    @cached_property
    def stretches(self) -> list[list[MeasuredPoint]]:
        """Points in a row: a gap of the measurement ends a stretch."""
        if not self.points:
            return []
        steps_s = [b.at_s - a.at_s for a, b in pairwise(self.points)]
        gap_s = _GAP_STEPS * max(median(steps_s), (self.now.timestamp() - self.begin_s) / _PARTS) if steps_s else 0.0
        stretches = [[self.points[0]]]
        for before, point in pairwise(self.points):
            if point.at_s - before.at_s > gap_s:
                stretches.append([])
            stretches[-1].append(point)
        return stretches

    # -- words
    @property
    def finding(self) -> str:
        """Sentence on the newest values, for those who do not see the picture."""
        bound = f"; the objective is {seconds(self.bound_s)}" if self.bound_s else ""
        parts = []
        if self.points:
            newest, worst = self.points[-1], max(point.value_s for point in self.points)
            parts.append(f"measured {seconds(newest.value_s)} at {self._clock(newest.at_s)}, at most {seconds(worst)}")
        if self.estimates:
            parts.append(f"estimated {seconds(self.estimates[-1].estimate_s)} now")
        return f"{self.query.name}: {' and '.join(parts)}{bound}."

    @property
    def past(self) -> str:
        """3 h."""
        return duration_words(self.now.timestamp() - self.begin_s)

    @property
    def gaps(self) -> int:
        return max(0, len(self.stretches) - 1)

    @property
    def key(self) -> list[tuple[str, str]]:
        """Entries of the legend, in drawing order."""
        has_band = any(point.high_s is not None for point in self.estimates)
        return [
            *([("band", "Interval, 90%")] if has_band else []),
            *([("estimate", "Estimate")] if self.estimates else []),
            *([("measured-line", "Measured")] if self.points else []),
            *([("objective-line", "Objective")] if self.bound_s else []),
        ]

    def _clock(self, at_s: float) -> str:
        return f"{timezone.localtime(datetime.fromtimestamp(at_s, UTC)):%H:%M}"

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """At most 24 parts of time: when each begins, the worst measured in it, the estimate and interval in force."""
        width_s = (self.now.timestamp() - self.begin_s) / _ROWS
        return [self._row(self.begin_s + i * width_s, width_s) for i in range(_ROWS)]

    def _row(self, from_s: float, width_s: float) -> tuple[str, str, str, str]:
        values = [point.value_s for point in self.points if from_s <= point.at_s < from_s + width_s]
        before = [point for point in self.estimates if point.at.timestamp() <= from_s + width_s]
        estimate = before[-1] if before else None
        measured = str(seconds(max(values))) if values else MISSING
        if estimate is None:
            return self._clock(from_s), measured, MISSING, MISSING
        interval = seconds_range(estimate.low_s, estimate.high_s) if estimate.high_s is not None else Quantity(MISSING)
        return self._clock(from_s), measured, str(seconds(estimate.estimate_s)), str(interval)

    # -- the picture
    @cached_property
    def svg(self) -> SafeString:
        """A wide picture for desks and a narrow one for phones."""
        return format_html("{}{}", *(self._picture(frame) for frame in _FRAMES))

    def _picture(self, frame: PictureFrame) -> SafeString:
        now_s = self.now.timestamp()
        end_s = now_s + _AHEAD_SHARE * (now_s - self.begin_s)
        x = Scale(self.begin_s, end_s, begin=frame.left, end=frame.left + frame.span)
        highest = max([*self._heights(), (self.bound_s or 0.0) * 1.12, 1e-9])
        step = nice_step(highest / 4)
        y = Scale(0.0, round_up(highest, step), begin=_HEIGHT - _BOTTOM, end=_TOP)
        shapes = [
            *_value_axis(frame, y, step),
            *self._band(x, y, end_s),
            *self._estimate(x, y, now_s, end_s),
            *self._measured(x, y),
            *self._objective(frame, y),
            *_now(x(now_s), self._clock(now_s), frame),
            *clock_axis(frame, _HEIGHT - _BOTTOM, self.begin_s * 1e6, now_s * 1e6, lambda at_us: x(at_us / 1e6)),
        ]
        return picture(frame.width, _HEIGHT, self.finding, shapes, css=f"fig {frame.css}")

    def _heights(self) -> Iterator[float]:
        yield from (point.value_s for point in self.points)
        yield from (point.estimate_s for point in self.estimates)
        yield from (point.high_s for point in self.estimates if point.high_s is not None)

    def _spans(self, end_s: float) -> list[tuple[HistoryPoint, float, float]]:
        """Each estimate with the time it is in force within the picture."""
        ends = [*(point.at.timestamp() for point in self.estimates[1:]), end_s]
        return [
            (point, max(point.at.timestamp(), self.begin_s), until_s)
            for point, until_s in zip(self.estimates, ends, strict=True)
            if until_s > self.begin_s
        ]

    def _band(self, x: Scale, y: Scale, end_s: float) -> Iterator[Shape]:
        for point, since_s, until_s in self._spans(end_s):
            if point.low_s is None or point.high_s is None:
                continue
            yield path(
                path_data("M", x(since_s), y(point.low_s), "H", x(until_s), "V", y(point.high_s), "H", x(since_s), "Z"),
                css="band",
            )

    def _estimate(self, x: Scale, y: Scale, now_s: float, end_s: float) -> Iterator[Shape]:
        spans = self._spans(end_s)
        if not spans:
            return
        places = [(x(since_s), y(point.estimate_s)) for point, since_s, _ in spans]
        newest = places[-1][1]
        yield path(step_data([*places, (x(now_s), newest)]), css="est")
        yield path("M", x(now_s), newest, "H", x(end_s), css="est fut")

    def _measured(self, x: Scale, y: Scale) -> Iterator[Shape]:
        for stretch in self.stretches:
            if len(stretch) == 1:
                yield circle(x(stretch[0].at_s), y(stretch[0].value_s), 3, css="mea")
                continue
            places = [(x(point.at_s), y(point.value_s)) for point in stretch]
            yield path(line_data(places), fill="none", stroke="c-measured", stroke_width=1.5, stroke_linejoin="round")
            if stretch is self.stretches[-1]:
                yield circle(*places[-1], 3, css="mea")

    def _objective(self, frame: PictureFrame, y: Scale) -> Iterator[Shape]:
        if not self.bound_s:
            return
        at = y(self.bound_s)
        yield grid_line(frame.left, at, frame.left + frame.span, css="obj")
        yield text(frame.left + 6, at - 5, f"Objective {seconds(self.bound_s)}", css="to halo")


def _value_axis(frame: PictureFrame, y: Scale, step: float) -> Iterator[Shape]:
    values: Sequence[float] = [step * i for i in range(round(y.high / step) + 1)]
    for value in values:
        if value:
            yield grid_line(frame.left, y(value), frame.left + frame.span)
        unit = "\u00a0s" if value == values[-1] else ""
        yield text(frame.left - 6, y(value) + 4, f"{significant(value)}{unit}", anchor="end")


def _now(at: float, clock: str, frame: PictureFrame) -> Iterator[Shape]:
    yield path("M", at, _TOP - 6, "V", _HEIGHT - _BOTTOM, stroke="ink", stroke_width=1)
    yield text(min(at, frame.width - frame.right - 24), _TOP - 11, f"now, {clock}", css="t2", anchor="middle")
