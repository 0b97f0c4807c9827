"""Connections to engines: the list, a new one, its check and import, its page, and what is done to it."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.connections import services
from apps.connections.choices import ConnectionEngine, ConnectionOrigin
from apps.connections.models import Connection
from apps.connections.selectors import connections_listed
from apps.connections.uploads import upload_store
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict, Malformed, TooLarge
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.connections.facts import ConnectionFacts
from apps.pages.connections.forms import ENGINE_HELP, AnswersForm, ConnectionForm, JobsForm
from apps.pages.connections.tables import connections_sentence, connections_table
from apps.pages.crud import Crud
from apps.ui.feedback import toast
from apps.ui.forms import show_faults
from engine.words import counted

__all__ = [
    "ConnectionCheck",
    "ConnectionCrud",
    "ConnectionImport",
    "ConnectionNew",
    "ConnectionPage",
    "ConnectionPause",
    "ConnectionRefresh",
    "ConnectionResume",
    "ConnectionUpload",
    "ConnectionsPage",
]

_WAYS = {
    ConnectionOrigin.URL: "By address",
    ConnectionOrigin.UPLOAD: "By upload",
}
_STAND_IN = "https://engine.invalid"  # for an address with a fault of its own, so that the other fields are checked


class ConnectionsPage(ClusterPage):
    """`/c/<slug>/connections/`"""

    template_name = "pages/connections/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        can_change = "operate" in signed_in_user(request).scopes
        table = connections_table(request, self.cluster, can_change=can_change)
        return self.page({"table": table, "sentence": connections_sentence(self.cluster)})


class ConnectionNew(ClusterPage):
    """`/c/<slug>/connections/new/`; `?origin=upload` takes a file in place of an address."""

    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/connections/new.html"
    scope = "operate"

    @property
    def origin(self) -> ConnectionOrigin:
        typed = self.request.GET.get("origin", "")
        return ConnectionOrigin(typed) if typed in _WAYS else ConnectionOrigin.URL

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(self.form())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = self.form(request.POST, request.FILES)
        if form.is_valid():
            connection, is_stored = try_service(form, lambda: self.store(form), {"ca_pem": "ca_pem"})
            if is_stored:
                services.connection_check(connection=connection, user=signed_in_user(request))
                return redirect("pages:connection-check", slug, connection.pk)
        else:
            self.add_service_faults(form)
        return self.show(form, 422)

    def form(self, *data: Any) -> ConnectionForm:
        taken = list(self.cluster.connections.values_list("name", flat=True))
        return ConnectionForm(*data, origin=self.origin, taken=taken)

    @transaction.atomic
    def store(self, form: ConnectionForm) -> Connection:
        """The connection, with the answers of its file; neither where the other fails."""
        connection = services.connection_create(cluster=self.cluster, user=signed_in_user(self.request), **form.values)
        if form.is_upload:
            upload_store(connection=connection, file=form.cleaned_data["file"])
        return connection

    def add_service_faults(self, form: ConnectionForm) -> None:
        """Faults that only the service sees, beside those of the form: all at once, and nothing is stored."""
        stand_ins = {"engine": ConnectionEngine.FLINK, **({} if form.is_upload else {"url": _STAND_IN})}
        values = {**stand_ins, **form.values}
        with transaction.atomic():
            try:
                services.connection_create(cluster=self.cluster, **values)
            except (Malformed, Conflict) as error:
                show_faults(form, error)
            transaction.set_rollback(True)

    def show(self, form: ConnectionForm, status: int = 200) -> HttpResponse:
        here = reverse("pages:connection-new", args=[self.slug])
        tabs = [(label, f"{here}?origin={way.value}", way == self.origin) for way, label in _WAYS.items()]
        engines = [(ConnectionEngine(engine).label, *texts) for engine, texts in ENGINE_HELP.items()]
        body = {"cluster": self.slug, "name": "flink", "engine": "flink", "url": "http://flink:8081"}
        context = {"form": form, "tabs": tabs, "engines": engines, "rest_body": body}
        return self.page(context, status)


class _ConnectionPage(ClusterPage):
    """A page about one connection."""

    def connection(self, pk: int) -> Connection:
        return self.find(_rows(self), "connection", pk=pk)


class ConnectionPage(_ConnectionPage):
    """`/c/<slug>/connections/<id>/`: state, jobs, polls, findings."""

    template_name = "pages/connections/page.html"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        return self.show(self.connection(pk))

    def show(self, connection: Connection, status: int = 200, **context: Any) -> HttpResponse:
        facts = ConnectionFacts(connection)
        shared = {"connection": connection, "facts": facts, "key": str(connection.pk), "answers": AnswersForm()}
        return self.page({**shared, **context}, status)


class ConnectionCheck(_ConnectionPage):
    """`…/check/`: what the engine shows, before anything of it is imported. POST: look again."""

    template_name = "pages/connections/check.html"
    write_scope = "operate"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        return self.show(self.connection(pk))

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        services.connection_check(connection=self.connection(pk), user=signed_in_user(request))
        return redirect("pages:connection-check", slug, pk)

    def show(self, connection: Connection, status: int = 200, form: JobsForm | None = None) -> HttpResponse:
        facts = ConnectionFacts(connection)
        shown = form if form is not None else JobsForm(facts.look.running, connection.job_names)
        can_import = "admit" in signed_in_user(self.request).scopes
        context = {"connection": connection, "facts": facts, "key": str(connection.pk)}
        return self.page({**context, "form": shown, "can_import": can_import, "steps": _steps(facts)}, status)


class ConnectionImport(ConnectionCheck):
    """POST: turn the chosen jobs into running queries."""

    http_method_names = ["post"]
    scope = write_scope = "admit"

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        connection = self.connection(pk)
        user = signed_in_user(request)
        if not connection.runs_jobs:
            services.connection_import(connection=connection, user=user)
            return done(request, f"{connection.name} is read from now on.", "pages:connection", slug, pk)
        form = JobsForm(ConnectionFacts(connection).look.running, connection.job_names, request.POST)
        if not form.is_valid():
            return self.show(connection, 422, form)
        services.connection_import(connection=connection, user=user, **form.values)
        text = f"Jobs of {connection.name} are being imported."
        return done(request, text, "pages:connection", slug, pk)


class ConnectionRefresh(_ConnectionPage):
    """POST: ask once more now."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        connection = self.connection(pk)
        services.connection_refresh(connection=connection, user=signed_in_user(request))
        return done(request, f"{connection.name} is asked once more.", "pages:connection", slug, pk)


