"""The page of one agent, and what is done to it as a whole: enabled or not, removal."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Conflict, Missing
from apps.pages.agents_view import AgentView, PipelineAt
from apps.pages.base import ClusterPage, done
from apps.pages.sources_forms import AgentForm
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named
from apps.telemetry.services import agent_delete, agent_update

__all__ = ["AgentEnable", "AgentPage", "AgentQueryPage", "AgentRemove"]


class AgentPage(ClusterPage):
    """`/c/<slug>/sources/agents/<name>/`"""

    template_name = "pages/sources/agent.html"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.shown(self.agent(name))

    def agent(self, name: str) -> Agent:
        return agent_named(self.cluster, name)

    def shown(self, agent: Agent, status: int = 200, **context: Any) -> HttpResponse:
        view = AgentView(self.cluster, agent)
        shared = {"agent": agent, "view": view, "budget": AgentForm(agent=agent)}
        return self.page({**shared, **context}, status)


class AgentQueryPage(AgentPage):
    """A page about one query at an agent, for those who may change it."""

    scope = "operate"

    def part(self, agent: Agent, query: str) -> tuple[AgentView, PipelineAt]:
        view = AgentView(self.cluster, agent)
        found = next((one for one in view.pipelines if one.query == query), None)
        if found is None:
            raise Missing(f"Agent {agent.name!r} has no part in {query!r}.", [("query", f"{query!r} is not assigned")])
        return view, found


class AgentEnable(AgentPage):
    """POST: disable or enable."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        enabled = request.POST.get("enabled") == "yes"
        agent_update(agent=self.agent(name), enabled=enabled)
        text = f"{name} is enabled." if enabled else f"{name} is disabled: what it sends is refused."
        return done(request, text, "pages:agent", slug, name)


class AgentRemove(AgentPage):
    """POST: forget an agent."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        agent = self.agent(name)
        try:
            agent_delete(agent=agent)
        except Conflict as refusal:
            return self.shown(agent, refusal.status, notice=refusal.message)
        return done(request, f"{name} is removed; it may join again with a token.", "pages:sources", slug)
