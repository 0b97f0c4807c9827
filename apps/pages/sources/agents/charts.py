"""Charts of agents: load factors as bars, a pipeline as a picture, and settling after a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.pages.provisioning.charts import nice_step
from apps.pages.sources.agents.flows import OperatorFlow, QueryFlow
from apps.ui.numbers import Quantity, bytes_size, counted, percent, rate, ratio, scaled
from apps.ui.svg import PictureFrame, clock_axis, shorten, steps_path, text_at
from engine.rollouts.epochs import EpochRow

__all__ = ["PipelineStage", "Settling", "factor_bars", "factor_text", "pipeline_picture", "settled_words"]


_BAR, _GAP = 36, 5  # of a load factor in the list
_LEFT, _RIGHT = 104, 196  # of the picture
_ROOM = 700  # between them, so that up to six operators fit into a page
_BLOCKS, _LINKS = (96, 130), (24, 66)  # least and most width
_TALLEST = 58.0
_LETTER = 6.4  # width that an operator's name has in its block, a letter


@dataclass(frozen=True)
class PipelineStage:
    """An operator as the agent is told to run it; `factor` is None where it may not run at a source."""

    name: str
    factor: float | None
    flow: OperatorFlow | None


def factor_text(factor: float) -> str:
    """1, 0.62 or 0."""
    return "1" if factor >= 0.9995 else ratio(factor)


def factor_bars(name: str, factors: Sequence[tuple[str, float]], *, reported: bool = True) -> SafeString:
    """One bar per operator: the share processed here; dashed while the agent does not report."""
    width = max(len(factors) * (_BAR + _GAP) - _GAP, 1)
    parts = []
    for place, (_, factor) in enumerate(factors):
        x = place * (_BAR + _GAP)
        middle = x + _BAR / 2
        text = factor_text(factor) if reported else "\N{EN DASH}"
        parts.append(f'<text x="{middle:g}" y="11" text-anchor="middle" class="{"tx" if factor else ""}">{text}</text>')
        if reported:
            parts.append(f'<rect x="{x}" y="15" width="{_BAR}" height="6" rx="1.5" fill="var(--c-drain)"/>')
            own = f'<rect x="{x}" y="15" width="{_BAR * factor:.1f}" height="6" rx="1.5" fill="var(--c-estimate)"/>'
            parts.append(own if factor else "")
        else:
            dashes = 'fill="none" stroke="var(--line-control)" stroke-dasharray="2 2"'
            parts.append(f'<rect x="{x + 0.5}" y="15.5" width="{_BAR - 1}" height="5" rx="1.5" {dashes}/>')
    said = ", ".join(f"{operator} {factor_text(factor)}" for operator, factor in factors)
    label = f"{name} load factors: {said}" if reported else f"{name} does not report; its load factors were {said}"
    return format_html(
        '<svg class="fig" width="{0}" height="22" viewBox="0 0 {0} 22" role="img" aria-label="{1}">{2}</svg>',
        width,
        label,
        mark_safe("".join(parts)),
    )


def pipeline_picture(agent: str, cluster: str, stages: Sequence[PipelineStage], flow: QueryFlow | None) -> SafeString:
    """Blocks from left to right, as wide links as records flow; what is drained falls to the cluster."""
    own = [stage for stage in stages if stage.factor is not None]
    block, link = _widths(len(own))
    end = _LEFT + len(own) * (block + link) - link
    width = end + _RIGHT
    most = max((stage.flow.in_eps for stage in own if stage.flow), default=0.0)
    parts = [_lead(flow)]
    for place, stage in enumerate(own):
        x = _LEFT + place * (block + link)
        came = stage.flow.in_eps if stage.flow else 0.0
        parts.append(_link(x - link if place else x - 26, x, came, most))
        parts.append(_block(x, block, stage))
        parts.append(_drain(x + block / 2, stage, most))
    parts.append(_tail(own, end, most))
    parts.append(_cluster(cluster, end, flow))
    label = _label(agent, own, flow)
    return format_html(
        '<svg class="fig" viewBox="0 0 {} 216" role="img" aria-label="{}" style="{}">{}</svg>',
        width,
        label,
        f"min-width:{width}px;max-width:{round(width * 1.2)}px",
        mark_safe("".join(parts)),
    )


def _widths(count: int) -> tuple[float, float]:
    """Of a block and of the link after it: less of each the more operators there are, links first."""
    links = max(count - 1, 1)
    link = min(_LINKS[1], max(_LINKS[0], (_ROOM - count * _BLOCKS[1]) / links))
    return min(_BLOCKS[1], max(_BLOCKS[0], (_ROOM - links * link) / max(count, 1))), link


def _text(x: float, y: float, text: object, css: str = "", anchor: str = "") -> str:
    end = f' text-anchor="{anchor}"' if anchor else ""
    name = f' class="{css}"' if css else ""
    return f'<text{name} x="{x:g}" y="{y:g}"{end}>{escape(str(text))}</text>'


def _lead(flow: QueryFlow | None) -> str:
    if flow is None:
        return _text(0, 66, "nothing yet", "tb")
    return _text(0, 66, f"{rate(flow.in_eps)} in", "tb") + _text(0, 81, bytes_size(flow.in_bytes_s, "/s"))


def _link(x0: float, x1: float, eps: float, most: float) -> str:
    if not most or not eps:
        return f'<path d="M{x0:g} 41H{x1:g}" stroke="var(--line-control)" stroke-dasharray="2 3"/>'
    height = max(1.5, _TALLEST * eps / most)
    return f'<rect x="{x0:g}" y="40" width="{x1 - x0:g}" height="{height:.1f}" fill="var(--c-fill)" opacity=".55"/>'


def _block(x: float, width: float, stage: PipelineStage) -> str:
    share = stage.flow.share if stage.flow and stage.flow.share is not None else stage.factor or 0.0
    room = width - 16
    letters = int(room / _LETTER) + 1
    name = stage.name if len(stage.name) <= letters else f"{stage.name[: letters - 1]}…"
    drained = "all here" if share >= 0.9995 else "all drained" if share < 0.0005 else f"{percent(1 - share)} drained"
    came = rate(stage.flow.in_eps) if stage.flow else ""
    paint = 'rx="6" fill="var(--surface)" stroke="var(--line-control)"'
    return (
        f'<rect x="{x:g}" y="26" width="{width:g}" height="92" {paint}/>'
        + _text(x + 8, 44, name, "tb")
        + f'<rect x="{x + 8:g}" y="54" width="{room:.1f}" height="12" rx="2" fill="var(--c-drain)"/>'
        + f'<rect x="{x + 8:g}" y="54" width="{room * share:.1f}" height="12" rx="2" fill="var(--c-estimate)"/>'
        + _text(x + 8, 82, f"{stage.factor or 0:.2f}", "tb")
        + _text(x + 8, 98, drained)
        + _text(x + width - 8, 82, came, "t2", "end")
    )


def _drain(middle: float, stage: PipelineStage, most: float) -> str:
    """From a block down to the cluster."""
    if stage.flow is None or not stage.flow.drained_eps or not most:
        return ""
    width = max(2.0, 0.7 * _TALLEST * stage.flow.drained_eps / most)
    bar = f'<rect x="{middle - width / 2:.1f}" y="118" width="{width:.1f}" height="52" fill="var(--c-drain)"/>'
    return bar + _text(middle + width / 2 + 6, 140, rate(stage.flow.drained_eps), "t2")


def _tail(own: Sequence[PipelineStage], end: float, most: float) -> str:
    """What comes out of the last operator goes to the cluster too."""
    last = own[-1].flow if own else None
    if last is None or not last.out_eps or not most:
        return ""
    height = max(1.5, _TALLEST * min(1.0, last.out_eps / most))
    path = f"M{end:g} 40h{24 + height:.1f}v130h-{height:.1f}V{40 + height:.1f}H{end:g}z"
    return f'<path d="{path}" fill="var(--c-fill)" opacity=".55"/>'


def _cluster(cluster: str, end: float, flow: QueryFlow | None) -> str:
    wide = end + 92 - _LEFT
    gets = (
        f"Cluster {cluster} gets {rate(flow.sent_eps)}, {bytes_size(flow.sent_bytes_s, '/s')}"
        if flow is not None
        else f"Cluster {cluster} has got nothing yet"
    )
    paint = 'rx="4" fill="var(--sunken)" stroke="var(--line-strong)"'
    box = f'<rect x="{_LEFT - 12}" y="170" width="{wide:g}" height="26" {paint}/>'
    share = _text(end + 100, 182, f"{percent(_saved(flow))} of bytes", "tb")
    saved = share + _text(end + 100, 196, "stay at the agent")
    return box + _text(_LEFT - 2, 187, gets, "t2") + (saved if flow is not None and flow.in_bytes_s else "")


def _saved(flow: QueryFlow | None) -> float | None:
    return 1 - flow.sent_bytes_s / flow.in_bytes_s if flow is not None and flow.in_bytes_s else None


def _label(agent: str, own: Sequence[PipelineStage], flow: QueryFlow | None) -> str:
    said = ", ".join(f"{stage.name} runs for {percent(_ran(stage))} of its records" for stage in own)
    if flow is None:
        return f"Pipeline on {agent}, which has not sent statistics yet: {said}."
    return f"Pipeline on {agent}: {said}. The cluster gets {rate(flow.sent_eps)} of {rate(flow.in_eps)}."


def _ran(stage: PipelineStage) -> float:
    return stage.flow.share if stage.flow and stage.flow.share is not None else stage.factor or 0.0


_STRIP, _PANEL, _ROW_GAP, _HEAD = 24, 58, 26, 18
_WIDE, _NARROW = PictureFrame("fig wide", 1040, 92, 132), PictureFrame("fig narrow", 366, 62, 12)


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
    def _drawn(self, room: PictureFrame) -> str:
        y, parts = float(_HEAD), []
        for place, name in enumerate(self.operators):
            parts.append(self._strip(room, y, place, name))
            y += _STRIP + 4
        y += _ROW_GAP - 4
        for draw in (self._cpu, self._overflowing, self._bytes):
            parts.append(draw(room, y))
            y += _PANEL + _ROW_GAP
        base = y - _ROW_GAP
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

    def _x(self, room: PictureFrame, epoch_us: float) -> float:
        return room.left + room.span * (epoch_us - self._first_us) / self._span_us

    def _xs(self, room: PictureFrame) -> list[float]:
        return [self._x(room, row.epoch_us) for row in self.rows]

    def _strip(self, room: PictureFrame, y: float, place: int, name: str) -> str:
        """One operator's load factor: how much of the strip is filled is how much is processed here."""
        values = [min(max(row.load_factors[place], 0.0), 1.0) for row in self.rows]
        ground = f'<rect x="{room.left}" y="{y:g}" width="{room.span}" height="{_STRIP}" fill="var(--c-drain)"/>'
        line = steps_path(self._xs(room), values, lambda value: y + _STRIP * (1 - value))
        area = f'<path d="{line}V{y + _STRIP:g}H{room.left:g}z" fill="var(--c-estimate)"/>'
        text = text_at(room.left - 8, y + 16, shorten(name, room.left - 8), "tx", "end")
        return ground + area + text + self._at_end(room, y + 16, factor_text(values[-1]), "tb")

    def _at_end(self, room: PictureFrame, y: float, text: object, css: str = "") -> str:
        """Right of the picture where there is room; phones have the numbers below."""
        return text_at(room.width - room.right + 8, y, text, css) if room.right > 40 else ""

    def _panel(self, room: PictureFrame, y: float, title: str, top: float, told: Callable[[float], Quantity]) -> str:
        lines = [
            text_at(room.left - 8, y + 4, told(top), "", "end"),
            text_at(room.left - 8, y + _PANEL, "0", "", "end"),
        ]
        grid = "".join(f'<path class="grid" d="M{room.left} {at:g}h{room.span}"/>' for at in (y, y + _PANEL))
        return grid + "".join(lines) + text_at(room.left, y - 6, title, "t2 halo")

    def _cpu(self, room: PictureFrame, y: float) -> str:
        top = _top([*self.used, *self.budget])
        xs, at = self._xs(room), _scale(y, top)
        used = f'<path class="est" d="{steps_path(xs, self.used, at)}"/>'
        budget = f'<path class="obj" fill="none" d="{steps_path(xs, self.budget, at)}"/>'
        ends = _apart([(at(self.budget[-1]), "to", f"may use {ratio(self.budget[-1])}"),
                       (at(self.used[-1]), "ta", f"uses {ratio(self.used[-1])}")])  # fmt: skip
        words = "".join(self._at_end(room, place, text, css) for place, css, text in ends)
        return self._panel(room, y, "CPU, cores", top, lambda value: Quantity(ratio(value))) + used + budget + words

    def _overflowing(self, room: PictureFrame, y: float) -> str:
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

    def _bytes(self, room: PictureFrame, y: float) -> str:
        top = _top([*self.came, *self.sent])
        xs, at = self._xs(room), _scale(y, top)
        came = f'<path class="alt" d="{steps_path(xs, self.came, at)}"/>'
        sent = f'<path class="est" d="{steps_path(xs, self.sent, at)}"/>'
        ends = _apart([(at(self.came[-1]), "talt", f"come {bytes_size(self.came[-1], '/s')}"),
                       (at(self.sent[-1]), "ta", f"leave {bytes_size(self.sent[-1], '/s')}")])  # fmt: skip
        words = "".join(self._at_end(room, place, text, css) for place, css, text in ends)
        title = f"Bytes a second, means over {scaled(self.window_s, 's')}" if self.window > 1 else "Bytes a second"
        return self._panel(room, y, title, top, lambda value: bytes_size(value, "/s")) + came + sent + words

    def _mark(self, room: PictureFrame, base: float, change: Mapping[str, Any], place: int) -> str:
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
