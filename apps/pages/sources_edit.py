"""What is collected, and the static tables beside it: add, change, delete."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Conflict, Missing
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.sources_forms import SourceForm, TableForm
from apps.telemetry.models import StaticTable, TelemetrySource
from apps.telemetry.selectors import source_readers
from apps.telemetry.sources import source_delete, source_upsert, table_delete, table_upsert

__all__ = ["SourceDelete", "SourceEdit", "SourceNew", "TableDelete", "TableEdit", "TableNew"]


class _SourcePage(ClusterPage):
    template_name = "pages/sources/source_form.html"

    def source(self, source_id: str) -> TelemetrySource:
        found = TelemetrySource.objects.filter(cluster=self.cluster, source_id=source_id).first()
        if found is None:
            raise Missing(f"Cluster {self.slug!r} collects no {source_id!r}.", [("source", f"no source {source_id!r}")])
        return found

    def shown(
        self, form: Any, source: TelemetrySource | None = None, status: int = 200, notice: str = ""
    ) -> HttpResponse:
        context = {
            "form": form,
            "source": source,
            "readers": source_readers(source) if source is not None else [],
            "notice": notice,
            "rest_body": {"cluster": self.slug, "source_id": "probes", "kind": "host_metrics", "time": "ts"},
        }
        return self.page(context, status)

    def save(self, form: SourceForm, source: TelemetrySource | None = None) -> HttpResponse:
        if form.is_valid():
            saved, ok = try_service(form, lambda: source_upsert(cluster=self.cluster, **form.cleaned_data))
            if ok:
                return done(self.request, f"{saved} is saved.", "pages:sources", self.slug)
        return self.shown(form, source, 422)


class SourceNew(_SourcePage):
    """`/c/<slug>/sources/new/source/`"""

    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.shown(SourceForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = SourceForm(request.POST)
        name = request.POST.get("source_id", "")
        if TelemetrySource.objects.filter(cluster=self.cluster, source_id=name).exists():
            form.add_error(
                "source_id", f"It is {name!r}; a source of that name exists. Change that one, or take another name."
            )
            return self.shown(form, None, 422)
        return self.save(form)


class SourceEdit(_SourcePage):
    """`/c/<slug>/sources/collected/<source>/`"""

    def get(self, request: HttpRequest, slug: str, source_id: str) -> HttpResponse:
        source = self.source(source_id)
        return self.shown(SourceForm(source=source), source)

    def post(self, request: HttpRequest, slug: str, source_id: str) -> HttpResponse:
        source = self.source(source_id)
        return self.save(SourceForm(request.POST, source=source), source)


class SourceDelete(_SourcePage):
    """POST: forget a source that nothing reads."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, source_id: str) -> HttpResponse:
        source = self.source(source_id)
        try:
            source_delete(source=source)
        except Conflict as refusal:
            return self.shown(SourceForm(source=source), source, refusal.status, refusal.message)
        return done(request, f"{source_id} is deleted.", "pages:sources", slug)


class _TablePage(ClusterPage):
    template_name = "pages/sources/table_form.html"

    def table(self, name: str) -> StaticTable:
        found = StaticTable.objects.filter(cluster=self.cluster, name=name).first()
        if found is None:
            raise Missing(f"Cluster {self.slug!r} has no table {name!r}.", [("table", f"no table {name!r}")])
        return found

    def shown(self, form: Any, table: StaticTable | None = None, status: int = 200, notice: str = "") -> HttpResponse:
        rest = {"cluster": self.slug, "name": "tor_of", "columns": {"ip": "string"}, "rows": [["10.0.0.1"]]}
        return self.page({"form": form, "table": table, "notice": notice, "rest_body": rest}, status)

    def save(self, form: TableForm, table: StaticTable | None = None) -> HttpResponse:
        if form.is_valid():
            found = form.cleaned_data
            values = {name: found[name] for name in ("name", "columns", "rows")}
            saved, ok = try_service(form, lambda: table_upsert(cluster=self.cluster, **values), {"rows": "text"})
            if ok:
                return done(self.request, f"{saved} is saved with {len(saved.rows)} rows.", "pages:sources", self.slug)
        return self.shown(form, table, 422)


class TableNew(_TablePage):
    """`/c/<slug>/sources/new/table/`"""

    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.shown(TableForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = TableForm(request.POST, request.FILES)
        name = request.POST.get("name", "")
        if StaticTable.objects.filter(cluster=self.cluster, name=name).exists():
            form.add_error(
                "name", f"It is {name!r}; a table of that name exists. Change that one, or take another name."
            )
            return self.shown(form, None, 422)
        return self.save(form)


class TableEdit(_TablePage):
    """`/c/<slug>/sources/tables/<name>/`"""

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        table = self.table(name)
        return self.shown(TableForm(table=table), table)

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        table = self.table(name)
        return self.save(TableForm(request.POST, request.FILES, table=table), table)


class TableDelete(_TablePage):
    """POST: forget a table that nothing joins with."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        table = self.table(name)
        try:
            table_delete(table=table)
        except Conflict as refusal:
            return self.shown(TableForm(table=table), table, refusal.status, refusal.message)
        return done(request, f"{name} is deleted.", "pages:sources", slug)
