"""Charts of provisioning: latency against cost by number of nodes, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from django.utils.safestring import SafeString

from apps.planning.sweeps import BenchSize, BenchSweep
from apps.ui.numbers import Quantity, factor, money, percent, seconds, significant
from apps.ui.svg.axes import grid_line, step_data
from apps.ui.svg.scales import Scale, nice_step, round_up, spread
from apps.ui.svg.shapes import Shape, circle, path, path_data, picture, rect, shape, text, title
from engine.provisioning.answers.pools import ParetoPoint
from engine.words import counted

__all__ = ["NARROW", "WIDE", "BenchChart", "ChartFrame", "FrontChart", "excess_words", "size_words"]


def excess_words(value: float | None, bound_s: float | None, slice_s: float) -> Quantity:
    """A latency by Mace, with enough digits to tell it from its objective; less than a slice is no excess."""
    if value is not None and value < slice_s:
        return Quantity("no excess")
    return seconds(value, apart_from=bound_s)


def size_words(value: float | None, endless: Collection[str], bound_s: float | None, slice_s: float) -> Quantity:
    """The largest latency of a number of nodes, by Mace, with which some queries never catch up."""
    return Quantity("never catches up") if endless else excess_words(value, bound_s, slice_s)


@dataclass(frozen=True)
class ChartFrame:
    """Places in a picture, in its own units."""

    css: str
    width: int
    left: int
    right: int
    top: int = 20
    base: int = 268
    cost_top: int = 296
    cost_base: int = 336

    @property
    def height(self) -> int:
        return self.cost_base + 24


WIDE = ChartFrame("fig wide", 700, 44, 572)
NARROW = ChartFrame("fig narrow", 366, 44, 352, base=258, cost_top=286, cost_base=326)


_MAX_RATIO = 10.0
_IN_SIGHT = 4.0  # times the objective that the axis may reach, so that its line stays in sight


class BenchChart:
    """The picture of a sweep.

    `chosen`: the number of nodes looked at. `address`: the page's address with a number of nodes chosen. `interval_s`:
    the 90 % interval of the chosen size's largest latency, once a job has found it. `resolution_s`: width of a slice:
    shorter waits are no excess.
    """

    def __init__(
        self,
        sweep: BenchSweep,
        chosen: BenchSize,
        currency: str,
        address: Callable[[int], str],
        interval_s: tuple[float, float] | None = None,
        resolution_s: float = 0.0,
    ) -> None:
        self.resolution_s = resolution_s
        self.sweep, self.chosen, self.currency, self.address = sweep, chosen, currency, address
        self.in_seconds = sweep.bound_s is not None or not sweep.objectives
        self.interval = interval_s if self.in_seconds else None
        self.limit = sweep.bound_s if self.in_seconds else 1.0
        self.up = [self._value(size, lost=False) for size in sweep.sizes]
        self.lost = [self._value(size, lost=True) for size in sweep.sizes]
        self.top, self.ticks = self._scale()
        self.costs = [size.cost_per_hour for size in sweep.sizes]

    def _value(self, size: BenchSize, *, lost: bool) -> float | None:
        if self.in_seconds:
            return size.lost_s if lost else size.worst_s
        return size.lost_share if lost else size.share

    def _scale(self) -> tuple[float, list[float]]:
        """Top and ticks: twice the objective, less if all lies below, up to four times it for the chosen size."""
        values = [value for value in (*self.up, *self.lost) if value is not None]
        highest = max(values, default=1.0) or 1.0
        wanted = highest * 1.08
        if self.limit:
            reach = min(self.limit * _IN_SIGHT, self._largest * 1.15)
            wanted = min(max(wanted, self.limit * 1.15), max(self.limit * 2, reach))
        step = nice_step(wanted / 5)
        top = round_up(wanted, step)
        return top, [step * i for i in range(round(top / step) + 1)]

    @property
    def _largest(self) -> float:
        """Larger value of the chosen size, with all nodes up or one lost; 0 where none is known."""
        return max(self._value(self.chosen, lost=False) or 0.0, self._value(self.chosen, lost=True) or 0.0)

    # -- words

    @property
    def title(self) -> str:
        if self.in_seconds:
            return "Worst-case latency"
        return "Worst case, in times its objective" if self.in_times else "Worst case, as a share of its objective"

    @property
    def in_times(self) -> bool:
        """Whether shares are so large that percent would be four digits and more."""
        return not self.in_seconds and self._largest >= _MAX_RATIO

    @property
    def _unit(self) -> str:
        if self.in_seconds:
            return " s"
        return " ×" if self.in_times else "%"

    @property
    def finding(self) -> str:
        """The picture in words."""
        near = [size for size in self.sweep.sizes if abs(size.nodes - self.chosen.nodes) <= 2]
        sentences = [f"{self.title} by number of nodes.", *(f"{self._size_words(size)}." for size in near)]
        if self.limit and self.in_seconds:
            sentences.append(f"The objective is {seconds(self.limit)}.")
        return " ".join(sentences)

    def _size_words(self, size: BenchSize) -> str:
        nodes, up = counted(size.nodes, "node"), self._written_up(size)
        if not self._value(size, lost=True) and not self._lost_endless(size):
            return f"{nodes}: {up} with all up"
        return f"{nodes}: {up} with all up, {self._written_lost(size)} with one lost"

    def _written_up(self, size: BenchSize) -> str:
        endless = [name for name in size.endless if self.in_seconds or name in size.late]
        return "never catches up" if endless else self._written(self._value(size, lost=False))

    def _written_lost(self, size: BenchSize) -> str:
        return "never catches up" if self._lost_endless(size) else self._written(self._value(size, lost=True))

    def _lost_endless(self, size: BenchSize) -> bool:
        return any(self.in_seconds or name in size.lost_late for name in size.lost_endless)

    def _written(self, value: float | None) -> str:
        if not self.in_seconds:
            return str(factor(value) if self.in_times and value is not None else percent(value))
        return str(excess_words(value, self.limit, self.resolution_s))

    # -- drawing

    @property
    def svg(self) -> SafeString:
        return self._drawn(WIDE) + self._drawn(NARROW)

    def _drawn(self, frame: ChartFrame) -> SafeString:
        return picture(
            frame.width,
            frame.height,
            self.finding,
            self._grid(frame),
            self._column(frame),
            self._lines(frame),
            self._bars(frame),
            self._labels(frame),
            self._hits(frame),
            css=frame.css,
            role="group",
        )

    def _step(self, frame: ChartFrame) -> float:
        return (frame.right - frame.left) / len(self.sweep.sizes)

    def _x(self, frame: ChartFrame, index: int) -> float:
        return frame.left + self._step(frame) * (index + 0.5)

    def _y(self, frame: ChartFrame) -> Scale:
        return Scale(0, self.top, begin=frame.base, end=frame.top)

    def _grid(self, frame: ChartFrame) -> list[Shape]:
        shapes = []
        for tick in self.ticks:
            y = self._y(frame)(tick)
            words = significant(tick) if self.in_seconds or self.in_times else f"{round(tick * 100)}"
            unit = self._unit if tick == self.ticks[-1] else ""
            shapes.append(grid_line(frame.left, y, frame.right))
            shapes.append(text(frame.left - 8, y + 4, f"{words}{unit}", anchor="end"))
        return shapes

    def _column(self, frame: ChartFrame) -> Shape:
        """The chosen size's column."""
        x, width = self._x(frame, self.sweep.sizes.index(self.chosen)), self._step(frame) * 0.62
        return rect(x - width / 2, frame.top, width, frame.cost_base - frame.top, rx=4, fill="accent-soft")

    def _lines(self, frame: ChartFrame) -> list[Shape]:
        shapes, y = [], self._y(frame)
        if self.interval is not None:
            x = self._x(frame, self.sweep.sizes.index(self.chosen))
            low, high = map(y, self.interval)
            shapes.append(rect(x - 6, high, 12, max(low - high, 2), css="band"))
        if self.limit:
            shapes.append(grid_line(frame.left, y(self.limit), frame.right, css="obj"))
        for css, values in (("alt", self.lost), ("est", self.up)):
            shapes.append(path(self._line_data(frame, values), css=css))
        for index, size in enumerate(self.sweep.sizes):
            x, up, lost = self._x(frame, index), self.up[index], self.lost[index]
            if lost is not None and lost <= self.top:
                shapes.append(rect(x - 3, y(lost) - 3, 6, 6, fill="c-alt"))
            if up is not None and up <= self.top:
                shapes.append(circle(x, y(up), 4.5 if size is self.chosen else 3, fill="c-estimate"))
        return shapes

    def _line_data(self, frame: ChartFrame, values: Sequence[float | None]) -> str:
        """A line that is cut where it leaves the picture at its top."""
        points = [(self._x(frame, i), value) for i, value in enumerate(values) if value is not None]
        return "".join(self._piece(frame, a, b) for a, b in pairwise(points))

    def _piece(self, frame: ChartFrame, a: tuple[float, float], b: tuple[float, float]) -> str:
        if a[1] > self.top and b[1] > self.top:
            return ""
        y = self._y(frame)
        a, b = (self._cut(a, b) if a[1] > self.top else a), (self._cut(b, a) if b[1] > self.top else b)
        return path_data("M", a[0], y(a[1]), "L", b[0], y(b[1]))

    def _cut(self, outside: tuple[float, float], inside: tuple[float, float]) -> tuple[float, float]:
        share = (self.top - inside[1]) / (outside[1] - inside[1])
        return inside[0] + (outside[0] - inside[0]) * share, self.top

    def _bars(self, frame: ChartFrame) -> list[Shape]:
        """Cost by number of nodes; without prices the numbers alone."""
        costs = [cost for cost in self.costs if cost is not None]
        highest = nice_step(max(costs)) if any(costs) else 0.0
        axes = [path_data("M", frame.left, base, "H", frame.right) for base in (frame.base, frame.cost_base)]
        shapes = [path(*axes, css="axis")]
        if costs and highest:
            label = money(highest, self.currency).removesuffix(".00")
            shapes.append(grid_line(frame.left, frame.cost_top, frame.right))
            shapes.append(text(frame.left - 8, frame.cost_top + 4, label, anchor="end"))
            shapes.append(text(frame.left - 8, frame.cost_base + 3, "0", anchor="end"))
        for index, size in enumerate(self.sweep.sizes):
            x, chosen = self._x(frame, index), size is self.chosen
            if size.cost_per_hour is not None and highest:
                shapes += self._bar(frame, x, size, size.cost_per_hour / highest)
            if self._is_labelled(index, frame):
                shapes.append(text(x, frame.cost_base + 19, size.nodes, "tb" if chosen else "", "middle"))
                if size.is_now:
                    shapes.append(path("M", x - 7, frame.cost_base + 22.5, "h", 14, css="now"))
        return shapes

    def _bar(self, frame: ChartFrame, x: float, size: BenchSize, share: float) -> list[Shape]:
        """A size's cost as a share of the highest; the chosen one's in words too."""
        width, height = self._step(frame) * 0.42, (frame.cost_base - frame.cost_top) * share
        place = (x - width / 2, frame.cost_base - height, width, height)
        if size is not self.chosen:
            return [rect(*place, rx=1.5, fill="c-fill", opacity=0.7)]
        words = money(size.cost_per_hour, self.currency)
        price = text(x, frame.cost_base - height - 6, words, "tb halo", "middle")
        return [rect(*place, rx=1.5, fill="c-estimate"), price]

    def _is_labelled(self, index: int, frame: ChartFrame) -> bool:
        sizes = self.sweep.sizes
        every = max(1, math.ceil(len(sizes) * 26 / (frame.right - frame.left)))
        near = any(
            abs(index - sizes.index(kept_label)) < every and kept_label is not sizes[index]
            for kept_label in self._kept_labels
        )
        return sizes[index] in self._kept_labels or (index % every == 0 and not near)

    @property
    def _kept_labels(self) -> list[BenchSize]:
        return [size for size in self.sweep.sizes if size is self.chosen or size.is_now]

    def _labels(self, frame: ChartFrame) -> list[Shape]:
        shapes = [text(frame.left, frame.top - 7, self.title, "t2")]
        if any(cost is not None for cost in self.costs):
            shapes.append(text(frame.left, frame.cost_top - 8, "Cost per hour", "t2 halo"))
        shapes += self._line_ends(frame) + self._flag(frame)
        if frame is WIDE:
            shapes.append(text(frame.right + 10, frame.cost_base + 19, "nodes"))
        return shapes

    def _line_ends(self, frame: ChartFrame) -> list[Shape]:
        """Names of the lines at their right ends, apart from each other."""
        y = self._y(frame)
        limit = f"Objective {seconds(self.limit)}" if self.in_seconds and self.limit else "Objective"
        if frame is NARROW:
            return [text(frame.right, y(self.limit) - 6, limit, "to halo", "end")] if self.limit else []
        wanted = [("ta", "All nodes up", self.up[-1])]
        wanted += [("talt", "One node lost", self.lost[-1])] if self.lost[-1] is not None else []
        wanted += [("to", limit, self.limit)] if self.limit else []
        ends = sorted(
            (min(max(y(value) + 4, 28), frame.base), css, words) for css, words, value in wanted if value is not None
        )
        places = spread([at for at, _, _ in ends], 15)
        return [text(frame.right + 10, at, words, css) for at, (_, css, words) in zip(places, ends, strict=True)]

    def _flag(self, frame: ChartFrame) -> list[Shape]:
        """The chosen size in words, beside its column."""
        index = self.sweep.sizes.index(self.chosen)
        is_right = index < len(self.sweep.sizes) * 0.6
        step = self._step(frame)
        x = self._x(frame, index) + (step * 0.4 + 8 if is_right else -step * 0.4 - 8)
        has_lost = self.lost[index] is not None or self._lost_endless(self.chosen)
        lines = [("tb", counted(self.chosen.nodes, "node"), 34.0)]
        lines += [("tx", f"{self._written_lost(self.chosen)} with one lost", 52.0)] if has_lost else []
        lines += [("tx", f"{self._written_up(self.chosen)} with all up", 52.0 + 17 * has_lost)]
        return [text(x, y, words, f"{css} halo", "start" if is_right else "end") for css, words, y in lines]

    def _hits(self, frame: ChartFrame) -> list[Shape]:
        """Each size's column as a link; one of them is in the order of Tab, arrows lead to the others."""
        step, shapes = self._step(frame), []
        for index, size in enumerate(self.sweep.sizes):
            chosen = size is self.chosen
            words = self._size_words(size)
            if size.cost_per_hour is not None:
                words = f"{words}, {money(size.cost_per_hour, self.currency)} per hour"
            link = shape(
                "a",
                title(words),
                rect(self._x(frame, index) - step / 2, frame.top, step, frame.height - frame.top, rx=3),
                css="hit",
                href=self.address(size.nodes),
                data_nodes=size.nodes,
                tabindex=0 if chosen else -1,
                aria_label=words,
                aria_current="true" if chosen else None,
            )
            shapes.append(link)
        return shapes


