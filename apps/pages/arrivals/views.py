"""Arrivals and load histories of a cluster's sources: the lists, one series, upload and generator."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Fault, Malformed, SluiceError
from apps.fleet.models import Cluster
from apps.pages.arrivals.facts import SourceDetail, arrivals_sentence, arrivals_table, rate_chart
from apps.pages.arrivals.forms import (
    GENERATOR_KINDS,
    ColumnsForm,
    GeneratorForm,
    HistoryColumnsForm,
    HistoryGeneratorForm,
    SourceOwnerForm,
)
from apps.pages.arrivals.uploads import ColumnsStep, NewSeries, UploadStep, merge_line_faults, parameter_faults
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud
from apps.pages.forecasts.facts import history_chart
from apps.pages.forecasts.tables import histories_table
from apps.pages.forecasts.views import InClusterZone
from apps.pages.queries.features import FIELD_TYPES
from apps.planning import load_histories
from apps.planning.choices import HistoryOrigin
from apps.planning.load_buckets import GENERATOR_DEFAULTS
from apps.planning.models import LoadHistory
from apps.queries.arrivals.services import (
    arrivals_create_from_generator,
    arrivals_create_from_upload,
    arrivals_delete,
    arrivals_fields_update,
    arrivals_owner_update,
    generate_arrivals,
)
from apps.queries.arrivals.uploads import read_trace_window
from apps.queries.models import ArrivalSeries
from apps.ui.forms import show_faults

__all__ = [
    "ArrivalsColumns",
    "ArrivalsCrud",
    "ArrivalsDetail",
    "ArrivalsFields",
    "ArrivalsGenerator",
    "ArrivalsOwner",
    "ArrivalsPage",
    "ArrivalsUpload",
    "HistoriesPage",
    "HistoryColumns",
    "HistoryCrud",
    "HistoryDetail",
    "HistoryGenerator",
    "HistoryUpload",
]


class ArrivalsPage(ClusterPage):
    """`/c/<slug>/arrivals/`"""

    template_name = "pages/arrivals/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        can_change = "operate" in signed_in_user(request).scopes
        table = arrivals_table(request, self.cluster, can_change=can_change)
        return self.page({"table": table, "sentence": arrivals_sentence(self.cluster)})


class ArrivalsDetail(ClusterPage):
    """`/c/<slug>/arrivals/<number>/`: one source."""

    template_name = "pages/arrivals/detail.html"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        return self.page({"detail": SourceDetail(self.find(_arrivals(self.cluster), "arrivals", pk=pk))})


class ArrivalsFields(ClusterPage):
    """POST: state the fields of a source's events."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row = self.find(_arrivals(self.cluster), "arrivals", pk=pk)
        typed = {name: text for name in FIELD_TYPES if (text := request.POST.get(name, "").strip())}
        fields = {name: int(text) if text.isdecimal() else text for name, text in typed.items()}
        arrivals_fields_update(arrivals=row, event_fields=fields or None)
        return done(request, f"The fields of {row.source_id} are saved.", "pages:arrivals-detail", slug, pk)


class ArrivalsOwner(ClusterPage):
    """`/c/<slug>/arrivals/<number>/owner/`: the team and the labels of a source, and POST, which changes them."""

    template_name = "pages/arrivals/owner.html"
    scope = write_scope = "operate"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row = self.find(_arrivals(self.cluster), "arrivals", pk=pk)
        return self.page(
            {"row": row, "form": SourceOwnerForm(initial={"team": str(row.team or ""), "labels": row.labels})}
        )

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row, form = self.find(_arrivals(self.cluster), "arrivals", pk=pk), SourceOwnerForm(request.POST)
        if form.is_valid():
            _, ok = try_service(form, lambda: arrivals_owner_update(arrivals=row, **form.cleaned_data))
            if ok:
                return done(request, f"{row.source_id} is saved.", "pages:arrivals-detail", slug, pk)
        return self.page({"row": row, "form": form}, 422)


class ArrivalsCrud(Crud):
    """Arrivals of a source; deletion is refused while queries read them."""

    noun = "arrivals"
    back = "pages:arrivals"
    text_deleted = "The arrivals of {row} are deleted."
    service_delete = staticmethod(arrivals_delete)

    def rows(self) -> QuerySet[ArrivalSeries]:
        return _arrivals(self.cluster)


