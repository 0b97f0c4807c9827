"""Load histories of a cluster's sources: the list, one of them, upload, generator."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.errors import Conflict, Fault, Malformed, SluiceError, TooLarge
from apps.fleet.models import Cluster
from apps.pages.arrivals.forms import HistoryColumnsForm, HistoryGeneratorForm, UploadForm
from apps.pages.base import ClusterPage, done
from apps.pages.crud import Crud
from apps.pages.forecasts.facts import history_chart
from apps.pages.forecasts.tables import histories_table
from apps.pages.forecasts.views import InClusterZone
from apps.planning.forecasts import histories
from apps.planning.forecasts.histories import GENERATOR_DEFAULTS
from apps.planning.models import LoadHistory
from apps.queries.arrivals.services import arrivals_inspect
from apps.queries.arrivals.tables import Inspection
from apps.queries.arrivals.uploads import inspect_upload
from apps.ui.forms import show_faults

__all__ = ["HistoriesPage", "HistoryColumns", "HistoryCrud", "HistoryDetail", "HistoryGenerator", "HistoryUpload"]


class HistoriesPage(InClusterZone):
    """`/c/<slug>/provisioning/forecast/histories/`"""

    template_name = "pages/forecasts/histories.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = histories_table(request, self.cluster, can_change="operate" in request.user.scopes)
        return table.csv_response() if table.wants_csv else self.page({"table": table})


class HistoryDetail(InClusterZone):
    """One history."""

    template_name = "pages/forecasts/history.html"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        row = self.find(_rows(self.cluster), "load history", pk=pk)
        files = [part["file"] for part in row.spec.get("extended", [])]
        parameters = {name: row.spec[name] for name in GENERATOR_DEFAULTS if name in row.spec}
        return self.page({"row": row, "chart": history_chart(row), "files": files, "parameters": parameters})


class HistoryCrud(Crud):
    """Load histories of a cluster."""

    noun = "load history"
    keyword = "history"
    back = "pages:histories"
    text_deleted = "The load history of {row} is deleted."
    service_delete = staticmethod(histories.history_delete)

    def rows(self) -> QuerySet[LoadHistory]:
        return _rows(self.cluster)


def _rows(cluster: Cluster) -> QuerySet[LoadHistory]:
    return LoadHistory.objects.select_related("cluster").filter(cluster=cluster)


class _NewHistory(ClusterPage):
    """A way to add a history; `?extend=<number>` adds to one."""

    scope = "operate"
    way = ""

    @property
    def extends(self) -> LoadHistory | None:
        text = self.request.GET.get("extend", "")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            return None
        return self.find(_rows(self.cluster), "load history", pk=int(text))

    def show(self, status: int = 200, **context: Any) -> HttpResponse:
        ways = {"Upload": "pages:history-new", "Generator": "pages:history-generator"}
        tabs = [(name, reverse(to, args=[self.slug]), name == self.way) for name, to in ways.items()]
        return self.page({"tabs": [] if self.extends else tabs, "extends": self.extends, **context}, status)

    def stored(self, row: LoadHistory) -> HttpResponse:
        text = f"The load history of {row.source_id} is stored; the forecast is renewed within minutes."
        return done(self.request, text, "pages:history", self.slug, row.pk)


class HistoryUpload(_NewHistory):
    """The first step of an upload: the file."""

    template_name = "pages/forecasts/upload.html"
    way = "Upload"

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
                given = {"key": key, "zone": zone} | ({"extend": self.extends.pk} if self.extends else {})
                return redirect(f"{reverse('pages:history-columns', args=[slug])}?{urlencode(given)}")
        return self.show(422, form=form)


class HistoryColumns(_NewHistory):
    """The second step: the columns; then it is stored."""

    template_name = "pages/forecasts/columns.html"
    way = "Upload"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        key, zone = request.GET.get("key", ""), request.GET.get("zone", "") or self.cluster.time_zone
        name, found = inspect_upload(key, zone)
        known = {"key": key, "time_zone": zone, "bucket_s": 3600}
        known |= {"time_column": found.time_column, "count_column": found.count_column}
        form = HistoryColumnsForm(initial=known, inspection=found, extends=bool(self.extends))
        return self.show(form=form, **_told(name, found))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        key, zone = request.POST.get("key", ""), request.POST.get("time_zone", "")
        try:
            name, found = inspect_upload(key, zone)
        except Malformed:  # the zone is at fault; the form says so when it is read with it
            name, found = inspect_upload(key, "UTC")
        form = HistoryColumnsForm(request.POST, inspection=found, extends=bool(self.extends))
        if form.is_valid():
            try:
                return self.stored(self._store(form))
            except (Malformed, Conflict) as error:
                show_faults(form, _lines_as_one(error), {"file": "time_column"})
        return self.show(422, form=form, **_told(name, found))

    def _store(self, form: HistoryColumnsForm) -> LoadHistory:
        if self.extends:
            return histories.history_extend(history=self.extends, **form.reading)
        return histories.history_create_from_upload(cluster=self.cluster, **form.naming, **form.reading)


def _lines_as_one(error: SluiceError) -> SluiceError:
    """The page lists the lines that cannot be read; a refusal counts them and names the first."""
    if any(fault.path.startswith("file.line") for fault in error.faults):
        return Malformed(error.message, [Fault("leave_out_problems", error.message)])
    return error


def _told(name: str, found: Inspection) -> dict[str, Any]:
    """What the page says of the file itself."""
    ends = {side: datetime.fromisoformat(text) for side in ("starts_at", "ends_at") if (text := getattr(found, side))}
    return {"inspection": found, "file_name": name, **ends}


class HistoryGenerator(_NewHistory):
    """A made-up history."""

    template_name = "pages/forecasts/generator.html"
    way = "Generator"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = HistoryGeneratorForm(initial={"bucket_s": 3600, **request.GET.dict()})
        return self.show(form=form, rest_body=self._rest_body)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = HistoryGeneratorForm(request.POST)
        if form.is_valid():
            try:
                row = histories.history_create_from_generator(cluster=self.cluster, spec=form.spec, **form.naming)
            except (Malformed, Conflict) as error:
                own = [Fault(one.path.removeprefix("generator."), one.message) for one in error.faults]
                show_faults(form, Malformed(error.message, own))
            else:
                return self.stored(row)
        return self.show(422, form=form, rest_body=self._rest_body)

    @property
    def _rest_body(self) -> dict[str, Any]:
        generator = {"peak_rate_eps": 1000.0, "weeks": 8, "growth_per_week": 0.02}
        return {"cluster": self.slug, "source_id": "clicks", "generator": generator}