_LEFT, _TOP, _BASE = 48, 22, 236


class FrontChart:
    """Dots by cost of the new nodes; between two of them nothing better is to be had for the money."""

    def __init__(self, points: Sequence[ParetoPoint], currency: str, lose_one: bool) -> None:
        self.points = [point for point in points if self.latency(point) is not None]
        self.currency = currency
        self.title = "Worst case with any one node lost" if lose_one else "Worst case with all nodes up"

    @staticmethod
    def latency(point: ParetoPoint) -> float | None:
        """With one node lost where that was asked for."""
        latency_s = point.lost.worst_s if point.lost else point.worst_s
        return latency_s if math.isfinite(latency_s) else None

    @property
    def finding(self) -> str:
        said = [f"{money(p.cost_per_hour, self.currency)}: {seconds(self.latency(p))}" for p in self.points]
        return f"{self.title} by cost of the new nodes per hour. {'; '.join(said)}."

    @property
    def svg(self) -> SafeString:
        return self._drawn("fig wide", 1000, 940) + self._drawn("fig narrow", 366, 340)

    def _drawn(self, css: str, width: int, right: int) -> SafeString:
        costs = [point.cost_per_hour for point in self.points]
        values = [self.latency(point) or 0.0 for point in self.points]
        x_step, y_step = nice_step(max(costs, default=1.0) / 4 or 1.0), nice_step(max(values, default=1.0) / 4 or 1.0)
        x = Scale(0, round_up(max(costs, default=1.0), x_step), begin=_LEFT, end=right)
        y = Scale(0, round_up(max(values, default=1.0) * 1.05, y_step), begin=_BASE, end=_TOP)
        shapes = [text(_LEFT, _TOP - 8, self.title, "t2")]
        for tick in _ticks(y_step, y.high):
            unit = " s" if tick + y_step / 2 > y.high else ""
            shapes.append(grid_line(_LEFT, y(tick), right))
            shapes.append(text(_LEFT - 8, y(tick) + 4, f"{significant(tick)}{unit}", anchor="end"))
        for tick in _ticks(x_step, x.high):
            words = money(tick, self.currency).removesuffix(".00")
            shapes.append(text(x(tick), _BASE + 18, words, anchor="middle"))
        shapes.append(grid_line(_LEFT, _BASE, right, css="axis"))
        shapes += self._front([(x(cost), y(value)) for cost, value in zip(costs, values, strict=True)], right)
        return picture(width, _BASE + 28, self.finding, shapes, css=css)

    @staticmethod
    def _front(points: Sequence[tuple[float, float]], right: float) -> list[Shape]:
        if not points:
            return []
        line = path(step_data(points), path_data("H", right), css="est")
        return [line, *(circle(x, y, 3.5, fill="c-estimate") for x, y in points)]


def _ticks(step: float, top: float) -> list[float]:
    return [step * i for i in range(round(top / step) + 1)]