class HistoriesPage(InClusterZone):
    """`/c/<slug>/provisioning/forecast/histories/`"""

    template_name = "pages/forecasts/histories.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = histories_table(request, self.cluster, can_change="operate" in signed_in_user(request).scopes)
        return self.page({"table": table})


class HistoryDetail(InClusterZone):
    """`/c/<slug>/provisioning/forecast/histories/<number>/`: one load history."""

    template_name = "pages/forecasts/history.html"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row = self.find(_histories(self.cluster), "load history", pk=pk)
        files = [part["file"] for part in row.spec.get("extended", [])]
        parameters = {name: row.spec[name] for name in GENERATOR_DEFAULTS if name in row.spec}
        return self.page({"row": row, "chart": history_chart(row), "files": files, "parameters": parameters})


class HistoryCrud(Crud):
    """Load histories of a cluster."""

    noun = "load history"
    keyword = "history"
    back = "pages:histories"
    text_deleted = "The load history of {row} is deleted."
    service_delete = staticmethod(load_histories.history_delete)

    def rows(self) -> QuerySet[LoadHistory]:
        return _histories(self.cluster)


def _arrivals(cluster: Cluster) -> QuerySet[ArrivalSeries]:
    return ArrivalSeries.objects.select_related("cluster", "team").filter(cluster=cluster)


def _histories(cluster: Cluster) -> QuerySet[LoadHistory]:
    return LoadHistory.objects.select_related("cluster").filter(cluster=cluster)


# -- arrivals
class _NewArrivals(NewSeries):
    """A way to add arrivals, or with `?replace=<source>` to replace those of a source."""

    ways = {"Upload": "pages:arrivals-new", "Generator": "pages:arrivals-generator"}

    @property
    def replaces(self) -> str:
        return self.request.GET.get("replace", "")

    @property
    def kept(self) -> dict[str, object]:
        return {"replace": self.replaces} if self.replaces else {}

    @property
    def naming(self) -> dict[str, object]:
        """The source as far as the address names it."""
        row = self.cluster.arrivals.defer("data").filter(source_id=self.replaces).first() if self.replaces else None
        if row is None:
            return {}
        return {"source_id": row.source_id, "description": row.description, "replace": True}

    def show(self, status: int = 200, **context: Any) -> HttpResponse:
        return super().show(status, replaces=self.replaces, **context)

    def stored(self, row: ArrivalSeries) -> HttpResponse:
        text = f"The arrivals of {row.source_id} are stored."
        return done(self.request, text, "pages:arrivals-detail", self.slug, row.pk)

    def show_preview(self, values: Any = None, starts_at: datetime | None = None, **context: Any) -> HttpResponse:
        """The part that shows what would be stored."""
        if values is not None:
            chart = rate_chart(values, self.cluster.slice_s, starts_at, "the source")
            context |= {"chart": chart, "starts_at": starts_at, "total": values.sum()}
        return render(self.request, "pages/arrivals/preview.html", {"cluster": self.cluster, **context})


class ArrivalsUpload(_NewArrivals, UploadStep):
    """`/c/<slug>/arrivals/new/`"""

    template_name = "pages/arrivals/upload.html"
    columns_name = "pages:arrivals-columns"


class ArrivalsColumns(_NewArrivals, ColumnsStep):
    """`/c/<slug>/arrivals/new/columns/`: columns and time range, with a preview."""

    template_name = "pages/arrivals/columns.html"
    form_class = ColumnsForm
    fault_fields = {"stretch": "start", "file": "leave_out_problems"}
    has_preview = True

    def initial(self) -> dict[str, object]:
        return {"stretch": "busiest", **self.naming}

    @transaction.atomic
    def store(self, form: ColumnsForm) -> ArrivalSeries:
        """The arrivals, and the whole file as load history where the form says so."""
        row = arrivals_create_from_upload(cluster=self.cluster, **form.naming, **form.reading)
        if form.history:
            origin = HistoryOrigin.ARRIVALS
            load_histories.history_create_from_upload(cluster=self.cluster, origin=origin, **form.history)
        return row

    def preview(self, form: ColumnsForm) -> HttpResponse:
        if not form.is_valid():
            return self.show_preview(faults=_form_faults(form))
        try:
            window = read_trace_window(cluster=self.cluster, **form.reading)
        except SluiceError as error:
            return self.show_preview(faults=_labelled(form, merge_line_faults(error)))
        return self.show_preview(window.values, datetime.fromtimestamp(window.start_s, UTC), reading=window.reading)


