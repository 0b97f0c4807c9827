"""Operators as blocks on their cores: as wide as their share of the core, told apart by letter, edge and tint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.ui.numbers import percent, ratio

__all__ = ["Block", "Letters", "blocks_bar", "scale_of"]

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
    """Letters of queries in the order in which a picture meets them; with it, tint and edge."""

    order: dict[str, int] = field(default_factory=dict)

    def index(self, query: str) -> int:
        return self.order.setdefault(query, len(self.order))

    def letter(self, query: str) -> str:
        """A … Z, then A1 …"""
        round_, place = divmod(self.index(query), len(ascii_uppercase))
        return f"{ascii_uppercase[place]}{round_ or ''}"

    def style(self, query: str) -> str:
        return f"q{self.index(query) % _STYLES}"

    @property
    def key(self) -> SafeString:
        """The key below the picture, in the order of the letters."""
        rows = ((self.style(query), self.letter(query), query) for query in self.order)
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
