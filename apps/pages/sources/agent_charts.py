"""Charts of agents: load factors as bars, a pipeline as a picture, and settling after a change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from django.utils.safestring import SafeString

from agent.wire.heartbeat import FactorChangeReport
from apps.pages.sources.agent_flows import AgentQueryFlow, OperatorFlow
from apps.ui.numbers import Quantity, byte_rate, percent, rate, ratio, scaled
from apps.ui.svg.axes import PictureFrame, clock_axis, grid_line, shorten, step_data
from apps.ui.svg.scales import Scale, nice_step, round_up
from apps.ui.svg.shapes import Shape, path, path_data, picture, rect, text
from engine.rollouts.measures import EpochRow
from engine.words import counted

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
    shapes: list[Shape] = []
    for place, (_, factor) in enumerate(factors):
        x = place * (_BAR + _GAP)
        words = factor_text(factor) if reported else "\N{EN DASH}"
        shapes.append(text(x + _BAR / 2, 11, words, "tx" if factor else "", "middle"))
        if reported:
            shapes.append(rect(x, 15, _BAR, 6, rx=1.5, fill="c-drain"))
            if factor:
                shapes.append(rect(x, 15, _BAR * factor, 6, rx=1.5, fill="c-estimate"))
        else:
            dashes: dict[str, Any] = {"fill": "none", "stroke": "line-control", "stroke_dasharray": "2 2"}
            shapes.append(rect(x + 0.5, 15.5, _BAR - 1, 5, rx=1.5, **dashes))
    report = ", ".join(f"{operator} {factor_text(factor)}" for operator, factor in factors)
    label = f"{name} load factors: {report}" if reported else f"{name} does not report; its load factors were {report}"
    return picture(width, 22, label, shapes, sized=True)


def pipeline_picture(
    agent: str, cluster: str, stages: Sequence[PipelineStage], flow: AgentQueryFlow | None
) -> SafeString:
    """Blocks from left to right, as wide links as records flow; what is drained falls to the cluster."""
    own = [stage for stage in stages if stage.factor is not None]
    block, link = _widths(len(own))
    end = _LEFT + len(own) * (block + link) - link
    width = end + _RIGHT
    highest_eps = max((stage.flow.in_eps for stage in own if stage.flow), default=0.0)
    shapes = [*_lead(flow)]
    for place, stage in enumerate(own):
        x = _LEFT + place * (block + link)
        came = stage.flow.in_eps if stage.flow else 0.0
        shapes.append(_link(x - link if place else x - 26, x, came, highest_eps))
        shapes += [*_block(x, block, stage), *_drain(x + block / 2, stage, highest_eps)]
    shapes += [*_tail(own, end, highest_eps), *_cluster(cluster, end, flow)]
    label = _label(agent, own, flow)
    style = f"min-width:{width}px;max-width:{round(width * 1.2)}px"
    return picture(width, 216, label, shapes, style=style)


def _widths(count: int) -> tuple[float, float]:
    """Of a block and of the link after it: less of each the more operators there are, links first."""
    links = max(count - 1, 1)
    link = min(_LINKS[1], max(_LINKS[0], (_ROOM - count * _BLOCKS[1]) / links))
    return min(_BLOCKS[1], max(_BLOCKS[0], (_ROOM - links * link) / max(count, 1))), link


def _lead(flow: AgentQueryFlow | None) -> list[Shape]:
    if flow is None:
        return [text(0, 66, "nothing yet", "tb")]
    return [text(0, 66, f"{rate(flow.in_eps)} in", "tb"), text(0, 81, byte_rate(flow.in_bytes_s))]


def _link(x0: float, x1: float, eps: float, highest_eps: float) -> Shape:
    if not highest_eps or not eps:
        return path("M", x0, 41, "H", x1, stroke="line-control", stroke_dasharray="2 3")
    return rect(x0, 40, x1 - x0, max(1.5, _TALLEST * eps / highest_eps), fill="c-fill", opacity=0.55)


def _block(x: float, width: float, stage: PipelineStage) -> list[Shape]:
    share = stage.flow.share if stage.flow and stage.flow.share is not None else stage.factor or 0.0
    room = width - 16
    drained = "all here" if share >= 0.9995 else "all drained" if share < 0.0005 else f"{percent(1 - share)} drained"
    return [
        rect(x, 26, width, 92, rx=6, fill="surface", stroke="line-control"),
        text(x + 8, 44, shorten(stage.name, room + _LETTER, _LETTER), "tb"),
        rect(x + 8, 54, room, 12, rx=2, fill="c-drain"),
        rect(x + 8, 54, room * share, 12, rx=2, fill="c-estimate"),
        text(x + 8, 82, f"{stage.factor or 0:.2f}", "tb"),
        text(x + 8, 98, drained),
        text(x + width - 8, 82, rate(stage.flow.in_eps) if stage.flow else "", "t2", "end"),
    ]


def _drain(middle: float, stage: PipelineStage, highest_eps: float) -> list[Shape]:
    """From a block down to the cluster."""
    if stage.flow is None or not stage.flow.drained_eps or not highest_eps:
        return []
    width = max(2.0, 0.7 * _TALLEST * stage.flow.drained_eps / highest_eps)
    return [
        rect(middle - width / 2, 118, width, 52, fill="c-drain"),
        text(middle + width / 2 + 6, 140, rate(stage.flow.drained_eps), "t2"),
    ]


def _tail(own: Sequence[PipelineStage], end: float, highest_eps: float) -> list[Shape]:
    """The output of the last operator, which goes to the cluster too."""
    last = own[-1].flow if own else None
    if last is None or not last.out_eps or not highest_eps:
        return []
    height = max(1.5, _TALLEST * min(1.0, last.out_eps / highest_eps))
    data = path_data("M", end, 40, "h", 24 + height, "v", 130, "h", -height, "V", 40 + height, "H", end, "z")
    return [path(data, fill="c-fill", opacity=0.55)]


def _cluster(cluster: str, end: float, flow: AgentQueryFlow | None) -> list[Shape]:
    gets = (
        f"Cluster {cluster} gets {rate(flow.sent_eps)}, {byte_rate(flow.sent_bytes_s)}"
        if flow is not None
        else f"Cluster {cluster} has got nothing yet"
    )
    shapes = [
        rect(_LEFT - 12, 170, end + 92 - _LEFT, 26, rx=4, fill="sunken", stroke="line-strong"),
        text(_LEFT - 2, 187, gets, "t2"),
    ]
    if flow is not None and flow.in_bytes_s:
        shapes.append(text(end + 100, 182, f"{percent(_saved(flow))} of bytes", "tb"))
        shapes.append(text(end + 100, 196, "stay at the agent"))
    return shapes


def _saved(flow: AgentQueryFlow | None) -> float | None:
    return 1 - flow.sent_bytes_s / flow.in_bytes_s if flow is not None and flow.in_bytes_s else None


def _label(agent: str, own: Sequence[PipelineStage], flow: AgentQueryFlow | None) -> str:
    report = ", ".join(f"{stage.name} runs for {percent(_ran(stage))} of its records" for stage in own)
    if flow is None:
        return f"Pipeline on {agent}, which has not sent statistics yet: {report}."
    return f"Pipeline on {agent}: {report}. The cluster gets {rate(flow.sent_eps)} of {rate(flow.in_eps)}."


def _ran(stage: PipelineStage) -> float:
    return stage.flow.share if stage.flow and stage.flow.share is not None else stage.factor or 0.0


_STRIP, _PANEL, _ROW_GAP, _HEAD = 24, 58, 26, 18
_WIDE, _NARROW = PictureFrame("fig wide", 1040, 92, 132), PictureFrame("fig narrow", 366, 62, 12)


def settled_words(change: FactorChangeReport) -> str:
    """`2 epochs` until it settled, or `settling`."""
    epochs = change.get("epochs")
    return "settling" if epochs is None else counted(int(epochs), "epoch")


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
        changes: Sequence[FactorChangeReport] = (),
        *,
        threshold: float = 0.05,
        window_s: float | None = None,
        epoch_s: float = 1.0,
    ) -> None:
        self.name, self.operators, self.threshold, self.epoch_s = name, list(operators), threshold, epoch_s
        self.rows = [row for row in rows if len(row.load_factors) == len(self.operators)]
        self.window = max(1, round((window_s or 0.0) / epoch_s))
        self.window_s = window_s
        self.changes = [change for change in changes if self.rows and self._first_us <= change.get("epoch_us", 0)]

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
        """The picture in words."""
        span = counted(round(self._span_us / 1e6), "second")
        last = self.rows[-1]
        factors = ", ".join(
            f"{operator} {factor_text(p)}" for operator, p in zip(self.operators, last.load_factors, strict=True)
        )
        words = (
            f"{self.name} over the last {span}: load factors now {factors}; CPU {ratio(self.used[-1])} of "
            f"{ratio(self.budget[-1])} cores; {percent(self.overflow[-1])} of records overflow."
        )
        if not self.changes:
            return words
        last, changes = self.changes[-1], counted(len(self.changes), "change")
        if last.get("epochs") is None:
            return f"{words} The last of {changes} is settling."
        return f"{words} The last of {changes} settled in {settled_words(last)}."

    @property
    def svg(self) -> SafeString:
        return self._drawn(_WIDE) + self._drawn(_NARROW)

    # -- drawing
    def _drawn(self, frame: PictureFrame) -> SafeString:
        y, shapes = float(_HEAD), []
        for place, name in enumerate(self.operators):
            shapes += self._strip(frame, y, place, name)
            y += _STRIP + 4
        y += _ROW_GAP - 4
        for draw in (self._cpu, self._overflowing, self._bytes):
            shapes += draw(frame, y)
            y += _PANEL + _ROW_GAP
        base = y - _ROW_GAP
        marks = [self._mark(frame, base, change, place) for place, change in enumerate(self.changes)]
        axis = clock_axis(frame, base, self._first_us, self.rows[-1].epoch_us, partial(self._x, frame))
        return picture(frame.width, round(base + 20), self.finding, marks, shapes, axis, css=frame.css)

    def _x(self, frame: PictureFrame, epoch_us: float) -> float:
        return frame.left + frame.span * (epoch_us - self._first_us) / self._span_us

    def _steps(self, frame: PictureFrame, values: Sequence[float], y: Scale) -> str:
        """Values of the epochs as steps, as data of a path."""
        return step_data([(self._x(frame, row.epoch_us), y(v)) for row, v in zip(self.rows, values, strict=True)])

    def _strip(self, frame: PictureFrame, y: float, place: int, name: str) -> list[Shape]:
        """One operator's load factor: how much of the strip is filled is how much is processed here."""
        values = [row.load_factors[place] for row in self.rows]
        line = self._steps(frame, values, Scale(0, 1, begin=y + _STRIP, end=y))
        area = path_data(line, "V", y + _STRIP, "H", frame.left, "z")
        return [
            rect(frame.left, y, frame.span, _STRIP, fill="c-drain"),
            path(area, fill="c-estimate"),
            text(frame.left - 8, y + 16, shorten(name, frame.left - 8), "tx", "end"),
            *self._at_end(frame, y + 16, factor_text(min(max(values[-1], 0.0), 1.0)), "tb"),
        ]

    def _at_end(self, frame: PictureFrame, y: float, words: object, css: str = "") -> list[Shape]:
        """Right of the picture where there is room; phones have the numbers below."""
        return [text(frame.width - frame.right + 8, y, words, css)] if frame.right > 40 else []

    def _panel(
        self, frame: PictureFrame, y: float, title: str, top: float, value_format: Callable[[float], Quantity]
    ) -> list[Shape]:
        return [
            *(grid_line(frame.left, at, frame.left + frame.span) for at in (y, y + _PANEL)),
            text(frame.left - 8, y + 4, value_format(top), anchor="end"),
            text(frame.left - 8, y + _PANEL, "0", anchor="end"),
            text(frame.left, y - 6, title, "t2 halo"),
        ]

    def _cpu(self, frame: PictureFrame, y: float) -> list[Shape]:
        scale = _scale(y, _top([*self.used, *self.budget]))
        ends = [
            (scale(self.budget[-1]), "to", f"may use {ratio(self.budget[-1])}"),
            (scale(self.used[-1]), "ta", f"uses {ratio(self.used[-1])}"),
        ]
        return [
            *self._panel(frame, y, "CPU, cores", scale.high, lambda value: Quantity(ratio(value))),
            path(self._steps(frame, self.used, scale), css="est"),
            path(self._steps(frame, self.budget, scale), css="obj", fill="none"),
            *self._line_ends(frame, ends),
        ]

    def _overflowing(self, frame: PictureFrame, y: float) -> list[Shape]:
        scale = _scale(y, max(_top(self.overflow), 2 * self.threshold))
        width = max(1.5, 0.7 * frame.span / max(len(self.rows), 2))
        limit = scale(self.threshold)
        bars = [
            rect(self._x(frame, row.epoch_us) - width / 2, scale(share), width, y + _PANEL - scale(share), fill="bad")
            for row, share in zip(self.rows, self.overflow, strict=True)
            if share > 0
        ]
        return [
            *self._panel(frame, y, "Overflow, share of records", scale.high, percent),
            *bars,
            path("M", frame.left, limit, "h", frame.span, css="obj", stroke_dasharray="2 3"),
            *self._at_end(frame, limit + 4, f"congested from {percent(self.threshold)}", "to"),
        ]

    def _bytes(self, frame: PictureFrame, y: float) -> list[Shape]:
        scale = _scale(y, _top([*self.came, *self.sent]))
        title = f"Bytes a second, means over {scaled(self.window_s, 's')}" if self.window > 1 else "Bytes a second"
        ends = [
            (scale(self.came[-1]), "talt", f"come {byte_rate(self.came[-1])}"),
            (scale(self.sent[-1]), "ta", f"leave {byte_rate(self.sent[-1])}"),
        ]
        return [
            *self._panel(frame, y, title, scale.high, lambda value: byte_rate(value)),
            path(self._steps(frame, self.came, scale), css="alt"),
            path(self._steps(frame, self.sent, scale), css="est"),
            *self._line_ends(frame, ends),
        ]

    def _line_ends(self, frame: PictureFrame, ends: list[tuple[float, str, str]]) -> list[Shape]:
        """Words at the ends of two lines, moved apart where they would lie on each other."""
        (upper, css, words), (lower, other_css, other_words) = sorted(ends)
        gap = max(0.0, 13.0 - (lower - upper)) / 2
        return [
            *self._at_end(frame, upper - gap + 4, words, css),
            *self._at_end(frame, lower + gap + 4, other_words, other_css),
        ]

    def _mark(self, frame: PictureFrame, base: float, change: FactorChangeReport, place: int) -> list[Shape]:
        """A dotted line at a change; its words only where they do not run into the next one's."""
        x = self._x(frame, change["epoch_us"])
        line = path("M", x, _HEAD - 4, "V", base, stroke="ink-3", stroke_dasharray="2 3")
        words = settled_words(change)
        if change.get("epochs") is not None:
            words = f"settled in {words}"
        after = self.changes[place + 1 :]
        ends = self._x(frame, after[0]["epoch_us"]) if after else frame.width
        return [line] if x + len(words) * 5.6 > ends else [line, text(x + 3, 10, words)]


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
    return round_up(highest, nice_step(highest / 4) if highest > 0 else 0.25)


def _scale(y: float, top: float) -> Scale:
    """Of a panel whose upper edge is `y`."""
    return Scale(0, top, begin=y + _PANEL, end=y)
