"""Arrivals of a cluster's sources: the list, one source, upload, generator."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.db import transaction
from django.db.models import QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.core.errors import Conflict, Fault, Malformed, SluiceError, TooLarge
from apps.fleet.models import Cluster
from apps.pages.arrivals.facts import SourceDetail, arrivals_sentence, arrivals_table, rate_chart
from apps.pages.arrivals.forms import GENERATOR_KINDS, ColumnsForm, GeneratorForm, UploadForm
from apps.pages.base import ClusterPage, done
from apps.pages.crud import Crud
from apps.planning.choices import HistoryOrigin
from apps.planning.forecasts.histories import history_create_from_upload
from apps.queries import services
from apps.queries.arrivals.services import generate_arrivals
from apps.queries.arrivals.tables import Inspection
from apps.queries.arrivals.uploads import inspect_upload, read_trace_window
from apps.queries.models import ArrivalSeries
from apps.queries.selectors import readers_by_source
from apps.ui.forms import show_faults

__all__ = ["ArrivalsCrud", "ArrivalsDetail", "ArrivalsPage", "ColumnsPage", "GeneratorPage", "UploadPage"]


class ArrivalsPage(ClusterPage):
    """`/c/<slug>/arrivals/`"""

    template_name = "pages/arrivals/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        can_change = "operate" in request.user.scopes
        table = arrivals_table(request, self.cluster, readers_by_source(self.cluster), can_change=can_change)
        if table.wants_csv:
            return table.csv_response()
        return self.page({"table": table, "sentence": arrivals_sentence(self.cluster)})


class ArrivalsDetail(ClusterPage):
    """`/c/<slug>/arrivals/<number>/`: one source."""

    template_name = "pages/arrivals/detail.html"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        return self.page({"detail": SourceDetail(self.find(_rows(self.cluster), "arrivals", pk=pk))})


class ArrivalsCrud(Crud):
    """Arrivals of a source; deletion is refused while queries read them."""

    noun = "arrivals"
    back = "pages:arrivals"
    text_deleted = "The arrivals of {row} are deleted."
    service_delete = staticmethod(services.arrivals_delete)

    def rows(self) -> QuerySet[ArrivalSeries]:
        return _rows(self.cluster)


def _rows(cluster: Cluster) -> QuerySet[ArrivalSeries]:
    return ArrivalSeries.objects.select_related("cluster").filter(cluster=cluster)


class _NewPage(ClusterPage):
    """A way to add arrivals, or with `?replace=<source>` to replace those of a source."""

    scope = "operate"
    way = ""

    def show(self, status: int = 200, **context: Any) -> HttpResponse:
        ways = {"Upload": "pages:arrivals-new", "Generator": "pages:arrivals-generator"}
        kept = f"?{urlencode({'replace': self.replaces})}" if self.replaces else ""
        tabs = [(name, reverse(to, args=[self.slug]) + kept, name == self.way) for name, to in ways.items()]
        return self.page({"tabs": tabs, "replaces": self.replaces, **context}, status)

    @property
    def replaces(self) -> str:
        return self.request.GET.get("replace", "")

    @property
    def naming(self) -> dict[str, Any]:
        """The source as far as the address names it."""
        row = self.cluster.arrivals.defer("data").filter(source_id=self.replaces).first() if self.replaces else None
        if row is None:
            return {}
        return {"source_id": row.source_id, "description": row.description, "replace": True}

    def stored(self, row: ArrivalSeries) -> HttpResponse:
        text = f"The arrivals of {row.source_id} are stored."
        return done(self.request, text, "pages:arrivals-detail", self.slug, row.pk)

    def preview(self, values: Any = None, starts_at: datetime | None = None, **context: Any) -> HttpResponse:
        """The part that shows what would be stored."""
        if values is not None:
            chart = rate_chart(values, self.cluster.slice_s, starts_at, "the source")
            context |= {"chart": chart, "starts_at": starts_at, "total": values.sum()}
        return render(self.request, "pages/arrivals/preview.html", {"cluster": self.cluster, **context})


class UploadPage(_NewPage):
    """The first step of an upload: the file."""

    template_name = "pages/arrivals/upload.html"
    way = "Upload"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(form=UploadForm(initial={"time_zone": self.cluster.time_zone}))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = UploadForm(request.POST, request.FILES)
        if form.is_valid():
            zone = form.cleaned_data["time_zone"]
            try:
                key, _ = services.arrivals_inspect(file=form.cleaned_data["file"], time_zone=zone)
            except (Malformed, TooLarge) as error:
                show_faults(form, error)
            else:
                given = {"key": key, "zone": zone} | ({"replace": self.replaces} if self.replaces else {})
                return redirect(f"{reverse('pages:arrivals-columns', args=[slug])}?{urlencode(given)}")
        return self.show(422, form=form)


class ColumnsPage(_NewPage):
    """The second step: columns and stretch, with a preview; then it is stored."""

    template_name = "pages/arrivals/columns.html"
    way = "Upload"

    def inspected(self, key: str, zone: str) -> tuple[str, Inspection]:
        return inspect_upload(key, zone or self.cluster.time_zone)

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        key, zone = request.GET.get("key", ""), request.GET.get("zone", "")
        name, found = self.inspected(key, zone)
        known = {"key": key, "time_zone": zone or self.cluster.time_zone, "stretch": "busiest", **self.naming}
        form = ColumnsForm(
            initial={**known, "time_column": found.time_column, "count_column": found.count_column}, inspection=found
        )
        return self.show(form=form, **_told(name, found))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        try:
            name, found = self.inspected(request.POST.get("key", ""), request.POST.get("time_zone", ""))
        except Malformed:  # the zone is at fault; the form says so when it is read with it
            name, found = self.inspected(request.POST.get("key", ""), "UTC")
        form = ColumnsForm(request.POST, inspection=found)
        if "preview" in request.POST:
            return self._preview(form)
        if form.is_valid():
            try:
                row = self._store(form)
            except (Malformed, Conflict) as error:
                show_faults(form, _lines_as_one(error), {"stretch": "start", "file": "leave_out_problems"})
            else:
                return self.stored(row)
        return self.show(422, form=form, **_told(name, found))

    @transaction.atomic
    def _store(self, form: ColumnsForm) -> ArrivalSeries:
        """The arrivals, and where it is wished the whole file as load history."""
        row = services.arrivals_create_from_upload(cluster=self.cluster, **form.naming, **form.reading)
        if form.history:
            history_create_from_upload(cluster=self.cluster, origin=HistoryOrigin.ARRIVALS, **form.history)
        return row

    def _preview(self, form: ColumnsForm) -> HttpResponse:
        if not form.is_valid():
            return self.preview(faults=_faults_of(form))
        try:
            found = read_trace_window(cluster=self.cluster, **form.reading)
        except SluiceError as error:
            return self.preview(faults=_labelled(form, _lines_as_one(error)))
        return self.preview(found.values, datetime.fromtimestamp(found.start_s, UTC), reading=found.reading)


def _lines_as_one(error: SluiceError) -> SluiceError:
    """The page lists the lines that cannot be read; a refusal counts them and names the first."""
    if any(fault.path.startswith("file.line") for fault in error.faults):
        return Malformed(error.message, [Fault("leave_out_problems", error.message)])
    return error


def _labelled(form: Form, error: SluiceError) -> list[Fault]:
    """The faults of a refusal, at the labels of the form's fields."""
    names = {name: field.label or name.replace("_", " ").capitalize() for name, field in form.fields.items()}
    faults = error.faults or [Fault("", error.message)]
    return [Fault(names.get(fault.path, fault.path), fault.message) for fault in faults]


