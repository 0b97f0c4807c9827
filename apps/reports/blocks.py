"""Elements of a report on any medium: moments, headings, sentences, stats, tables, pictures.

Sections build the blocks from their facts; HTML, PDF and CSV are made of the blocks, and so agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar
from zoneinfo import ZoneInfo

from django.utils.safestring import SafeString

from apps.reports.drawings import key_drawing
from apps.ui.numbers import MISSING, Quantity
from apps.ui.svg.shapes import Drawing

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
    "local_day",
    "local_time",
    "or_missing",
]

Row = TypeVar("Row")
_HTML_WIDTH = 760.0


def local_time(moment: datetime | None, zone: ZoneInfo) -> str:
    """21 Nov 2026, 14:32 in the report's own zone."""
    return MISSING if moment is None else f"{local_day(moment, zone)} {moment.astimezone(zone):%Y, %H:%M}"


def local_day(moment: datetime, zone: ZoneInfo) -> str:
    """21 Nov."""
    local = moment.astimezone(zone)
    return f"{local.day} {local:%b}"


def or_missing(text: str | None) -> str:
    return text or MISSING


@dataclass(frozen=True)
class ReportHeading:
    """Begins a section; `key` names it in addresses and files."""

    key: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class ReportText:
    """A sentence or two. `quiet` is for what is only said for completeness."""

    kind: ClassVar[str] = "text"

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

    kind: ClassVar[str] = "stats"

    rows: Sequence[ReportStat]


@dataclass(frozen=True)
class ReportCell:
    """Shown text; `state` draws the shape of a state before it."""

    text: str
    state: str = ""
    strong: bool = False


@dataclass(frozen=True)
class ReportColumn(Generic[Row]):
    """A column and its cells: CSV writes the row's `field` (that of the name `csv`, which has its unit) as it is.

    Print and page show `write(field)`, or `show(row)` where the text takes more of the row. `width` is the column's
    share of a printed line.
    """

    label: str
    csv: str
    field: str = ""
    write: Callable[[Any], object] = str
    show: Callable[[Row], object] | None = None
    state: Callable[[Row], str] | None = None
    strong: bool | Callable[[Row], bool] = False
    num: bool = False
    width: float = 1.0

    def raw(self, row: Row) -> Any:
        return getattr(row, self.field or self.csv)

    def cell(self, row: Row) -> ReportCell:
        text = self.write(self.raw(row)) if self.show is None else self.show(row)
        strong = self.strong(row) if callable(self.strong) else self.strong
        return ReportCell(str(text), self.state(row) if self.state is not None else "", strong)


@dataclass(frozen=True)
class ReportTable(Generic[Row]):
    """Rows, and columns that write them. Print and page show the first `limit`; CSV has all."""

    kind: ClassVar[str] = "table"

    key: str
    caption: str
    columns: Sequence[ReportColumn[Row]]
    rows: Sequence[Row]
    limit: int = 40

    @property
    def shown(self) -> Iterator[list[tuple[ReportColumn[Row], ReportCell]]]:
        for row in self.rows[: self.limit]:
            yield [(column, column.cell(row)) for column in self.columns]

    @property
    def left_out(self) -> int:
        return max(0, len(self.rows) - self.limit)


@dataclass(frozen=True)
class ReportPicture:
    """A drawing so many points wide, and the key below it: (sample, words)."""

    kind: ClassVar[str] = "picture"

    finding: str
    draw: Callable[[float], Drawing]
    key: Sequence[tuple[str, str]] = ()

    @property
    def svg(self) -> SafeString:
        return self.draw(_HTML_WIDTH).svg

    @property
    def key_svg(self) -> str:
        return key_drawing(self.key).svg if self.key else ""


Block = ReportHeading | ReportText | ReportStats | ReportTable[Any] | ReportPicture
