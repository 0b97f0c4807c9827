"""Steps by which a series of a source is added: shared by arrivals and load histories."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict, Fault, Malformed, SluiceError, TooLarge
from apps.pages.arrivals.forms import UploadForm
from apps.pages.base import ClusterPage
from apps.queries.arrivals.inspection import Inspection
from apps.queries.arrivals.services import arrivals_inspect
from apps.queries.arrivals.uploads import inspect_upload
from apps.ui.forms import show_faults

__all__ = ["ColumnsStep", "NewSeries", "UploadStep", "merge_line_faults", "parameter_faults"]


class NewSeries(ClusterPage):
    """A way to add a series of a source: an upload in two steps, or a generator."""

    scope = "operate"
    way = ""  #: the tab in force
    ways: ClassVar[dict[str, str]]  #: pages by the names of their tabs

    @property
    def kept(self) -> dict[str, object]:
        """The query parameter that every step of the way keeps."""
        return {}

    def show(self, status: int = 200, **context: Any) -> HttpResponse:
        kept = f"?{urlencode(self.kept)}" if self.kept else ""
        tabs = [(name, reverse(to, args=[self.slug]) + kept, name == self.way) for name, to in self.ways.items()]
        return self.page({"tabs": tabs, **context}, status)

    def stored(self, row: Any) -> HttpResponse:
        raise NotImplementedError


class UploadStep(NewSeries):
    """The first step of an upload: the file."""

    body_sizes = {"POST": DOCUMENT}
    way = "Upload"
    columns_name = ""  #: page of the second step

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(form=UploadForm(initial={"time_zone": self.cluster.time_zone}))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = UploadForm(request.POST, request.FILES)
        if form.is_valid():
            zone = form.cleaned_data["time_zone"]
            try:
                key, _ = arrivals_inspect(file=form.cleaned_data["file"], time_zone=zone)
            except (Malformed, TooLarge) as error:
                show_faults(form, error)
            else:
                query = urlencode({"key": key, "zone": zone, **self.kept})
                return redirect(f"{reverse(self.columns_name, args=[slug])}?{query}")
        return self.show(422, form=form)


class ColumnsStep(NewSeries):
    """The second step of an upload: the columns; then the series is stored."""

    way = "Upload"
    form_class: ClassVar[Callable[..., Form]]
    fault_fields: ClassVar[dict[str, str]]
    has_preview = False

    def initial(self) -> dict[str, object]:
        """First values of the form besides the columns."""
        return {}

    def form_arguments(self) -> dict[str, object]:
        return {}

    def store(self, form: Any) -> Any:
        raise NotImplementedError

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        key, zone = request.GET.get("key", ""), request.GET.get("zone", "") or self.cluster.time_zone
        name, inspection = inspect_upload(key, zone)
        columns = {"time_column": inspection.time_column, "count_column": inspection.count_column}
        initial = {"key": key, "time_zone": zone, **self.initial(), **columns}
        form = self.form_class(initial=initial, inspection=inspection, **self.form_arguments())
        return self.show(form=form, **_file_facts(name, inspection))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        key, zone = request.POST.get("key", ""), request.POST.get("time_zone", "") or self.cluster.time_zone
        try:
            name, inspection = inspect_upload(key, zone)
        except Malformed:  # the zone is at fault; the form reports it when it is read with it
            name, inspection = inspect_upload(key, "UTC")
        form = self.form_class(request.POST, inspection=inspection, **self.form_arguments())
        if self.has_preview and "preview" in request.POST:
            return self.preview(form)
        if form.is_valid():
            try:
                return self.stored(self.store(form))
            except (Malformed, Conflict) as error:
                show_faults(form, merge_line_faults(error), self.fault_fields)
        return self.show(422, form=form, **_file_facts(name, inspection))

    def preview(self, form: Any) -> HttpResponse:
        raise NotImplementedError


def merge_line_faults(error: SluiceError) -> SluiceError:
    """The page lists the lines that cannot be read; a refusal counts them and names the first."""
    if any(fault.path.startswith("file.line") for fault in error.faults):
        return Malformed(error.message, [Fault("leave_out_problems", error.message)])
    return error


def _file_facts(name: str, inspection: Inspection) -> dict[str, object]:
    """The facts of the file on the page: its name, columns, first and last time."""
    sides = {side: getattr(inspection, side) for side in ("starts_at", "ends_at")}
    ends = {side: datetime.fromisoformat(text) for side, text in sides.items() if text}
    return {"inspection": inspection, "file_name": name, **ends}


def parameter_faults(error: SluiceError) -> Malformed:
    """Faults of a generator's parameters, at the form's fields of the same names."""
    faults = [Fault(fault.path.removeprefix("generator."), fault.message) for fault in error.faults]
    return Malformed(error.message, faults)
