"""Sources: agents, the stream processor, what is collected, static tables, and enrolment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.core.errors import Conflict, Missing
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.sources.agents.tables import AgentLine, agent_lines, agents_table
from apps.pages.sources.facts import RolloutPanel, SourcesFinding, StreamCard, source_tabs
from apps.pages.sources.forms import EnrolForm, SourceForm, TableForm
from apps.rollouts.rollout.selectors import rollout_now
from apps.telemetry.agents.services import enrolment_create, enrolment_revoke
from apps.telemetry.live.sources import source_delete, source_upsert, table_delete, table_upsert
from apps.telemetry.models import EnrolmentToken, StaticTable, TelemetrySource
from apps.telemetry.selectors import enrolments_listed, source_readers, sources_listed, tables_listed

__all__ = [
    "AgentEnrol",
    "SourceDelete",
    "SourceEdit",
    "SourceNew",
    "SourcesPage",
    "TableDelete",
    "TableEdit",
    "TableNew",
    "TokenRevoke",
]


class SourcesPage(ClusterPage):
    """`/c/<slug>/sources/`"""

    template_name = "pages/sources/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        lines = agent_lines(self.cluster)
        table = agents_table(request, self.cluster, lines, can_change="operate" in request.user.scopes)
        if table.wants_csv:
            return table.csv_response()
        return self.shown(lines, table)

    def shown(self, lines: list[AgentLine], table: Any, status: int = 200, **context: Any) -> HttpResponse:
        names = {str(line.agent.pk): line.agent.name for line in lines}
        stream, rollout = StreamCard(self.slug, names), rollout_now(self.cluster)
        shared = {
            "table": table,
            "has_agents": bool(lines),
            "agent_count": len(lines),
            "tabs": source_tabs(self.slug, "agents"),
            "stream": stream,
            "rollout": RolloutPanel(rollout) if rollout is not None else None,
            "finding": SourcesFinding(lines, stream, rollout),
            "sources": list(sources_listed().filter(cluster=self.cluster)),
            "tables": list(tables_listed().filter(cluster=self.cluster)),
            "enrol": EnrolForm(),
            "open_tokens": tokens_open(self.cluster),
        }
        return self.page({**shared, **context}, status)


def tokens_open(cluster: Cluster) -> list[EnrolmentToken]:
    """Tokens that agents can still join with."""
    rows = enrolments_listed().filter(cluster=cluster, revoked_at=None, uses_left__gt=0, expires_at__gt=timezone.now())
    return list(rows[:20])


class TokenRevoke(SourcesPage):
    """POST: nobody joins with a token any more."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        token = enrolments_listed().filter(cluster=self.cluster, pk=pk).first()
        if token is None:
            raise Missing(f"Cluster {slug!r} has no enrolment token {pk}.")
        enrolment_revoke(token=token)
        return done(request, f"Nobody joins with {token} any more.", "pages:sources", slug)


class AgentEnrol(SourcesPage):
    """POST: make a token that agents join with; the command to run is shown once."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = EnrolForm(request.POST)
        made: tuple[EnrolmentToken, str] | None = None
        if form.is_valid():
            made, _ = try_service(
                form, lambda: enrolment_create(cluster=self.cluster, user=request.user, **form.values)
            )
        lines = agent_lines(self.cluster)
        table = agents_table(request, self.cluster, lines, can_change=True)
        if made is None:
            return self.shown(lines, table, 422, enrol=form)
        token, secret = made
        return self.shown(lines, table, 201, joined=JoinCommand(request, self.cluster, token, secret))


@dataclass(frozen=True)
class JoinCommand:
    """How an agent joins with a token."""

    request: HttpRequest
    cluster: Cluster
    token: EnrolmentToken
    secret: str

    @property
    def url(self) -> str:
        return settings.PUBLIC_URL or self.request.build_absolute_uri("/").rstrip("/")

    @property
    def command(self) -> str:
        """Join, then run; the agent keeps its secret in its folder."""
        join = f'./sluice agent enrol --url "{self.url}" \\\n  --token "{self.secret}" \\\n  --state-dir sluice-agent'
        return f"{join} &&\n./sluice agent run --config sluice-agent/agent.toml"


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
