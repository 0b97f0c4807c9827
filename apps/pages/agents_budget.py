"""The CPU an agent may use: a slider whose consequences are reckoned while it moves, and saving it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.pages.agents import AgentPage
from apps.pages.agents_view import AgentView
from apps.pages.base import done, try_service
from apps.pages.sources_forms import AgentForm
from apps.telemetry.services import agent_update

__all__ = ["AgentBudget", "BudgetPreview"]


class BudgetPreview(AgentPage):
    """`…/budget/preview/?budget_cores=0.3`: a part of the page, what would follow from a budget."""

    scope = "operate"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        agent = self.agent(name)
        form = AgentForm(request.GET, agent=agent)
        context = {"agent": agent, "budget": form}
        if form.is_valid():
            cores = form.cleaned_data["budget_cores"]
            context["forecast"] = AgentView(self.cluster, agent).forecast(cores)
            context["is_same"] = abs(cores - agent.budget_cores) < 1e-9
        return self.page(context, template="pages/sources/budget_preview.html")


class AgentBudget(AgentPage):
    """POST: what it may use from now on."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        agent = self.agent(name)
        form = AgentForm(request.POST, agent=agent)
        if form.is_valid():
            _, ok = try_service(form, lambda: agent_update(agent=agent, **form.cleaned_data))
            if ok:
                text = f"{name} may use {form.cleaned_data['budget_cores']:g} cores; its load factors settle now."
                return done(request, text, "pages:agent", slug, name)
        return self.shown(self.agent(name), 422, budget=form)
