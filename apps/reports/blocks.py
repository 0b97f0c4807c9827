"""Elements of a report on any medium: headings, sentences, stats, tables, pictures.

`outline` builds the blocks from the facts; HTML, PDF and CSV are made of the blocks, and so agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.ui.numbers import Quantity

__all__ = [
    "Block",
    "ReportCell",
    "ReportColumn",
    "ReportHeading",
    "ReportPicture",
    "ReportStat",
    "ReportStats",
    "ReportTable",
    "ReportText",
]


@dataclass(frozen=True)
class ReportHeading:
    """Begins a section; `key` names it in addresses and files."""

    key: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class ReportText:
    """A sentence or two. `quiet` is for what is only said for completeness."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class ReportStat:
    name: str
    value: Quantity
    note: str


@dataclass(frozen=True)
class ReportStats:
    """A few values in one band."""

    rows: Sequence[ReportStat]


@dataclass(frozen=True)
class ReportCell:
    """Shown text, and the raw value for CSV. `state` draws the shape of a state before the text."""

    text: str
    raw: Any = None
    state: str = ""
    strong: bool = False


@dataclass(frozen=True)
class ReportColumn:
    """`csv` names it in CSV, with its unit; `width` is its share of a printed line."""

    label: str
    csv: str
    num: bool = False
    width: float = 1.0


@dataclass(frozen=True)
class ReportTable:
    """Rows of cells. Print and page show the first `shown`; CSV has all."""

    key: str
    caption: str
    columns: Sequence[ReportColumn]
    rows: Sequence[Sequence[ReportCell]]
    shown: int = 40

    @property
    def left_out(self) -> int:
        return max(0, len(self.rows) - self.shown)


@dataclass(frozen=True)
class ReportPicture:
    """A drawing: `draw(width)` gives a `reportlab.graphics` drawing so many points wide."""

    finding: str
    draw: Callable[[float], Any]
    key: Sequence[tuple[str, str]] = field(default_factory=tuple)


Block = ReportHeading | ReportText | ReportStats | ReportTable | ReportPicture
