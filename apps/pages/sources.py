"""The Sources page: agents near the data, the stream processor behind them, what is collected, and joining."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.pages.agents_flow import saved_share
from apps.pages.agents_rows import AgentLine, agent_lines, agents_table
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.sources_forms import EnrolForm
from apps.pages.sources_stream import StreamCard
from apps.telemetry.choices import AgentState
from apps.telemetry.models import EnrolmentToken
from apps.telemetry.selectors import enrolments_listed, sources_listed, tables_listed
from apps.telemetry.services import enrolment_create, enrolment_revoke
from apps.ui.numbers import counted, percent

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
        stream = StreamCard(self.slug, names)
        shared = {
            "table": table,
            "has_agents": bool(lines),
            "stream": stream,
            "finding": SourcesFinding(lines, stream),
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


class SourcesFinding:
    """The sentence of the page, from its numbers."""

    def __init__(self, lines: list[AgentLine], stream: StreamCard) -> None:
        self.lines = lines
        self.stream = stream

    @cached_property
    def sentence(self) -> SafeString:
        if not self.lines:
            return SafeString("No agent has joined yet: nothing is collected near the data.")
        return format_html("{}{}", self._saved(), self._wrong())

    def _saved(self) -> SafeString:
        reporting = [line for line in self.lines if line.reports]
        share = saved_share(line.flow for line in reporting if line.flow is not None)
        many = counted(len(self.lines), "agent")
        who = many if len(reporting) == len(self.lines) else f"{len(reporting)} of {many}"
        one = len(reporting) == 1
        if share is None:
            return format_html("{} {}, and none has sent statistics yet.", who, "reports" if one else "report")
        words = "{} reports and keeps <b>{}</b> of its" if one else "{} report and keep <b>{}</b> of their"
        return format_html(words + " bytes at the source.", who, percent(share))

    def _wrong(self) -> SafeString:
        parts = []
        silent = [line for line in self.lines if line.state == AgentState.SILENT]
        if silent:
            who = silent[0].agent.name if len(silent) == 1 else f"{len(silent)} agents"
            parts.append(f"{who} {'does' if len(silent) == 1 else 'do'} not report")
        for state, words in ((AgentState.SPOOL, "keep more than they get rid of"), (AgentState.OVERFLOW, "overflow")):
            found = [line for line in self.lines if line.state == state]
            if found:
                who = found[0].agent.name if len(found) == 1 else f"{len(found)} agents"
                parts.append(f"{who} {words if len(found) > 1 else _one(words)}")
        if not self.stream.is_ready:
            parts.append(f"the stream processor is {self.stream.mark.label.lower()}")
        if not parts:
            return SafeString(" All report, and the stream processor is ready.")
        text = "; ".join(parts)
        is_name = bool(silent) or not text.startswith("the ")
        return format_html(" {}.", text if is_name else text[:1].upper() + text[1:])


def _one(words: str) -> str:
    return {"keep more than they get rid of": "keeps more than it gets rid of", "overflow": "overflows"}[words]