def _told(name: str, found: Inspection) -> dict[str, Any]:
    """What the page says of the file itself."""
    ends = {side: datetime.fromisoformat(text) for side in ("starts_at", "ends_at") if (text := getattr(found, side))}
    return {"inspection": found, "file_name": name, **ends}


class GeneratorPage(_NewPage):
    """A generator with its parameters and a live preview."""

    template_name = "pages/arrivals/generator.html"
    way = "Generator"

    def kind(self, given: str) -> str:
        return given if given in GENERATOR_KINDS else next(iter(GENERATOR_KINDS))

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        typed = {name: value for name, value in request.GET.items() if value}
        kind = self.kind(typed.get("kind", ""))
        initial = {**GeneratorForm.beginning(self.cluster), **self.naming, **typed, "kind": kind}
        initial["replace"] = bool(self.naming)
        rest_body = {"cluster": slug, "source_id": "clicks", "generator": GeneratorForm.example(kind)}
        return self.show(form=GeneratorForm(initial=initial, kind=kind), rest_body=rest_body)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = GeneratorForm(request.POST, kind=self.kind(request.POST.get("kind", "")))
        is_preview = "preview" in request.POST
        if form.is_valid():
            try:
                if is_preview:
                    values = generate_arrivals(form.spec, self.cluster)
                    return self.preview(values)
                row = services.arrivals_create_from_generator(cluster=self.cluster, spec=form.spec, **form.naming)
            except (Malformed, Conflict) as error:
                show_faults(form, _at_fields(error))
            else:
                return self.stored(row)
        return self.preview(faults=_faults_of(form)) if is_preview else self.show(422, form=form)


def _at_fields(error: SluiceError) -> Malformed:
    """Faults of the generator's parameters, at the form's fields of the same names."""
    return Malformed(error.message, [Fault(one.path.removeprefix("generator."), one.message) for one in error.faults])


def _faults_of(form: Form) -> list[Fault]:
    """What is wrong with a form in the words of its labels: a preview says it without taking the focus away."""
    named = [
        (form.fields[name].label or name.replace("_", " ").capitalize(), form.errors[name])
        for name in form.fields
        if name in form.errors
    ]
    found = [Fault(label, message) for label, messages in named for message in messages]
    return found + [Fault("", message) for message in form.non_field_errors()]
