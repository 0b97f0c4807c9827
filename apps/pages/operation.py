"""Sluice itself, for administrators: what it is made of, how that is, and what to do."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.operation.conditions import Condition, operation_conditions
from apps.pages.base import Page
from apps.ui.marks import state_mark

__all__ = ["OperationPage"]

_MARKS = {
    "ok": ("holds", "In order"),
    "watch": ("at_risk", "To look at"),
    "bad": ("breached", "Out of order"),
    "unknown": ("not_known", "Not known"),
}


class OperationPage(Page):
    """`/settings/operation/`."""

    template_name = "pages/operation.html"
    scope = "admin"

    def get(self, request: HttpRequest) -> HttpResponse:
        report = operation_conditions()
        groups: dict[str, list[tuple[Condition, str]]] = {}
        for condition in report.conditions:
            mark = state_mark(*_MARKS[condition.standing])
            groups.setdefault(condition.group, []).append((condition, mark))
        return self.page({"report": report, "mark": state_mark(*_MARKS[report.standing]), "groups": groups})
