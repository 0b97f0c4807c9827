"""Renderings of a report's blocks: HTML, PDF (A4, running heads, readable in grey), and CSV tables in one zip file."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from xml.sax.saxutils import escape

from django.template.loader import render_to_string
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    CondPageBreak,
    Flowable,
    Frame,
    KeepTogether,
    PageTemplate,
    Paragraph,
    Spacer,
)
from reportlab.platypus import Table as PdfTable

from apps.reports.blocks import (
    Block,
    ReportCell,
    ReportColumn,
    ReportHeading,
    ReportPicture,
    ReportStats,
    ReportTable,
    ReportText,
)
from apps.reports.drawings import key_drawing, state_drawing
from apps.reports.report import AnyReport
from apps.ui.numbers import Quantity
from apps.ui.svg.pdf import BOLD, PALETTE, REGULAR, colour, load_fonts, pdf_drawing
from apps.ui.tables import csv_cell

__all__ = ["csv_zip", "html_document", "html_sections", "pdf_document"]

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same report gives the same file


def html_sections(blocks: Iterable[Block]) -> list[tuple[ReportHeading | None, list[Block]]]:
    """Blocks below their heading, for `reports/body.html`; the first of a report may have none."""
    sections: list[tuple[ReportHeading | None, list[Block]]] = [(None, [])]
    for block in blocks:
        if isinstance(block, ReportHeading):
            sections.append((block, []))
        else:
            sections[-1][1].append(block)
    return [(heading, below) for heading, below in sections if heading or below]


def html_document(facts: AnyReport, link: str = "") -> str:
    """The whole report as one file that needs nothing else; `link` leads to the report's page."""
    context = {"facts": facts, "sections": html_sections(facts.blocks), "palette": PALETTE, "link": link}
    return render_to_string("reports/document.html", context)


def csv_zip(blocks: Iterable[Block]) -> bytes:
    """One file per table, named by its key."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for block in blocks:
            if isinstance(block, ReportTable):
                entry = zipfile.ZipInfo(f"{block.key}.csv", _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, _table_csv(block))
    return file.getvalue()


def _table_csv(table: ReportTable[Any]) -> str:
    """Every row with its raw values; texts that a spreadsheet would take for a formula are quoted."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow([column.csv for column in table.columns])
    for row in table.rows:
        values = (column.raw(row) for column in table.columns)
        rows.writerow([csv_cell(v.isoformat() if isinstance(v, datetime) else v) for v in values])
    return text.getvalue()


