"""Base of the pages: scope, the cluster of the address, answers to forms, and visits, which the search offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urljoin

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import Resolver404, resolve
from django.views import View

from apps.accounts.permissions import ScopeRequiredMixin
from apps.core.errors import Conflict, Forbidden, Impossible, Malformed, Missing
from apps.core.reach import AskedOn
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.ledger.entries import refusal_noted
from apps.ui.feedback import toast
from apps.ui.forms import show_faults
from apps.ui.tables import Table

__all__ = ["ClusterPage", "Page", "done", "recent_of", "try_service"]

Row = TypeVar("Row", bound=Model)


class Page(ScopeRequiredMixin, View):
    """A page of the console. `template_name` is rendered by `page`; a `table` asked for as CSV is answered as that."""

    template_name = ""

    def page(self, context: Mapping[str, object], status: int = 200, template: str = "") -> HttpResponse:
        table = context.get("table")
        if isinstance(table, Table) and table.wants_csv:
            return table.csv_response()  # type: ignore[return-value]  # of many rows a stream
        return render(self.request, template or self.template_name, context, status=status)


class ClusterPage(Page):
    """A page about one cluster; `self.cluster` is the one of the address."""

    cluster: Cluster
    asked_on = AskedOn.NARROWED

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.slug: str = kwargs["slug"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            self.cluster = self.reached_cluster()
        response = super().dispatch(request, *args, **kwargs)
        if request.method == "GET" and response.status_code == 200 and not getattr(request, "htmx", False):
            remember_visit(request)
        return response

    def reached_cluster(self) -> Cluster:
        """The cluster of the address, where the caller may do what they ask for."""
        return cluster_by_slug(self.slug)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """A GET of an address that only takes a form redirects to the page of the form."""
        if request.method != "GET":
            return super().http_method_not_allowed(request, *args, **kwargs)
        above = urljoin(request.path, "..")
        try:
            resolve(above)
        except Resolver404:
            return super().http_method_not_allowed(request, *args, **kwargs)
        return redirect(above)

    def find(self, rows: QuerySet[Row], noun: str, **key: Any) -> Row:
        """The row that the address names; Missing says which kind of row the cluster lacks."""
        row = rows.filter(**key).first()
        if row is None:
            raise Missing(f"Cluster {self.slug!r} has no {noun} {next(iter(key.values()))}.")
        return row

    def page(self, context: Mapping[str, object], status: int = 200, template: str = "") -> HttpResponse:
        return super().page({"cluster": self.cluster, **context}, status, template)


def done(request: HttpRequest, text: str, to: str, *args: Any) -> HttpResponse:
    """Confirm an action and redirect to a page."""
    toast(request, text)
    return redirect(to, *args)


def try_service(form: Any, call: Callable[[], Any], names: dict[str, str] | None = None) -> tuple[Any, bool]:
    """Call a service for a form: (result, True), or (None, False) with the refusal shown in the form.

    Only what the person can mend in the form stays there, also a field that asks for more than they may; every other
    refusal becomes the error page.
    """
    try:
        return call(), True
    except (Malformed, Conflict, Impossible, Forbidden) as error:
        if isinstance(error, Forbidden) and not error.faults:
            raise
        refusal_noted(error)
        show_faults(form, error, names)
    return None, False


class PreviewedFormPage(ClusterPage):
    """A form that is looked at before what it asks for is made: by a button named in `makes`."""

    scope = "operate"
    makes: tuple[str, ...] = ("start",)
    form: Callable[..., Any]  #: of the data that was sent
    names: Callable[..., dict[str, str]]  #: of a form: paths of the services' faults by field
    preview: Callable[..., dict[str, object]]  #: of a form: what the page shows of what would be made
    make: Callable[..., Any]  #: of a form
    made: Callable[..., HttpResponse]  #: of what was made: where to go
    answer: Callable[..., HttpResponse]  #: the page of a form, a status, and more for its context

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.answer(self.form())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = self.form(request.POST)
        is_asked = any(name in request.POST for name in self.makes)
        if form.is_valid():
            call = self.make if is_asked else self.preview
            result, ok = try_service(form, lambda: call(form), self.names(form))
            if ok:
                return self.made(result) if is_asked else self.answer(form, **result)
        return self.answer(form, 422)


_VISITS_KEY = "recent"
_VISITS_LIMIT = 12
#: Pages of one thing: {name of the page: (kind, parameter of the address)}.
_VISITED_KINDS = {
    "query": ("query", "name"),
    "query-live": ("query", "name"),
    "node": ("node", "name"),
    "agent": ("agent", "name"),
    "arrivals-detail": ("source", "pk"),
    "connection": ("connection", "pk"),
    "admission": ("decision", "pk"),
}


def remember_visit(request: HttpRequest) -> None:
    """Put the thing that a page is about first. The session is stored only where that changes the order."""
    match = request.resolver_match
    kind, parameter = _VISITED_KINDS.get(match.url_name or "", ("", "")) if match else ("", "")
    if not match or not kind:
        return
    visit = [match.kwargs["slug"], kind, str(match.kwargs[parameter])]
    kept: list[Any] = request.session.get(_VISITS_KEY, [])
    if kept[:1] != [visit]:
        request.session[_VISITS_KEY] = [visit, *(other for other in kept if other != visit)][:_VISITS_LIMIT]


def recent_of(request: HttpRequest, slug: str) -> list[tuple[str, str]]:
    """(kind, key) of what was looked at in a cluster, the last first."""
    return [(kind, key) for cluster, kind, key in request.session.get(_VISITS_KEY, []) if cluster == slug]
