"""Charts of provisioning: latency against cost by number of nodes, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.planning.what_ifs.sweeps import BenchSize, BenchSweep
from apps.ui.numbers import factor, money, percent, seconds, significant

__all__ = ["NARROW", "WIDE", "BenchChart", "ChartFrame", "FrontChart", "nice_step"]


_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def nice_step(step: float) -> float:
    """The next of 1, 2, 2.5 or 5 times a power of ten that is no less.

    Examples
    --------
    >>> nice_step(3.1), nice_step(0.02), nice_step(0)
    (5.0, 0.02, 1.0)
    """
    if step <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * factor for factor in _STEPS if size * factor >= step * (1 - 1e-9))


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


class BenchChart:
    """The picture of a sweep.

    Parameters
    ----------
    sweep : Sweep
    chosen : Size
        The number of nodes looked at.
    currency : str
    address : callable
        The page's address with a number of nodes chosen.
    interval_s : pair of floats, optional
        The 90 % interval of the chosen size's largest latency, once a job has found it.
    resolution_s : float
        Shorter latencies are not told apart.
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
        self.costs = [size.cost for size in sweep.sizes]

    def _value(self, size: BenchSize, *, lost: bool) -> float | None:
        if self.in_seconds:
            return size.lost_s if lost else size.worst_s
        return size.lost_share if lost else size.share

    def _scale(self) -> tuple[float, list[float]]:
        """Top and ticks: twice the objective, or less if everything lies below."""
        values = [value for value in (*self.up, *self.lost) if value is not None]
        highest = max(values, default=1.0) or 1.0
        wanted = highest * 1.08
        if self.limit:
            near = [v for v in (self._value(self.chosen, lost=False), self._value(self.chosen, lost=True)) if v]
            wanted = min(max(wanted, self.limit * 1.15), max(self.limit * 2, *(v * 1.15 for v in near), 0))
        step = nice_step(wanted / 5)
        top = math.ceil(wanted / step - 1e-9) * step
        return top, [step * i for i in range(round(top / step) + 1)]

    # -- words

    @property
    def title(self) -> str:
        if self.in_seconds:
            return "Worst-case latency"
        return "Worst case, in times its objective" if self.in_times else "Worst case, as a share of its objective"

    @property
    def in_times(self) -> bool:
        """Whether shares are so large that percent would be four digits and more."""
        return not self.in_seconds and self.top >= _MAX_RATIO

    @property
    def _unit(self) -> str:
        if self.in_seconds:
            return " s"
        return " ×" if self.in_times else "%"

    @property
    def finding(self) -> str:
        """What a reader of the picture would take away."""
        words = f"{self.title} by number of nodes. "
        near = [size for size in self.sweep.sizes if abs(size.nodes - self.chosen.nodes) <= 2]
        words += " ".join(f"{size.nodes} nodes: {self._said(size)}." for size in near)
        return words + (f" The objective is {seconds(self.limit)}." if self.limit and self.in_seconds else "")

    def _said(self, size: BenchSize) -> str:
        up, lost = self._value(size, lost=False), self._value(size, lost=True)
        return f"{self._written(up)} with all up" + (f", {self._written(lost)} with one lost" if lost else "")

    def _written(self, value: float | None) -> str:
        if not self.in_seconds:
            return str(factor(value) if self.in_times and value is not None else percent(value))
        return str(seconds(value, apart_from=self.limit, under=self.resolution_s))

    # -- drawing

    @property
    def svg(self) -> SafeString:
        return mark_safe(self._drawn(WIDE) + self._drawn(NARROW))

    def _drawn(self, frame: ChartFrame) -> str:
        parts = [*self._grid(frame), *self._columns(frame), *self._lines(frame), *self._bars(frame)]
        parts += [*self._labels(frame), *self._hits(frame)]
        head = format_html(
            '<svg class="{}" viewBox="0 0 {} {}" role="group" aria-label="{}">',
            frame.css,
            frame.width,
            frame.height,
            self.finding,
        )
        return head + "".join(parts) + "</svg>"

    def _x(self, frame: ChartFrame, index: int) -> float:
        step = (frame.right - frame.left) / len(self.sweep.sizes)
        return round(frame.left + step * (index + 0.5), 1)

    def _y(self, frame: ChartFrame, value: float) -> float:
        return round(frame.base - (frame.base - frame.top) * value / self.top, 1)

    def _grid(self, frame: ChartFrame) -> list[str]:
        parts = []
        for tick in self.ticks:
            y = self._y(frame, tick)
            words = significant(tick) if self.in_seconds or self.in_times else f"{round(tick * 100)}"
            unit = self._unit if tick == self.ticks[-1] else ""
            parts.append(f'<path class="grid" d="M{frame.left} {y:g}H{frame.right}"/>')
            parts.append(f'<text x="{frame.left - 8}" y="{y + 4:g}" text-anchor="end">{words}{unit}</text>')
        return parts

    def _columns(self, frame: ChartFrame) -> list[str]:
        """The chosen size's column, and the mark of the present number."""
        parts = []
        step = (frame.right - frame.left) / len(self.sweep.sizes)
        for index, size in enumerate(self.sweep.sizes):
            x = self._x(frame, index)
            if size is self.chosen:
                width, height = round(step * 0.62, 1), frame.cost_base - frame.top
                parts.append(
                    f'<rect x="{x - width / 2:g}" y="{frame.top}" width="{width:g}" height="{height}" rx="4" '
                    'fill="var(--accent-soft)"/>'
                )
        return parts

    def _lines(self, frame: ChartFrame) -> list[str]:
        parts = []
        if self.interval is not None:
            x = self._x(frame, self.sweep.sizes.index(self.chosen))
            low, high = (self._y(frame, min(value, self.top)) for value in self.interval)
            parts.append(f'<rect class="band" x="{x - 6:g}" y="{high:g}" width="12" height="{max(low - high, 2):g}"/>')
        if self.limit:
            y = self._y(frame, self.limit)
            parts.append(f'<path class="obj" d="M{frame.left} {y:g}H{frame.right}"/>')
        for css, values in (("alt", self.lost), ("est", self.up)):
            parts.append(f'<path class="{css}" d="{self._path(frame, values)}"/>')
        for index, size in enumerate(self.sweep.sizes):
            x, up, lost = self._x(frame, index), self.up[index], self.lost[index]
            if lost is not None and lost <= self.top:
                y = self._y(frame, lost)
                parts.append(f'<rect x="{x - 3:g}" y="{y - 3:g}" width="6" height="6" fill="var(--c-alt)"/>')
            if up is not None and up <= self.top:
                radius = 4.5 if size is self.chosen else 3
                parts.append(f'<circle cx="{x:g}" cy="{self._y(frame, up):g}" r="{radius}" fill="var(--c-estimate)"/>')
        return parts

    def _path(self, frame: ChartFrame, values: Sequence[float | None]) -> str:
        """A line that is cut where it leaves the picture at its top."""
        points = [(self._x(frame, i), value) for i, value in enumerate(values) if value is not None]
        path, before = [], None
        for x, value in points:
            if before is not None:
                path += self._piece(frame, before, (x, value))
            before = (x, value)
        return "".join(path)

    def _piece(self, frame: ChartFrame, a: tuple[float, float], b: tuple[float, float]) -> list[str]:
        if a[1] > self.top and b[1] > self.top:
            return []
        a, b = (self._cut(a, b) if a[1] > self.top else a), (self._cut(b, a) if b[1] > self.top else b)
        return [f"M{a[0]:g} {self._y(frame, a[1]):g}L{b[0]:g} {self._y(frame, b[1]):g}"]

    def _cut(self, outside: tuple[float, float], inside: tuple[float, float]) -> tuple[float, float]:
        share = (self.top - inside[1]) / (outside[1] - inside[1])
        return round(inside[0] + (outside[0] - inside[0]) * share, 1), self.top

    def _bars(self, frame: ChartFrame) -> list[str]:
        """Cost by number of nodes; without prices the numbers alone."""
        known = [cost for cost in self.costs if cost is not None]
        highest = nice_step(max(known)) if any(known) else 0.0
        step = (frame.right - frame.left) / len(self.sweep.sizes)
        width = round(step * 0.42, 1)
        ends = f"M{frame.left} {frame.base}H{frame.right}M{frame.left} {frame.cost_base}H{frame.right}"
        parts = [f'<path class="axis" d="{ends}"/>']
        if known and highest:
            parts.append(f'<path class="grid" d="M{frame.left} {frame.cost_top}H{frame.right}"/>')
            label = money(highest, self.currency).removesuffix(".00")
            for y, words in ((frame.cost_top + 4, escape(label)), (frame.cost_base + 3, "0")):
                parts.append(f'<text x="{frame.left - 8}" y="{y}" text-anchor="end">{words}</text>')
        for index, size in enumerate(self.sweep.sizes):
            x, chosen = self._x(frame, index), size is self.chosen
            if size.cost is not None and highest:
                high = round((frame.cost_base - frame.cost_top) * size.cost / highest, 1)
                fill = "c-estimate" if chosen else "c-fill"
                parts.append(
                    f'<rect x="{x - width / 2:g}" y="{frame.cost_base - high:g}" width="{width:g}" height="{high:g}" '
                    f'rx="1.5" fill="var(--{fill})"{"" if chosen else " opacity=" + chr(34) + "0.7" + chr(34)}/>'
                )
                if chosen:
                    y = frame.cost_base - high - 6
                    words = escape(money(size.cost, self.currency))
                    parts.append(f'<text class="tb halo" x="{x:g}" y="{y:g}" text-anchor="middle">{words}</text>')
            if self._is_labelled(index, frame):
                css = "tb" if chosen else ""
                parts.append(
                    f'<text class="{css}" x="{x:g}" y="{frame.cost_base + 19}" text-anchor="middle">{size.nodes}</text>'
                )
                if size.is_now:
                    parts.append(f'<path class="now" d="M{x - 7:g} {frame.cost_base + 22.5}h14"/>')
        return parts

    def _is_labelled(self, index: int, frame: ChartFrame) -> bool:
        sizes = self.sweep.sizes
        every = max(1, math.ceil(len(sizes) * 26 / (frame.right - frame.left)))
        near = any(abs(index - sizes.index(one)) < every and one is not sizes[index] for one in self._kept_labels)
        return sizes[index] in self._kept_labels or (index % every == 0 and not near)

    @property
    def _kept_labels(self) -> list[BenchSize]:
        return [size for size in self.sweep.sizes if size is self.chosen or size.is_now]

    def _labels(self, frame: ChartFrame) -> list[str]:
        left, top = frame.left, frame.top
        parts = [f'<text class="t2" x="{left}" y="{top - 7}">{escape(self.title)}</text>']
        if any(cost is not None for cost in self.costs):
            parts.append(f'<text class="t2 halo" x="{left}" y="{frame.cost_top - 8}">Cost per hour</text>')
        parts += self._beside(frame) + self._flag(frame)
        if frame is WIDE:
            parts.append(f'<text x="{frame.right + 10}" y="{frame.cost_base + 19}">nodes</text>')
        return parts

    def _beside(self, frame: ChartFrame) -> list[str]:
        """Names of the lines at their right ends, apart from each other."""
        wanted = [("ta", "All nodes up", self.up[-1])]
        wanted += [("talt", "One node lost", self.lost[-1])] if self.lost[-1] is not None else []
        limit = f"Objective {seconds(self.limit)}" if self.in_seconds and self.limit else "Objective"
        wanted += [("to", limit, self.limit)] if self.limit else []
        if frame is NARROW:
            y = self._y(frame, self.limit or 0.0) - 6
            return (
                []
                if not self.limit
                else [f'<text class="to halo" x="{frame.right}" y="{y:g}" text-anchor="end">{limit}</text>']
            )
        placed: list[tuple[float, str, str]] = []
        ends = [
            (min(max(self._y(frame, min(value, self.top)) + 4, 28), frame.base), css, words)
            for css, words, value in wanted
            if value is not None
        ]
        for y, css, words in sorted(ends):
            low = max([y, *(other + 15 for other, _, _ in placed[-1:])])
            placed.append((low, css, words))
        return [f'<text class="{css}" x="{frame.right + 10}" y="{y:g}">{words}</text>' for y, css, words in placed]

    def _flag(self, frame: ChartFrame) -> list[str]:
        """The chosen size in words, beside its column."""
        index = self.sweep.sizes.index(self.chosen)
        is_right = index < len(self.sweep.sizes) * 0.6
        step = (frame.right - frame.left) / len(self.sweep.sizes)
        x = self._x(frame, index) + (step * 0.4 + 8 if is_right else -step * 0.4 - 8)
        anchor = "start" if is_right else "end"
        up, lost = self.up[index], self.lost[index]
        lines = [("tb", f"{self.chosen.nodes} nodes", 34.0)]
        lines += [("tx", f"{self._written(lost)} with one lost", 52.0)] if lost is not None else []
        lines += [("tx", f"{self._written(up)} with all up", 52.0 + 17 * (lost is not None))]
        return [
            f'<text class="{css} halo" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
            for css, words, y in lines
        ]

    def _hits(self, frame: ChartFrame) -> list[str]:
        """Each size's column as a link; one of them is in the order of Tab, arrows lead to the others."""
        step = (frame.right - frame.left) / len(self.sweep.sizes)
        parts = []
        for index, size in enumerate(self.sweep.sizes):
            chosen = size is self.chosen
            x, height = self._x(frame, index) - step / 2, frame.height - frame.top
            words = f"{size.nodes} nodes: {self._said(size)}"
            words += f", {money(size.cost, self.currency)} per hour" if size.cost is not None else ""
            parts.append(
                format_html(
                    '<a class="hit" href="{}" data-nodes="{}" tabindex="{}" aria-label="{}"{}><title>{}</title>'
                    '<rect x="{}" y="{}" width="{}" height="{}" rx="3"/></a>',
                    self.address(size.nodes),
                    size.nodes,
                    0 if chosen else -1,
                    words,
                    mark_safe(' aria-current="true"') if chosen else "",
                    words,
                    f"{x:g}",
                    frame.top,
                    f"{step:g}",
                    height,
                )
            )
        return parts


