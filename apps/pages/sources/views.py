"""Sources: agents, the stream processor, what is collected, static tables, and enrolment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud
from apps.pages.sources.agents.tables import AgentLine, agent_lines, agents_table
from apps.pages.sources.facts import RolloutPanel, SourcesFinding, StreamCard, source_tabs
from apps.pages.sources.forms import EnrolForm, SourceForm, TableForm
from apps.rollouts.rollout.selectors import rollout_now
from apps.telemetry.agents.services import enrolment_create, enrolment_revoke
from apps.telemetry.live.sources import source_delete, source_upsert, table_delete, table_upsert
from apps.telemetry.models import EnrolmentToken, StaticTable, TelemetrySource
from apps.telemetry.selectors import enrolments_listed, source_readers, sources_listed, tables_listed
from engine.words import counted

__all__ = ["AgentEnrol", "SourceCrud", "SourcesPage", "TableCrud", "TokenRevoke"]


class SourcesPage(ClusterPage):
    """`/c/<slug>/sources/`"""

    template_name = "pages/sources/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        lines = agent_lines(self.cluster)
        table = agents_table(request, self.cluster, lines, can_change="operate" in signed_in_user(request).scopes)
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
        token = self.find(enrolments_listed().filter(cluster=self.cluster), "enrolment token", pk=pk)
        enrolment_revoke(token=token)
        return done(request, f"Nobody joins with {token} any more.", "pages:sources", slug)


class AgentEnrol(SourcesPage):
    """POST: make a token that agents join with; the command to run is shown once."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = EnrolForm(request.POST)
        joined: tuple[EnrolmentToken, str] | None = None
        if form.is_valid():
            joined, _ = try_service(
                form, lambda: enrolment_create(cluster=self.cluster, user=signed_in_user(request), **form.values)
            )
        lines = agent_lines(self.cluster)
        table = agents_table(request, self.cluster, lines, can_change=True)
        if joined is None:
            return self.shown(lines, table, 422, enrol=form)
        token, secret = joined
        return self.shown(lines, table, 201, joined=JoinCommand(request, self.cluster, token, secret))


@dataclass(frozen=True)
class JoinCommand:
    """Command with which an agent joins by a token."""

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


class SourceCrud(Crud):
    """Sources of records: who collects them, and their columns."""

    noun = "source"
    form_class = SourceForm
    form_keyword = "source"
    template_name = "pages/sources/source_form.html"
    change_scope = "read"
    kept_fields = ("kind", "columns", "time", "lateness_s", "options")
    back = "pages:sources"
    delete_name = "pages:source-delete"
    shows_refusals = True
    service_delete = staticmethod(source_delete)

    def rows(self) -> QuerySet[TelemetrySource]:
        return TelemetrySource.objects.filter(cluster=self.cluster)

    def create(self, form: SourceForm) -> TelemetrySource:
        refuse_taken_name(self.rows(), "source_id", form.cleaned_data["source_id"], "source")
        return source_upsert(cluster=self.cluster, **form.cleaned_data)

    def update(self, row: TelemetrySource, form: SourceForm) -> TelemetrySource:
        return source_upsert(cluster=self.cluster, **form.cleaned_data)

    def context(self, row: TelemetrySource | None) -> dict[str, Any]:
        rest_body = {"cluster": self.slug, "source_id": "probes", "kind": "host_metrics", "time": "ts"}
        return {"readers": source_readers(row) if row is not None else [], "rest_body": rest_body}


class TableCrud(Crud):
    """Static tables that queries join their records with."""

    body_sizes = {"POST": DOCUMENT}
    noun = "table"
    form_class = TableForm
    form_keyword = "table"
    template_name = "pages/sources/table_form.html"
    change_scope = "read"
    back = "pages:sources"
    delete_name = "pages:static-table-delete"
    shows_refusals = True
    fault_fields = {"rows": "text"}
    service_delete = staticmethod(table_delete)

    def rows(self) -> QuerySet[StaticTable]:
        return StaticTable.objects.filter(cluster=self.cluster)

    def create(self, form: TableForm) -> StaticTable:
        refuse_taken_name(self.rows(), "name", form.cleaned_data["name"], "table")
        return table_upsert(cluster=self.cluster, **form.values)

    def update(self, row: StaticTable, form: TableForm) -> StaticTable:
        return table_upsert(cluster=self.cluster, **form.values)

    def saved(self, row: StaticTable) -> HttpResponse:
        text = f"{row} is saved with {counted(len(row.rows), 'row')}."
        return done(self.request, text, self.back, *self.back_arguments(row))

    def context(self, row: StaticTable | None) -> dict[str, Any]:
        rest = {"cluster": self.slug, "name": "tor_of", "columns": {"ip": "string"}, "rows": [["10.0.0.1"]]}
        return {"rest_body": rest}


def refuse_taken_name(rows: QuerySet[Any], field: str, name: str, noun: str) -> None:
    """Refuse to create what would silently change the row of that name."""
    if rows.filter(**{field: name}).exists():
        message = f"It is {name!r}; a {noun} of that name exists. Change that one, or take another name."
        raise Conflict(message, [(field, message)])
