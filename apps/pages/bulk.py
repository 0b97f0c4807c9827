"""Pages that change many rows of a list at once: chosen by their boxes or by the list's filters, confirmed, reported.

class NodesChange(BulkPage):
    noun, nouns = "node", "nodes"
    back = "pages:fleet"
    address = "pages:nodes-change"
    actions = (BulkAction("drain", "Drain", "They keep what they run …", node_drain, "node"), …)

    def rows(self, names: Sequence[str]) -> QuerySet[Node]: …
    def table(self) -> Table: …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

from apps.core.bulk import RowOutcome, change_rows, check_row_count
from apps.core.errors import Malformed
from apps.pages.base import ClusterPage, done
from apps.ui.tables import Table
from engine.words import counted

__all__ = ["BulkAction", "BulkPage", "BulkQuestion"]


@dataclass(frozen=True)
class BulkAction:
    """Something that is done to each chosen row.

    `service` takes the row by `keyword`, and the values of `fields`, which are those of the page's form for one row.
    `past` completes "2 nodes …".
    """

    key: str
    label: str
    past: str
    consequence: str
    service: Callable[..., object]
    keyword: str
    icon: str = ""
    is_hard_to_undo: bool = False
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class BulkQuestion:
    """Something that another page asks the rest of: it is opened with the chosen rows as its parameter."""

    key: str
    label: str
    page: str
    parameter: str
    icon: str = ""


class BulkPage(ClusterPage):
    """POST: without `confirmed` the question, which counts and names the rows; with it what came of each.

    `row` names the chosen ones. `all_found` stands for every row that passes the list's filters, given as
    `parameters`; the question then names them, so that what is confirmed is what is done.
    """

    http_method_names = ["post"]
    noun = nouns = ""
    back = ""  #: name of the page with the list
    address = ""  #: name of this page
    form_class: ClassVar[type[forms.BaseForm]] = forms.Form  #: of one row
    actions: ClassVar[tuple[BulkAction | BulkQuestion, ...]] = ()

    def rows(self, names: Sequence[str]) -> Mapping[str, Model]:
        """{name: row} of those that exist."""
        raise NotImplementedError

    def table(self) -> Table:
        """The list, filtered by the request."""
        raise NotImplementedError

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        action, names = self.action, self.names()
        check_row_count(len(names), self.nouns)
        if isinstance(action, BulkQuestion):
            url = f"{reverse(action.page, args=[slug])}?{urlencode({action.parameter: ' '.join(names)})}"
            return HttpResponseClientRedirect(url) if getattr(request, "htmx", False) else HttpResponseRedirect(url)
        form = self.form(action, request.POST if "confirmed" in request.POST else None)
        if "confirmed" not in request.POST or not form.is_valid():
            return self.ask(action, names, form, 422 if form.errors else 200)
        change = lambda row: action.service(**{action.keyword: row}, **form.cleaned_data)  # noqa: E731
        outcomes = change_rows(names, self.rows(names), change)
        refused = [outcome for outcome in outcomes if outcome.refusal is not None]
        if not refused:
            return done(request, f"{counted(len(names), self.noun, self.nouns)} {action.past}.", self.back, slug)
        return self.report(action, outcomes, refused)

    @property
    def action(self) -> BulkAction | BulkQuestion:
        key = self.request.POST.get("change", "")
        found = next((action for action in self.actions if action.key == key), None)
        if found is None:
            allowed = ", ".join(action.key for action in self.actions)
            raise Malformed(f"change is {key[:40]!r}; allowed: {allowed}.", [("change", f"{key[:40]!r} is not known")])
        return found

    def names(self) -> list[str]:
        """The chosen rows, or all that pass the filters."""
        data = self.request.POST
        if "all_found" not in data:
            return list(dict.fromkeys(data.getlist("row")))
        self.request.GET = QueryDict(data.get("parameters", ""))
        table = self.table()
        return [str(table.identify(row)) for row in table.found]

    def form(self, action: BulkAction, data: Any) -> forms.Form:
        form = forms.Form(data)
        form.fields |= {name: deepcopy(self.form_class.base_fields[name]) for name in action.fields}
        return form

    def ask(self, action: BulkAction, names: list[str], form: forms.Form, status: int) -> HttpResponse:
        """The question: a dialog for htmx, else a page."""
        is_part = bool(getattr(self.request, "htmx", False))
        template = "pages/bulk/dialog.html" if is_part else "pages/bulk/ask.html"
        return self.page({**self.shared(action, len(names)), "names": names, "form": form}, status, template)

    def report(
        self, action: BulkAction, outcomes: list[RowOutcome[str]], refused: list[RowOutcome[str]]
    ) -> HttpResponse:
        """Every row with what came of it; nothing was done to those that were refused."""
        context = {"outcomes": outcomes, "refused": refused, "changed": len(outcomes) - len(refused)}
        return self.page({**self.shared(action, len(outcomes)), **context}, 409, "pages/bulk/report.html")

    def shared(self, action: BulkAction, count: int) -> dict[str, object]:
        return {
            "action": action,
            "what": counted(count, self.noun, self.nouns),
            "noun": self.noun,
            "nouns": self.nouns,
            "back": reverse(self.back, args=[self.slug]),
            "address": reverse(self.address, args=[self.slug]),
        }