class NumberedCanvas(Canvas):
    """Writes "Page 2 of 5", which is known once the last page is: pages are kept until then."""

    def __init__(self, *arguments: Any, head: str, foot: str, margin: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head, self._foot, self._margin = head, foot, margin
        self._pages: list[Any] = []

    def showPage(self) -> None:  # noqa: N802 - reportlab's name
        self._pages.append(dict(self.__dict__))
        self._startPage()

    def save(self) -> None:
        for number, page in enumerate(self._pages, start=1):
            self.__dict__.update(page)
            self._around(number, len(self._pages))
            super().showPage()
        super().save()

    def _around(self, number: int, count: int) -> None:
        width, height = self._pagesize
        left, right = self._margin, width - self._margin
        self.setFont(REGULAR, 8)
        self.setFillColor(colour("ink-3"))
        self.setStrokeColor(colour("line-strong"))
        self.setLineWidth(0.5)
        if number > 1:
            self.drawString(left, height - 11 * mm, self._head)
            self.line(left, height - 13 * mm, right, height - 13 * mm)
        else:
            self.drawString(left, height - 11 * mm, "Sluice")
        self.drawString(left, 9 * mm, self._foot)
        self.drawRightString(right, 9 * mm, f"Page {number} of {count}")


_MARGIN = 17 * mm
_WIDTH = A4[0] - 2 * _MARGIN


def _style(name: str, size: float, ink: str, lead: float = 1.32, font: str = REGULAR, **more: Any) -> ParagraphStyle:
    return ParagraphStyle(
        name, fontName=font, fontSize=size, leading=size * lead, textColor=colour(ink), splitLongWords=1, **more
    )


_TITLE = _style("title", 22, "ink", 1.15, BOLD)
_FINDING = _style("finding", 13.5, "ink-2", 1.38)
_HEADING = _style("heading", 13, "ink", 1.2, BOLD)
_TEXT = _style("text", 9.5, "ink-2", 1.4)
_QUIET = _style("quiet", 8.5, "ink-3", 1.4)
_SMALL = _style("small", 8, "ink-3", 1.3)
_NAME = _style("name", 8, "ink-3", 1.25)
_VALUE = _style("value", 18, "ink", 1.2, BOLD)
_CELL = _style("cell", 8.5, "ink-2", 1.25)
_STRONG = _style("strong", 8.5, "ink", 1.25, BOLD)
_HEAD = _style("head", 7.5, "ink-3", 1.2)
_RIGHT = {
    style.name: ParagraphStyle(f"{style.name}-right", parent=style, alignment=TA_RIGHT)
    for style in (_CELL, _STRONG, _HEAD)
}


def pdf_document(facts: AnyReport) -> bytes:
    """The whole report as PDF. The same facts give the same bytes."""
    load_fonts()
    file = io.BytesIO()
    frame = Frame(
        _MARGIN, 16 * mm, _WIDTH, A4[1] - 34 * mm, leftPadding=0, rightPadding=0, topPadding=0, bottomPadding=0
    )
    document = BaseDocTemplate(
        file,
        pagesize=A4,
        pageTemplates=[PageTemplate("page", [frame])],
        title=f"{facts.name}, {facts.cluster.name}",
        author="Sluice",
        subject=facts.finding,
        invariant=1,
    )
    head = f"{facts.name} · {facts.cluster.name}"
    foot = dict(facts.title)["Written"]
    story = [*_title(facts), *_story(facts.blocks)]
    document.build(story, canvasmaker=lambda *a, **k: NumberedCanvas(*a, head=head, foot=foot, margin=_MARGIN, **k))
    return file.getvalue()


def _title(facts: AnyReport) -> list[Flowable]:
    """Title, who and when, and the finding in large type."""
    lines = [[Paragraph(escape(name), _SMALL), Paragraph(escape(value), _TEXT)] for name, value in facts.title]
    block = PdfTable(lines, colWidths=[20 * mm, _WIDTH - 20 * mm], hAlign="LEFT")
    block.setStyle(
        [
            ("LEFTPADDING", (0, 0), (-1, -1), 0),
            ("TOPPADDING", (0, 0), (-1, -1), 0.5),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 0.5),
            ("VALIGN", (0, 0), (-1, -1), "BASELINE"),
        ]
    )
    return [
        Paragraph(escape(facts.name), _TITLE),
        Spacer(1, 6),
        block,
        Spacer(1, 12),
        Paragraph(escape(facts.finding), _FINDING),
        Spacer(1, 12),
    ]


def _story(blocks: Iterable[Block]) -> list[Flowable]:
    """Blocks as flowables; a heading stays with what follows it."""
    story: list[Flowable] = []
    waiting: list[Flowable] = []
    for block in blocks:
        if isinstance(block, ReportHeading):
            waiting = [CondPageBreak(40 * mm), Spacer(1, 12), _heading(block), Spacer(1, 5)]
            continue
        flowables = _flowables(block)
        if isinstance(block, ReportPicture):
            story.append(KeepTogether([*waiting[1:], *flowables]))
        else:
            story += waiting + flowables
        waiting = []
    return story + waiting


def _heading(block: ReportHeading) -> Flowable:
    grey = colour("ink-3").hexval().replace("0x", "#")
    font = f'<font name="{REGULAR}" size="8.5" color="{grey}">{escape(block.note)}</font>'
    note = f"&nbsp;&nbsp;{font}" if block.note else ""
    row = PdfTable([[Paragraph(escape(block.text) + note, _HEADING)]], colWidths=[_WIDTH])
    row.setStyle(
        [
            ("LINEABOVE", (0, 0), (-1, 0), 0.9, colour("ink")),
            ("LEFTPADDING", (0, 0), (-1, -1), 0),
            ("TOPPADDING", (0, 0), (-1, -1), 5),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 0),
        ]
    )
    return row


