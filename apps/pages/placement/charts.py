"""Charts of placement: operators as blocks on their cores, and the curve of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from string import ascii_uppercase
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.ui.numbers import Quantity, as_float, percent, ratio, seconds
from apps.ui.svg.axes import grid_line, step_data
from apps.ui.svg.scales import Scale
from apps.ui.svg.shapes import Shape, circle, path, picture, text

__all__ = ["Block", "Letters", "blocks_bar", "scale_of", "search_curve"]


_STYLES = 6  # tints and edges in static/css/placement.css
_LABELLED = 0.045  # of the bar's width: narrower blocks have no room for a letter
_WIDEST = 2.0


@dataclass(frozen=True)
class Block:
    """An operator, or a share of one, on a core. `load` is its mean load as a share of the core; None: not known."""

    query: str
    operator: str
    load: float | None
    fraction: float = 1.0
    moved: str = ""  #: "gone" or "come"

    @property
    def words(self) -> str:
        """checkout/parse (40% of it): 0.31 of the core, leaves."""
        part = f" ({percent(self.fraction)} of it)" if self.fraction < 1 else ""
        load = f": {ratio(self.load)} of the core" if self.load is not None else ""
        moved = {"gone": ", leaves", "come": ", comes here"}.get(self.moved, "")
        return f"{self.query}/{self.operator}{part}{load}{moved}"


@dataclass
class Letters:
    """Letters of queries, with tint and edge: those of `names` by their place in it, others after them.

    With the queries of a cluster in the order of their creation, a query has the same letter on every page.
    """

    names: Sequence[str] = ()
    drawn: set[str] = field(default_factory=set)

    @cached_property
    def order(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def index(self, query: str) -> int:
        self.drawn.add(query)
        return self.order.setdefault(query, len(self.order))

    def letter(self, query: str) -> str:
        """A … Z, then A1 …"""
        round_, place = divmod(self.index(query), len(ascii_uppercase))
        return f"{ascii_uppercase[place]}{round_ or ''}"

    def style(self, query: str) -> str:
        return f"q{self.index(query) % _STYLES}"

    @property
    def key(self) -> SafeString:
        """The key below the picture: what it draws, in the order of the letters."""
        drawn = sorted(self.drawn, key=self.index)
        rows = ((self.style(query), self.letter(query), query) for query in drawn)
        return format_html_join("", '<span><i class="bk {}">{}</i>{}</span>', rows)


def scale_of(cores: Iterable[Sequence[Block]]) -> float:
    """The load at the right edge of every bar: the fullest core, at least a whole one, at most two."""
    fullest = max((sum(block.load or 0.0 for block in blocks) for blocks in cores), default=0.0)
    return min(max(1.0, fullest), _WIDEST)


def blocks_bar(name: str, blocks: Sequence[Block], letters: Letters, scale: float) -> SafeString:
    """The blocks of one core, the largest first; a line marks the core's capacity where the scale goes beyond it."""
    ranked = sorted(blocks, key=lambda block: (-(block.load or 0.0), block.query, block.operator))
    widths = _widths(ranked, scale)
    spans = format_html_join(
        "",
        '<i class="bk {} {}" style="width:{}%" title="{}">{}</i>',
        (
            (letters.style(block.query), block.moved, f"{100 * width:.2f}", block.words, _label(block, width, letters))
            for block, width in zip(ranked, widths, strict=True)
        ),
    )
    line = format_html('<b style="left:{}%"></b>', f"{100 / scale:.2f}") if scale > 1 else ""
    said = "; ".join(block.words for block in ranked) or "empty"
    return format_html('<div class="blocks" role="img" aria-label="{}: {}">{}{}</div>', name, said, spans, line)


def _widths(blocks: Sequence[Block], scale: float) -> list[float]:
    """Shares of the bar; equal ones where loads are not known. What would go beyond the edge is pressed into it."""
    if any(block.load is None for block in blocks):
        return [min(0.12, 1 / len(blocks))] * len(blocks)
    widths = [(block.load or 0.0) / scale for block in blocks]
    total = sum(widths)
    return [width / total for width in widths] if total > 1 else widths


def _label(block: Block, width: float, letters: Letters) -> SafeString | str:
    if width < _LABELLED:
        return ""
    return format_html("<b>{}</b> {}", letters.letter(block.query), block.operator)


_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 12.0, 12.0, 22.0
_TICKS = 4
_MAX_POINTS = 240

ValueFormat = Callable[[Any], Quantity]


def search_curve(
    trace: Sequence[Sequence[Any]],
    bound: Any,
    budget_s: Any,
    *,
    share: bool = False,
    width: int = 1040,
    height: int = 200,
) -> SafeString:
    """Steps that go down, and the bound dotted below them. Empty without a value.

    `trace` holds (elapsed seconds, value, …) with the value in seconds, or as a share of an objective.
    """
    points = [(float(row[0]), float(row[1])) for row in trace if as_float(row[0]) is not None]
    if not points:
        return SafeString("")
    points = points[:: -(-len(points) // _MAX_POINTS)] + points[-1:]
    limit, value_format = as_float(bound), percent if share else seconds
    span_s = max(points[-1][0], as_float(budget_s) or 0.0, 1e-9)
    top = max(value for _, value in points) * 1.08 or 1.0

    x = Scale(0, span_s, begin=_LEFT, end=width - _RIGHT)
    y = Scale(0, top, begin=height - _BOTTOM, end=_TOP)
    last, first = value_format(points[-1][1]), value_format(points[0][1])
    label = f"Best value {last} after {seconds(points[-1][0])}, at first {first}"
    if limit is not None:
        label = f"{label}, bound {value_format(limit)}"
    return picture(
        width,
        height,
        label,
        _grid(top, y, width, value_format),
        _times(span_s, x, height),
        _bound(limit, y, width, value_format),
        _steps(points, x, y),
        css="fig curve",
    )


def _grid(top: float, y: Scale, width: int, value_format: ValueFormat) -> list[Shape]:
    shapes = []
    for tick in range(_TICKS + 1):
        value = top / 1.08 * tick / _TICKS
        words = value_format(value) if tick == _TICKS else value_format(value).text
        shapes.append(grid_line(_LEFT, y(value), width - _RIGHT))
        shapes.append(text(_LEFT - 6, y(value) + 4, words, anchor="end"))
    return shapes


def _times(span_s: float, x: Scale, height: int) -> list[Shape]:
    anchors = {0.0: "start", span_s / 2: "middle", span_s: "end"}
    return [text(x(at), height - 6, seconds(at), anchor=anchor) for at, anchor in anchors.items()]


def _bound(limit: float | None, y: Scale, width: int, value_format: ValueFormat) -> list[Shape]:
    if limit is None:
        return []
    line: dict[str, str | float] = {"stroke": "c-third", "stroke_width": 2, "stroke_dasharray": "2 4"}
    return [
        path("M", _LEFT, y(limit), "H", width - _RIGHT, **line),
        text(width - _RIGHT, y(limit) - 5, f"Bound {value_format(limit)}", "halo", "end"),
    ]


def _steps(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> list[Shape]:
    places = [(x(at), y(value)) for at, value in points]
    return [path(step_data(places), css="est"), circle(*places[-1], 3, fill="c-estimate")]