class ArrivalsGenerator(_NewArrivals):
    """`/c/<slug>/arrivals/new/generator/`: a generator's parameters with a live preview."""

    template_name = "pages/arrivals/generator.html"
    way = "Generator"

    def kind(self, wanted: str) -> str:
        return wanted if wanted in GENERATOR_KINDS else next(iter(GENERATOR_KINDS))

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
                    return self.show_preview(generate_arrivals(form.spec, self.cluster))
                row = arrivals_create_from_generator(cluster=self.cluster, spec=form.spec, **form.naming)
            except (Malformed, Conflict) as error:
                show_faults(form, parameter_faults(error))
            else:
                return self.stored(row)
        return self.show_preview(faults=_form_faults(form)) if is_preview else self.show(422, form=form)


def _label(form: Form, name: str) -> str:
    return str(form.fields[name].label or name.replace("_", " ").capitalize())


def _labelled(form: Form, error: SluiceError) -> list[Fault]:
    """The faults of a refusal, at the labels of the form's fields."""
    faults = error.faults or [Fault("", error.message)]
    return [
        Fault(_label(form, fault.path) if fault.path in form.fields else fault.path, fault.message) for fault in faults
    ]


def _form_faults(form: Form) -> list[Fault]:
    """The faults of a form at its labels: a preview lists them without taking the focus away."""
    faults = [Fault(_label(form, name), text) for name in form.fields for text in form.errors.get(name, ())]
    return faults + [Fault("", text) for text in form.non_field_errors()]


# -- load histories
class _NewHistory(NewSeries):
    """A way to add a load history; `?extend=<number>` adds a file to one."""

    ways = {"Upload": "pages:history-new", "Generator": "pages:history-generator"}

    @cached_property
    def extends(self) -> LoadHistory | None:
        text = self.request.GET.get("extend", "")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            return None
        return self.find(_histories(self.cluster), "load history", pk=int(text))

    @property
    def kept(self) -> dict[str, object]:
        return {"extend": self.extends.pk} if self.extends else {}

    def show(self, status: int = 200, **context: Any) -> HttpResponse:
        tabs: dict[str, object] = {"tabs": []} if self.extends else {}
        return super().show(status, extends=self.extends, **tabs, **context)

    def stored(self, row: LoadHistory) -> HttpResponse:
        text = f"The load history of {row.source_id} is stored; the forecast is renewed within minutes."
        return done(self.request, text, "pages:history", self.slug, row.pk)


class HistoryUpload(_NewHistory, UploadStep):
    """`/c/<slug>/provisioning/forecast/histories/new/`"""

    template_name = "pages/forecasts/upload.html"
    columns_name = "pages:history-columns"


class HistoryColumns(_NewHistory, ColumnsStep):
    """`/c/<slug>/provisioning/forecast/histories/columns/`"""

    template_name = "pages/forecasts/columns.html"
    form_class = HistoryColumnsForm
    fault_fields = {"file": "time_column"}

    def initial(self) -> dict[str, object]:
        return {"bucket_s": 3600}

    def form_arguments(self) -> dict[str, object]:
        return {"extends": bool(self.extends)}

    def store(self, form: HistoryColumnsForm) -> LoadHistory:
        if self.extends:
            return load_histories.history_extend(history=self.extends, upload=form.upload)
        return load_histories.history_create_from_upload(cluster=self.cluster, **form.naming, upload=form.upload)


class HistoryGenerator(_NewHistory):
    """`/c/<slug>/provisioning/forecast/histories/generate/`: a generated load history."""

    template_name = "pages/forecasts/generator.html"
    way = "Generator"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(form=HistoryGeneratorForm(initial={"bucket_s": 3600, **request.GET.dict()}))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = HistoryGeneratorForm(request.POST)
        if form.is_valid():
            try:
                row = load_histories.history_create_from_generator(cluster=self.cluster, spec=form.spec, **form.naming)
            except (Malformed, Conflict) as error:
                show_faults(form, parameter_faults(error))
            else:
                return self.stored(row)
        return self.show(422, form=form)

    def show(self, status: int = 200, **context: Any) -> HttpResponse:
        generator = {"peak_rate_eps": 1000.0, "weeks": 8, "growth_per_week": 0.02}
        rest_body = {"cluster": self.slug, "source_id": "clicks", "generator": generator}
        return super().show(status, rest_body=rest_body, **context)
