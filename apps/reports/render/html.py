"""A report as HTML: the part that the console's page shows, and a document of its own for mails and downloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from apps.reports.blocks import Block, ReportHeading, ReportPicture, ReportStats, ReportTable, ReportText
from apps.reports.drawings import PALETTE, Drawing, key_drawing
from apps.reports.outline.report import report_blocks, title_lines
from apps.ui.svg.shapes import shape, svg_text

__all__ = ["html_document", "html_parts"]

_WIDTH = 760.0
_KINDS = {
    ReportHeading: "heading",
    ReportText: "text",
    ReportStats: "stats",
    ReportTable: "table",
    ReportPicture: "picture",
}


def html_parts(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """The blocks as sections for `reports/body.html`: each begins with its heading (the first may have none)."""
    sections: list[dict[str, Any]] = [{"heading": None, "parts": []}]
    for block in blocks:
        if isinstance(block, ReportHeading):
            sections.append({"heading": block, "parts": []})
        else:
            sections[-1]["parts"].append({"kind": _KINDS[type(block)], "block": block, **_extra(block)})
    return [section for section in sections if section["heading"] or section["parts"]]


def _extra(block: Block) -> dict[str, Any]:
    if isinstance(block, ReportPicture):
        return {"svg": _svg(block.draw(_WIDTH)), "key": _svg(key_drawing(block.key)) if block.key else ""}
    if isinstance(block, ReportTable):
        return {"rows": [list(zip(block.columns, row, strict=True)) for row in block.rows[: block.shown]]}
    return {}


def _svg(drawing: Drawing) -> SafeString:
    """Its size is given, so that mail programs show it as large as print."""
    view = f"0 0 {drawing.width:g} {drawing.height:g}"
    return svg_text(shape("svg", drawing.shapes, width=drawing.width, height=drawing.height, viewBox=view))


def html_document(facts: dict[str, Any], link: str = "") -> str:
    """The whole report as one file that needs nothing else; `link` leads to the report's page."""
    context = {
        "facts": facts,
        "title": title_lines(facts),
        "sections": html_parts(report_blocks(facts)),
        "palette": PALETTE,
        "link": link,
    }
    return render_to_string("reports/document.html", context)
