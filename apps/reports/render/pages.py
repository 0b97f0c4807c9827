"""What every page of the PDF has around its text: running head, foot with page numbers."""

from __future__ import annotations

from typing import Any

from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas

from apps.reports.drawings.ink import REGULAR, ink

__all__ = ["NumberedCanvas"]


class NumberedCanvas(Canvas):
    """Writes "Page 2 of 5", which is known once the last page is: pages are kept until then."""

    def __init__(self, *arguments: Any, head: str, foot: str, margin: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head, self._foot, self._margin = head, foot, margin
        self._pages: list[dict[str, Any]] = []

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
        self.setFillColor(ink("ink-3"))
        self.setStrokeColor(ink("line-strong"))
        self.setLineWidth(0.5)
        if number > 1:
            self.drawString(left, height - 11 * mm, self._head)
            self.line(left, height - 13 * mm, right, height - 13 * mm)
        else:
            self.drawString(left, height - 11 * mm, "Sluice")
        self.drawString(left, 9 * mm, self._foot)
        self.drawRightString(right, 9 * mm, f"Page {number} of {count}")
