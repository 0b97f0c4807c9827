"""Several agents at once: load factors by hand, a budget, canaries. What would follow is shown for each first."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from apps.core.errors import Malformed, Missing, SluiceError
from apps.pages.agents_bulk_plan import BulkPlan, BulkQuery, bulk_queries
from apps.pages.agents_factors import FactorsForm
from apps.pages.agents_rows import AgentLine, agent_lines
from apps.pages.base import ClusterPage, done
from apps.pages.sources_forms import AgentForm
from apps.refinement.choices import RolloutState
from apps.refinement.models import Rollout
from apps.refinement.selectors import rollouts_listed
from apps.refinement.services import canaries_add
from apps.telemetry.adapting import fixed
from apps.telemetry.services import agent_update, assignment_set
from apps.ui.numbers import counted

__all__ = ["AgentsChange"]

_TITLES = {
    "factors": "Load factors of {}",
    "budget": "CPU budget of {}",
    "canary": "Add {} to the canaries",
}


class AgentsChange(ClusterPage):
    """`…/change/?what=budget&row=edge-1&row=edge-2`: choose, preview, apply."""

    template_name = "pages/sources/change.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        lines, what = self.chosen(request.GET)
        return self.answer(what, lines, self.form(what, lines, request.GET.get("query", "")))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        lines, what = self.chosen(request.POST)
        form = self.form(what, lines, request.POST.get("query", ""), request.POST)
        if form is None or not form.is_valid():
            return self.answer(what, lines, form, 422)
        if "apply" not in request.POST and "back" not in request.POST:
            return self.answer(what, lines, form, is_preview=True)
        try:
            with transaction.atomic():
                said = self.apply(what, lines, form, is_back="back" in request.POST)
        except SluiceError as refusal:
            return self.answer(what, lines, form, refusal.status, notice=refusal.message)
        return done(request, said, "pages:sources", slug)

    def chosen(self, given: Any) -> tuple[list[AgentLine], str]:
        """The agents that were ticked, and what is to be changed of them."""
        what, names = given.get("what", ""), given.getlist("row")
        if what not in _TITLES:
            raise Malformed(f"what is {what!r}; allowed: {', '.join(_TITLES)}.", [("what", f"{what!r} is not known")])
        lines = {line.agent.name: line for line in agent_lines(self.cluster)}
        unknown = [name for name in names if name not in lines]
        if unknown:
            raise Missing(f"Cluster {self.slug!r} has no agent {unknown[0]!r}.")
        return [lines[name] for name in dict.fromkeys(names)], what

    def form(self, what: str, lines: list[AgentLine], query: str, data: Any = None) -> forms.Form | None:
        """None where there is nothing to be changed: no agent, no query, no rollout that takes canaries."""
        if not lines:
            return None
        if what == "budget":
            most = max(lines, key=lambda line: line.agent.cores).agent
            return AgentForm(data, agent=most)
        if what == "canary":
            return forms.Form(data or {}) if self.rollout else None
        chosen = self.query(lines, query)
        return FactorsForm(data, operators=chosen.operators) if chosen else None

    def query(self, lines: list[AgentLine], name: str) -> BulkQuery | None:
        """The query whose load factors are set: the one asked for, else the first that most of them run."""
        found = bulk_queries(lines)
        most = max(found, key=lambda one: len(one.parts), default=None)
        return next((one for one in found if one.name == name), most)

    @property
    def rollout(self) -> Rollout | None:
        """The one that takes canaries."""
        open_ones = rollouts_listed(self.cluster).filter(state__in=(RolloutState.CANARY, RolloutState.WAITING))
        return open_ones.order_by("created_at").first()

    def apply(self, what: str, lines: list[AgentLine], form: Any, *, is_back: bool) -> str:
        who = counted(len(lines), "agent")
        if what == "budget":
            for line in lines:
                agent_update(agent=line.agent, budget_cores=form.cleaned_data["budget_cores"])
            return f"{who} may use {form.cleaned_data['budget_cores']:g} cores each; their load factors settle now."
        if what == "canary":
            row = self.rollout
            assert row is not None  # the form needs one
            canaries_add(rollout=row, agents=[line.agent for line in lines], user=self.request.user)
            return f"{who} {'is' if len(lines) == 1 else 'are'} among the canaries of {row.config.name} now."
        query = self.query(lines, self.request.POST.get("query", ""))
        assert query is not None
        for part in query.parts:
            assignment_set(live=part.live, agent=part.agent, settings={} if is_back else fixed(form.values))
        who = counted(len(query.parts), "agent")
        if is_back:
            return f"{who} {'finds' if len(query.parts) == 1 else 'find'} the load factors of {query.name} again."
        return f"{who} {'gets' if len(query.parts) == 1 else 'get'} new load factors for {query.name}."

    def answer(
        self, what: str, lines: list[AgentLine], form: Any, status: int = 200, *, is_preview: bool = False, **more: Any
    ) -> HttpResponse:
        query = self.query(lines, self.request.GET.get("query") or self.request.POST.get("query", ""))
        plan = BulkPlan(self.cluster, what, lines, form, query, self.rollout if what == "canary" else None)
        context = {
            "what": what,
            "lines": lines,
            "title": _TITLES[what].format(counted(len(lines), "agent")),
            "form": form,
            "plan": plan,
            "is_preview": is_preview,
            "queries": bulk_queries(lines) if what == "factors" else [],
            "rest": _rest(self.slug, plan) if not plan.refusal else None,
        }
        return self.page({**context, **more}, status)


def _rest(slug: str, plan: BulkPlan) -> tuple[str, str, dict[str, Any]]:
    """The REST call that does the same: method, path, body; budgets take one for each agent."""
    names = [line.agent.name for line in plan.lines]
    if plan.rollout is not None:
        path = f"/api/v1/clusters/{slug}/rollouts/{plan.rollout.config.number}/canaries"
        return "POST", path, {"agents": names}
    if plan.query is not None and plan.what == "factors":
        settings = fixed([factor or 0.0 for _, factor in plan.query.operators])
        parts = [{"agent": part.agent.name, "settings": settings} for part in plan.query.parts]
        return "PATCH", f"/api/v1/live-queries/{plan.query.parts[0].live.pk}", {"assignments": parts}
    return "PATCH", f"/api/v1/agents/{plan.lines[0].agent.pk}", {"budget_cores": plan.lines[0].agent.budget_cores}