_LEFT, _TOP, _BASE = 48, 22, 236


class FrontChart:
    """Dots by cost of the new nodes; between two of them nothing better is to be had for the money."""

    def __init__(self, points: Sequence[Mapping[str, Any]], currency: str, lose_one: bool) -> None:
        self.points = [point for point in points if self.latency(point) is not None]
        self.currency = currency
        self.title = "Worst case with any one node lost" if lose_one else "Worst case with all nodes up"

    @staticmethod
    def latency(point: Mapping[str, Any]) -> float | None:
        """With one node lost where that was asked for."""
        lost = point.get("lost")
        found = lost["worst_s"] if lost else point["worst_s"]
        return None if found is None else float(found)

    @property
    def finding(self) -> str:
        said = [f"{money(p['cost_per_hour'], self.currency)}: {seconds(self.latency(p))}" for p in self.points]
        return f"{self.title} by cost of the new nodes per hour. {'; '.join(said)}."

    @property
    def svg(self) -> SafeString:
        return mark_safe(self._drawn("fig wide", 1000, 940) + self._drawn("fig narrow", 366, 340))

    def _drawn(self, css: str, width: int, right: int) -> str:
        costs = [float(point["cost_per_hour"]) for point in self.points]
        values = [self.latency(point) or 0.0 for point in self.points]
        x_step, y_step = nice_step(max(costs, default=1.0) / 4 or 1.0), nice_step(max(values, default=1.0) / 4 or 1.0)
        x_top = max(x_step, math.ceil(max(costs, default=1.0) / x_step) * x_step)
        y_top = max(y_step, math.ceil(max(values, default=1.0) * 1.05 / y_step) * y_step)

        def x(cost: float) -> float:
            return round(_LEFT + (right - _LEFT) * cost / x_top, 1)

        def y(value: float) -> float:
            return round(_BASE - (_BASE - _TOP) * value / y_top, 1)

        parts = [f'<text class="t2" x="{_LEFT}" y="{_TOP - 8}">{escape(self.title)}</text>']
        for tick in _ticks(y_step, y_top):
            unit = " s" if tick + y_step / 2 > y_top else ""
            parts.append(f'<path class="grid" d="M{_LEFT} {y(tick):g}H{right}"/>')
            parts.append(
                f'<text x="{_LEFT - 8}" y="{y(tick) + 4:g}" text-anchor="end">{significant(tick)}{unit}</text>'
            )
        for tick in _ticks(x_step, x_top):
            words = escape(money(tick, self.currency).removesuffix(".00"))
            parts.append(f'<text x="{x(tick):g}" y="{_BASE + 18}" text-anchor="middle">{words}</text>')
        parts.append(f'<path class="axis" d="M{_LEFT} {_BASE}H{right}"/>')
        path = "".join(
            f"H{x(cost):g}V{y(value):g}" if i else f"M{x(cost):g} {y(value):g}"
            for i, (cost, value) in enumerate(zip(costs, values, strict=True))
        )
        parts.append(f'<path class="est" d="{path}H{right}"/>' if path else "")
        parts += [
            f'<circle cx="{x(cost):g}" cy="{y(value):g}" r="3.5" fill="var(--c-estimate)"/>'
            for cost, value in zip(costs, values, strict=True)
        ]
        head = '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        return format_html(head, css, width, _BASE + 28, self.finding) + "".join(parts) + "</svg>"


def _ticks(step: float, top: float) -> list[float]:
    return [step * i for i in range(round(top / step) + 1)]
