"""How an agent finds the load factors of a query: method and parameters, and what they would come to now."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.pages.adapting_forms import AdaptingForm
from apps.pages.agents import AgentQueryPage
from apps.pages.agents_view import PipelineAt
from apps.pages.base import done, try_service
from apps.telemetry.services import assignment_set

__all__ = ["AgentMethod"]


class AgentMethod(AgentQueryPage):
    """`…/adapting/<query>/`: choose, preview, apply."""

    template_name = "pages/sources/method.html"

    def get(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        _, part = self.part(agent, query)
        return self.answer(agent, part, AdaptingForm(current=part.assignment.settings))

    def post(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        view, part = self.part(agent, query)
        form = AdaptingForm(request.POST, current=part.assignment.settings)
        if not form.is_valid():
            return self.answer(agent, part, form, 422)
        if "apply" not in request.POST:
            forecast = view.forecast(agent.budget_cores, settings={part.assignment.pk: form.settings})
            return self.answer(agent, part, form, forecast=forecast, settings=form.settings)
        live, names = part.assignment.live, {f"settings.{field}": field for field in form.fields}
        _, ok = try_service(form, lambda: assignment_set(live=live, agent=agent, settings=form.settings), names)
        if not ok:
            return self.answer(agent, part, form, 422)
        return done(request, f"{name} adapts {query} so from its next epoch on.", "pages:agent", slug, name)

    def answer(self, agent: Any, part: PipelineAt, form: AdaptingForm, status: int = 200, **more: Any) -> HttpResponse:
        body = {"assignments": [{"agent": agent.name, "settings": more.get("settings", part.assignment.settings)}]}
        return self.page({"agent": agent, "part": part, "form": form, "rest_body": body, **more}, status)
