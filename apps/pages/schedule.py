"""Sources, Schedule: how the queries of an agent share its core."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.pages.base import ClusterPage
from apps.pages.rollout_panel import RolloutPanel
from apps.pages.schedule_view import SPANS_S, ScheduleView, policy_said
from apps.pages.sources_tabs import source_tabs
from apps.refinement.selectors import rollout_now, schedules_of
from apps.telemetry.choices import AgentKind
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named, agents_listed
from apps.ui.tables import address

__all__ = ["SchedulePage"]

#: Agents from which on they are chosen from a menu.
_MENU_FROM = 8


class SchedulePage(ClusterPage):
    """`/c/<slug>/sources/schedule/`; `?agent=`, `?span=` in seconds, `?query=` whose watermarks are drawn."""

    template_name = "pages/schedule/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        agents = list(agents_listed().filter(cluster=self.cluster, kind=AgentKind.AGENT))
        chosen = self.chosen(agents)
        shared: dict[str, Any] = {"tabs": source_tabs(slug, "schedule"), "agents": agents}
        if chosen is None:
            return self.page({**shared, "view": None})
        view = ScheduleView(request, self.cluster, chosen, schedules_of(self.cluster).get(str(chosen.pk)))
        if view.table.wants_csv:
            return view.table.csv_response()
        return self.page({**shared, "view": view, **self.around(agents, view)})

    def chosen(self, agents: list[Agent]) -> Agent | None:
        """The agent asked for, else the first that says how it schedules."""
        if name := self.request.GET.get("agent"):
            return agent_named(self.cluster, name)
        return min(agents, key=lambda agent: (not policy_said(agent), agent.name), default=None)

    def around(self, agents: list[Agent], view: ScheduleView) -> dict[str, Any]:
        rollout = rollout_now(self.cluster)
        is_of_scheduling = rollout is not None and rollout.rollout.config.schedule is not None
        return {
            "rollout": RolloutPanel(rollout) if rollout is not None and is_of_scheduling else None,
            "as_menu": len(agents) >= _MENU_FROM,
            "chips": [
                (one, policy_said(one), address(self.request, agent=one.name, query=None), one.pk == view.agent.pk)
                for one in agents
            ],
            "spans": [(span, address(self.request, span=span), span == view.span_s) for span in SPANS_S],
        }