class ConnectionPause(_ConnectionPage):
    """POST: ask nothing more."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        connection = services.connection_pause(connection=self.connection(pk))
        text = f"{connection.name} is paused; what was measured stands, and ages."
        return done(request, text, "pages:connection", slug, pk)


class ConnectionResume(_ConnectionPage):
    """POST: ask again."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        connection = services.connection_resume(connection=self.connection(pk))
        return done(request, f"{connection.name} is asked again from now on.", "pages:connection", slug, pk)


class ConnectionUpload(ConnectionPage):
    """POST: newer answers in place of those before, which are then checked."""

    body_sizes = {"POST": DOCUMENT}
    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        connection = self.connection(pk)
        form = AnswersForm(request.POST, request.FILES)
        if form.is_valid():
            try:
                outcome = upload_store(connection=connection, file=form.cleaned_data["file"])
            except (Malformed, TooLarge, Conflict) as error:
                show_faults(form, error)
            else:
                services.connection_check(connection=connection, user=signed_in_user(request))
                toast(request, f"{counted(outcome.rounds, 'round')} of {counted(outcome.answers, 'answer')} taken.")
                return redirect("pages:connection-check", slug, pk)
        return self.show(connection, 422, answers=form)


class ConnectionCrud(Crud):
    """Change and delete a connection."""

    noun = "connection"
    form_class = ConnectionForm
    template_name = "pages/connections/edit.html"
    back, delete_name = "pages:connection", "pages:connection-delete"
    text_deleted = "{row} is deleted; its queries and nodes stay."
    service_update = staticmethod(services.connection_update)
    service_delete = staticmethod(services.connection_delete)

    def rows(self) -> QuerySet[Connection]:
        return _rows(self)

    def back_arguments(self, row: Any) -> list[Any]:
        return [self.slug, row.pk]

    def post_delete(self, row: Any) -> HttpResponse:
        self.delete_row(row)
        return done(self.request, self.text_deleted.format(row=row.name), "pages:connections", self.slug)


def _rows(page: ClusterPage) -> QuerySet[Connection]:
    return connections_listed().filter(cluster=page.cluster)


def _steps(facts: ConnectionFacts) -> list[tuple[str, str]]:
    """(step, done, now or later) of a connection's way to its queries."""
    is_looked = bool(facts.look) and facts.open_job is None
    return [
        ("Connect", "done"),
        ("Check", "done" if is_looked else "now"),
        ("Import", "done" if facts.is_imported else "now" if is_looked else "later"),
    ]
