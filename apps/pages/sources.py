"""The Sources page: agents near the data, the stream processor behind them, what is collected, and joining."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.pages.agents_rows import AgentLine, agent_lines
from apps.pages.agents_table import agents_table
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.rollout_panel import RolloutPanel
from apps.pages.sources_finding import SourcesFinding
from apps.pages.sources_forms import EnrolForm
from apps.pages.sources_stream import StreamCard
from apps.pages.sources_tabs import source_tabs
from apps.refinement.selectors import rollout_now
from apps.telemetry.models import EnrolmentToken
from apps.telemetry.selectors import enrolments_listed, sources_listed, tables_listed
from apps.telemetry.services import enrolment_create, enrolment_revoke

__all__ = ["Enrol", "SourcesPage", "TokenRevoke"]


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


class Enrol(SourcesPage):
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
