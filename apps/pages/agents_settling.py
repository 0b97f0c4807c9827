"""How one query settled at an agent: load factors, CPU, overflow and bytes of its last epochs, above one axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from apps.pages.agents_picture import factor_text
from apps.pages.drawing import Room, clock_axis, shortened, steps_path, text_at
from apps.pages.provisioning_scale import nice_step
from apps.telemetry.epochs import EpochRow
from apps.ui.numbers import Quantity, bytes_size, counted, percent, ratio, scaled

__all__ = ["Settling", "settled_words"]

_STRIP, _PANEL, _GAP, _HEAD = 24, 58, 26, 18
_WIDE, _NARROW = Room("fig wide", 1040, 92, 132), Room("fig narrow", 366, 62, 12)


def settled_words(change: Mapping[str, Any]) -> str:
    """`settled in 2 epochs`."""
    epochs = change.get("epochs")
    return "settling" if epochs is None else f"settled in {counted(int(epochs), 'epoch')}"


class Settling:
    """The picture.

    Parameters
    ----------
    name : str
        Of query and agent, for who hears the picture.
    operators : sequence of str
        Ids of the operators that may run at the source.
    rows : sequence of EpochRow
        Oldest first.
    changes : sequence of mappings
        What the agent reports of its last changes: `epoch_us`, `epochs`, `why`.
    threshold : float
        Share of records overflowing from which on the query counts as congested.
    window_s : float, optional
        Of a windowed aggregate: its rows leave once in so long, so bytes are drawn as means over it.
    """

    def __init__(
        self,
        name: str,
        operators: Sequence[str],
        rows: Sequence[EpochRow],
        changes: Sequence[Mapping[str, Any]] = (),
        *,
        threshold: float = 0.05,
        window_s: float | None = None,
        epoch_s: float = 1.0,
    ) -> None:
        self.name, self.operators, self.threshold, self.epoch_s = name, list(operators), threshold, epoch_s
        self.rows = [row for row in rows if len(row.load_factors) == len(self.operators)]
        self.window = max(1, round((window_s or 0.0) / epoch_s))
        self.window_s = window_s
        self.changes = [one for one in changes if self.rows and self._first_us <= one.get("epoch_us", 0)]

    def __bool__(self) -> bool:
        return len(self.rows) > 1

    @cached_property
    def _first_us(self) -> float:
        return self.rows[0].epoch_us

    @cached_property
    def _span_us(self) -> float:
        return max(self.rows[-1].epoch_us - self._first_us, 1.0)

    # -- what is drawn
    @cached_property
    def used(self) -> list[float]:
        return [row.used_s / self.epoch_s for row in self.rows]

    @cached_property
    def budget(self) -> list[float]:
        return [row.budget_s / self.epoch_s for row in self.rows]

    @cached_property
    def overflow(self) -> list[float]:
        """Share of the records that came."""
        return [min(1.0, row.overflow / row.records_in) if row.records_in else 0.0 for row in self.rows]

    @cached_property
    def came(self) -> list[float]:
        return _means([row.bytes_in / self.epoch_s for row in self.rows], self.window)

    @cached_property
    def sent(self) -> list[float]:
        return _means([row.bytes_sent / self.epoch_s for row in self.rows], self.window)

    @property
    def finding(self) -> str:
        """What a reader of the picture would take away."""
        span = counted(round(self._span_us / 1e6), "second")
        last = self.rows[-1]
        factors = ", ".join(f"{one} {factor_text(p)}" for one, p in zip(self.operators, last.load_factors, strict=True))
        text = f"{self.name} over the last {span}: load factors now {factors}; CPU {ratio(self.used[-1])} of "
        text += f"{ratio(self.budget[-1])} cores; {percent(self.overflow[-1])} of records overflow."
        if self.changes:
            text += f" The last of {counted(len(self.changes), 'change')} {settled_words(self.changes[-1])}."
        return text

    @property
    def svg(self) -> SafeString:
        return mark_safe(self._drawn(_WIDE) + self._drawn(_NARROW))

    # -- drawing
    def _drawn(self, room: Room) -> str:
        y, parts = float(_HEAD), []
        for place, name in enumerate(self.operators):
            parts.append(self._strip(room, y, place, name))
            y += _STRIP + 4
        y += _GAP - 4
        for draw in (self._cpu, self._overflowing, self._bytes):
            parts.append(draw(room, y))
            y += _PANEL + _GAP
        base = y - _GAP
        marks = "".join(self._mark(room, base, one, place) for place, one in enumerate(self.changes))
        axis = clock_axis(room, base, self._first_us, self.rows[-1].epoch_us, partial(self._x, room))
        return format_html(
            '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
            room.css,
            room.width,
            round(base + 20),
            self.finding,
            mark_safe(marks + "".join(parts) + axis),
        )

    def _x(self, room: Room, epoch_us: float) -> float:
        return room.left + room.span * (epoch_us - self._first_us) / self._span_us

    def _xs(self, room: Room) -> list[float]:
        return [self._x(room, row.epoch_us) for row in self.rows]

    def _strip(self, room: Room, y: float, place: int, name: str) -> str:
        """One operator's load factor: how much of the strip is filled is how much is processed here."""
        values = [min(max(row.load_factors[place], 0.0), 1.0) for row in self.rows]
        ground = f'<rect x="{room.left}" y="{y:g}" width="{room.span}" height="{_STRIP}" fill="var(--c-drain)"/>'
        line = steps_path(self._xs(room), values, lambda value: y + _STRIP * (1 - value))
        area = f'<path d="{line}V{y + _STRIP:g}H{room.left:g}z" fill="var(--c-estimate)"/>'
        text = text_at(room.left - 8, y + 16, shortened(name, room.left - 8), "tx", "end")
        return ground + area + text + self._at_end(room, y + 16, factor_text(values[-1]), "tb")

    def _at_end(self, room: Room, y: float, text: object, css: str = "") -> str:
        """Right of the picture where there is room; phones have the numbers below."""
        return text_at(room.width - room.right + 8, y, text, css) if room.right > 40 else ""

    def _panel(self, room: Room, y: float, title: str, top: float, told: Callable[[float], Quantity]) -> str:
        lines = [
            text_at(room.left - 8, y + 4, told(top), "", "end"),
            text_at(room.left - 8, y + _PANEL, "0", "", "end"),
        ]
        grid = "".join(f'<path class="grid" d="M{room.left} {at:g}h{room.span}"/>' for at in (y, y + _PANEL))
        return grid + "".join(lines) + text_at(room.left, y - 6, title, "t2 halo")

    def _cpu(self, room: Room, y: float) -> str:
        top = _top([*self.used, *self.budget])
        xs, at = self._xs(room), _scale(y, top)
        used = f'<path class="est" d="{steps_path(xs, self.used, at)}"/>'
        budget = f'<path class="obj" fill="none" d="{steps_path(xs, self.budget, at)}"/>'
        ends = _apart([(at(self.budget[-1]), "to", f"may use {ratio(self.budget[-1])}"),
                       (at(self.used[-1]), "ta", f"uses {ratio(self.used[-1])}")])  # fmt: skip
        words = "".join(self._at_end(room, place, text, css) for place, css, text in ends)
        return self._panel(room, y, "CPU, cores", top, lambda value: Quantity(ratio(value))) + used + budget + words

    def _overflowing(self, room: Room, y: float) -> str:
        top = max(_top(self.overflow), 2 * self.threshold)
        at = _scale(y, top)
        width = max(1.5, 0.7 * room.span / max(len(self.rows), 2))
        bars = "".join(
            f'<rect x="{x - width / 2:.1f}" y="{at(value):.1f}" width="{width:.1f}"'
            f' height="{y + _PANEL - at(value):.1f}" fill="var(--bad)"/>'
            for x, value in zip(self._xs(room), self.overflow, strict=True)
            if value > 0
        )
        limit = f'<path class="obj" stroke-dasharray="2 3" d="M{room.left} {at(self.threshold):.1f}h{room.span}"/>'
        words = self._at_end(room, at(self.threshold) + 4, f"congested from {percent(self.threshold)}", "to")
        return self._panel(room, y, "Overflow, share of records", top, percent) + bars + limit + words

    def _bytes(self, room: Room, y: float) -> str:
        top = _top([*self.came, *self.sent])
        xs, at = self._xs(room), _scale(y, top)
        came = f'<path class="alt" d="{steps_path(xs, self.came, at)}"/>'
        sent = f'<path class="est" d="{steps_path(xs, self.sent, at)}"/>'
        ends = _apart([(at(self.came[-1]), "talt", f"come {bytes_size(self.came[-1], '/s')}"),
                       (at(self.sent[-1]), "ta", f"leave {bytes_size(self.sent[-1], '/s')}")])  # fmt: skip
        words = "".join(self._at_end(room, place, text, css) for place, css, text in ends)
        title = f"Bytes a second, means over {scaled(self.window_s, 's')}" if self.window > 1 else "Bytes a second"
        return self._panel(room, y, title, top, lambda value: bytes_size(value, "/s")) + came + sent + words

    def _mark(self, room: Room, base: float, change: Mapping[str, Any], place: int) -> str:
        """A dotted line at a change; its words only where they do not run into the next one's."""
        x = self._x(room, change["epoch_us"])
        line = f'<path d="M{x:.1f} {_HEAD - 4}V{base:g}" stroke="var(--ink-3)" stroke-dasharray="2 3"/>'
        words = settled_words(change)
        after = self.changes[place + 1 :]
        ends = self._x(room, after[0]["epoch_us"]) if after else room.width
        if x + len(words) * 5.6 > ends:
            return line
        return line + text_at(x + 3, 10, words)


def _means(values: Sequence[float], window: int) -> list[float]:
    """Trailing means over at most `window` values."""
    if window <= 1:
        return list(values)
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return [(sums[k + 1] - sums[max(0, k + 1 - window)]) / (k + 1 - max(0, k + 1 - window)) for k in range(len(values))]


def _top(values: Sequence[float]) -> float:
    """A round number above all of them."""
    highest = max(values, default=0.0)
    step = nice_step(highest / 4) if highest > 0 else 0.25
    return max(math.ceil(highest / step - 1e-9), 1) * step


def _scale(y: float, top: float) -> Callable[[float], float]:
    return lambda value: y + _PANEL * (1 - value / top)


def _apart(ends: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Words at the ends of two lines, moved apart where they would lie on each other."""
    (upper, css, text), (lower, other_css, other) = sorted(ends)
    gap = max(0.0, 13.0 - (lower - upper)) / 2
    return [(upper - gap + 4, css, text), (lower + gap + 4, other_css, other)]