def _flowables(block: Block) -> list[Flowable]:
    match block:
        case ReportText():
            return [Paragraph(escape(block.text), _QUIET if block.quiet else _TEXT), Spacer(1, 6)]
        case ReportStats():
            return [_stats(block), Spacer(1, 4)]
        case ReportTable():
            return _table(block)
        case ReportPicture():
            return [*_picture(block), Spacer(1, 8)]
    return []


def _picture(block: ReportPicture) -> list[Flowable]:
    drawing = pdf_drawing(block.draw(_WIDTH))
    parts: list[Flowable] = [Paragraph(escape(block.finding), _SMALL), Spacer(1, 3), drawing]
    if block.key:
        parts += [Spacer(1, 2), pdf_drawing(key_drawing(block.key))]
    return parts


def _stats(block: ReportStats) -> Flowable:
    cells = [
        [
            Paragraph(escape(row.name), _NAME),
            Paragraph(_quantity(row.value), _VALUE),
            Paragraph(escape(row.note), _NAME),
        ]
        for row in block.rows
    ]
    band = PdfTable([cells], colWidths=[_WIDTH / len(cells)] * len(cells))
    band.setStyle(
        [
            ("BOX", (0, 0), (-1, -1), 0.6, colour("line-strong")),
            ("LINEAFTER", (0, 0), (-2, -1), 0.6, colour("line")),
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
            ("LEFTPADDING", (0, 0), (-1, -1), 9),
            ("TOPPADDING", (0, 0), (-1, -1), 6),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 8),
        ]
    )
    return band


def _quantity(value: Quantity) -> str:
    """The unit is written smaller."""
    unit = f'<font name="{REGULAR}" size="9"> {escape(value.unit)}</font>' if value.unit else ""
    return f"{escape(value.text)}{unit}"


def _table(block: ReportTable[Any]) -> list[Flowable]:
    """Rows as far as they are shown; the head comes again on every page."""
    widths = _widths(block.columns)
    head = [Paragraph(escape(column.label), _RIGHT["head"] if column.num else _HEAD) for column in block.columns]
    rows = [[_cell(cell, column) for column, cell in row] for row in block.shown]
    table = PdfTable([head, *rows], colWidths=widths, repeatRows=1)
    table.setStyle(_lines())
    parts: list[Flowable] = [table]
    if block.left_out:
        parts.append(Paragraph(f"And {block.left_out} more; the CSV file has every row.", _SMALL))
    return [*parts, Spacer(1, 8)]


def _widths(columns: Sequence[ReportColumn[Any]]) -> list[float]:
    total = sum(column.width for column in columns)
    return [_WIDTH * column.width / total for column in columns]


def _lines() -> list[Any]:
    return [
        ("LINEBELOW", (0, 0), (-1, 0), 0.7, colour("line-strong")),
        ("LINEBELOW", (0, 1), (-1, -1), 0.4, colour("line")),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("VALIGN", (0, 0), (-1, 0), "BOTTOM"),
        ("LEFTPADDING", (0, 0), (-1, -1), 3),
        ("RIGHTPADDING", (0, 0), (-1, -1), 3),
        ("LEFTPADDING", (0, 0), (0, -1), 0),
        ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
        ("TOPPADDING", (0, 0), (-1, -1), 2.6),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
    ]


def _cell(cell: ReportCell, column: ReportColumn[Any]) -> Flowable:
    style = _STRONG if cell.strong else _CELL
    text = Paragraph(escape(cell.text), _RIGHT[style.name] if column.num else style)
    if not cell.state:
        return text
    both = PdfTable([[pdf_drawing(state_drawing(cell.state)), text]], colWidths=[11, None])
    both.setStyle(
        [
            ("LEFTPADDING", (0, 0), (-1, -1), 0),
            ("RIGHTPADDING", (0, 0), (-1, -1), 0),
            ("TOPPADDING", (0, 0), (-1, -1), 0),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 0),
            ("VALIGN", (0, 0), (0, 0), "MIDDLE"),
        ]
    )
    return both
