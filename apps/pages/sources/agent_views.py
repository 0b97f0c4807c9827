"""Agents: one with its budget, load factors and method; several changed at once; each change with a preview."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Impossible, Malformed, Missing, SluiceError
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.sources.agent_facts import AgentPageFacts, PipelineAt
from apps.pages.sources.agent_predictions import AgentPrediction, BulkPlan, BulkQuery, bulk_queries
from apps.pages.sources.agent_tables import AdaptingForm, AgentLine, FactorsForm, agent_lines
from apps.pages.sources.views import AgentForm
from apps.rollouts.models import Rollout, RolloutState
from apps.rollouts.rollout_selectors import rollouts_listed
from apps.rollouts.rollout_services import canaries_add
from apps.telemetry.agent_services import agent_delete, agent_update
from apps.telemetry.configs import fixed_settings
from apps.telemetry.live_services import assignment_set
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named
from apps.ui.numbers import byte_rate, percent, rate, ratio, significant
from engine.words import counted

__all__ = [
    "AgentBudget",
    "AgentEnable",
    "AgentFactors",
    "AgentGiveBack",
    "AgentMethod",
    "AgentPage",
    "AgentRemove",
    "AgentsChange",
    "BudgetPreview",
]


class AgentPage(ClusterPage):
    """`/c/<slug>/sources/agents/<name>/`"""

    template_name = "pages/sources/agents/page.html"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.shown(self.agent(name))

    @property
    def picked(self) -> str:
        """The query whose pipeline is asked for."""
        return self.request.GET.get("query", "")

    def agent(self, name: str) -> Agent:
        return agent_named(self.cluster, name)

    def shown(self, agent: Agent, status: int = 200, **context: Any) -> HttpResponse:
        view = AgentPageFacts(self.cluster, agent, self.picked)
        shared = {"agent": agent, "view": view, "budget": AgentForm(agent=agent)}
        return self.page({**shared, **context}, status)


class AgentQueryPage(AgentPage):
    """A page about one query at an agent, for those who may change it."""

    scope = "operate"

    def part(self, agent: Agent, query: str) -> tuple[AgentPageFacts, PipelineAt]:
        view = AgentPageFacts(self.cluster, agent)
        part = next((pipeline for pipeline in view.pipelines if pipeline.query == query), None)
        if part is None:
            raise Missing(f"Agent {agent.name!r} has no part in {query!r}.", [("query", f"{query!r} is not assigned")])
        return view, part


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


class BudgetPreview(AgentPage):
    """`…/budget/preview/?budget_cores=0.3`: a part of the page, what would follow from a budget."""

    scope = "operate"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        agent = self.agent(name)
        form = AgentForm(request.GET, agent=agent)
        context = {"agent": agent, "budget": form}
        if form.is_valid():
            cores = form.cleaned_data["budget_cores"]
            context["forecast"] = AgentPageFacts(self.cluster, agent).forecast(cores)
            context["is_same"] = abs(cores - agent.budget_cores) < 1e-9
        return self.page(context, template="pages/sources/agents/budget_preview.html")


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


@dataclass(frozen=True)
class FactorsPreview:
    """Prediction of load factors from the records of the last minutes."""

    view: AgentPageFacts
    part: PipelineAt
    factors: list[float]

    @property
    def changes(self) -> list[tuple[str, float, float]]:
        """(operator, now, then) of what would be different."""
        rows = [
            (stage.name, stage.factor or 0.0, then) for stage, then in zip(self.part.own, self.factors, strict=True)
        ]
        return [row for row in rows if abs(row[1] - row[2]) > 1e-9]

    @property
    def applies(self) -> bool:
        """Whether anything would change: what the agent found by itself may be kept by hand, too."""
        return bool(self.changes) or not self.part.assignment.by_hand

    @cached_property
    def forecast(self) -> AgentPrediction:
        budget = self.view.agent.budget_cores
        return self.view.forecast(budget, settings={self.part.assignment.pk: fixed_settings(self.factors)})

    @property
    def is_known(self) -> bool:
        return self.part.query not in self.forecast.unknown

    @property
    def words(self) -> str:
        if not self.applies:
            return "These are the load factors it has already."
        if not self.is_known:
            return "A prediction needs costs, measured once each operator has processed records."
        words = prediction_words(self.forecast)
        return words if self.changes else f"It would keep these load factors from now on. {words}"

    @property
    def is_over(self) -> bool:
        """Whether more is asked of the agent than it may use."""
        return self.is_known and self.forecast.overflow > 0.005

    @property
    def rate(self) -> str:
        return str(rate(self.part.flow.in_eps)) if self.part.flow else ""


def prediction_words(forecast: AgentPrediction) -> str:
    """Bytes, share saved and CPU, then and now."""
    sent = f"It would send {byte_rate(forecast.sent_then)} instead of {byte_rate(forecast.sent_now)}"
    saved = f"{percent(forecast.saved_then)} of bytes saved instead of {percent(forecast.saved_now)}"
    used = f"It would use {significant(forecast.cpu_then)} instead of {significant(forecast.cpu_now)} cores"
    return f"{sent}, {saved}. {used} of the {ratio(forecast.budget_cores)} that it may."


class AgentFactors(AgentQueryPage):
    """`…/load-factors/<query>/`: type, preview what would change, apply."""

    template_name = "pages/sources/agents/factors.html"

    def get(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        _, part = self.part(agent, query)
        return self.answer(agent, part, FactorsForm(operators=part.operators))

    def post(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        view, part = self.part(agent, query)
        form = FactorsForm(request.POST, operators=part.operators)
        if not form.is_valid():
            return self.answer(agent, part, form, 422)
        if "apply" not in request.POST:
            return self.answer(agent, part, form, preview=FactorsPreview(view, part, form.values))
        try:
            assignment_set(live=part.assignment.live, agent=agent, settings=fixed_settings(form.values))
        except (Malformed, Conflict, Impossible) as refusal:
            return self.answer(agent, part, form, refusal.status, notice=refusal.message)
        return done(request, f"{name} gets new load factors for {query}.", "pages:agent", slug, name)

    def answer(self, agent: Any, part: PipelineAt, form: FactorsForm, status: int = 200, **more: Any) -> HttpResponse:
        now = [factor or 0.0 for _, factor in part.operators]
        rest: Mapping[str, object] = {"assignments": [{"agent": agent.name, "settings": fixed_settings(now)}]}
        return self.page({"agent": agent, "part": part, "form": form, "rest_body": rest, **more}, status)


class AgentGiveBack(AgentQueryPage):
    """POST: the agent finds the load factors of a query by itself again."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        _, part = self.part(agent, query)
        assignment_set(live=part.assignment.live, agent=agent, settings={})
        return done(request, f"{name} finds the load factors of {query} by itself again.", "pages:agent", slug, name)


class AgentMethod(AgentQueryPage):
    """`…/adapting/<query>/`: choose, preview, apply."""

    template_name = "pages/sources/agents/method.html"

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


_TITLES = {
    "factors": "Load factors of {}",
    "budget": "CPU budget of {}",
    "canary": "Add {} to the canaries",
}


class AgentsChange(ClusterPage):
    """`…/change/?what=budget&row=edge-1&row=edge-2`: choose, preview, apply."""

    template_name = "pages/sources/agents/change.html"
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
                report = self.apply(what, lines, form, is_back="back" in request.POST)
        except SluiceError as refusal:
            return self.answer(what, lines, form, refusal.status, notice=refusal.message)
        return done(request, report, "pages:sources", slug)

    def chosen(self, data: Any) -> tuple[list[AgentLine], str]:
        """The agents that were ticked, and what is to be changed of them."""
        what, names = data.get("what", ""), data.getlist("row")
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
            largest = max(lines, key=lambda line: line.agent.cores).agent
            return AgentForm(data, agent=largest)
        if what == "canary":
            return forms.Form(data or {}) if self.rollout else None
        chosen = self.query(lines, query)
        return FactorsForm(data, operators=chosen.operators) if chosen else None

    def query(self, lines: list[AgentLine], name: str) -> BulkQuery | None:
        """The query whose load factors are set: the one asked for, else the first that most of them run."""
        queries = bulk_queries(lines)
        largest = max(queries, key=lambda query: len(query.parts), default=None)
        return next((query for query in queries if query.name == name), largest)

    @property
    def rollout(self) -> Rollout | None:
        """The one that takes canaries."""
        open_ones = rollouts_listed(self.cluster).filter(state__in=(RolloutState.CANARY, RolloutState.WAITING))
        return open_ones.order_by("created_at").first()

    def apply(self, what: str, lines: list[AgentLine], form: Any, *, is_back: bool) -> str:
        if what == "budget":
            for line in lines:
                agent_update(agent=line.agent, budget_cores=form.cleaned_data["budget_cores"])
            cores = f"{form.cleaned_data['budget_cores']:g}"
            if len(lines) == 1:
                return f"1 agent may use {cores} cores; its load factors settle now."
            return f"{len(lines)} agents may use {cores} cores each; their load factors settle now."
        if what == "canary":
            row = self.rollout
            assert row is not None  # the form needs one
            canaries_add(rollout=row, agents=[line.agent for line in lines], user=signed_in_user(self.request))
            if len(lines) == 1:
                return f"1 agent is among the canaries of {row.config.name} now."
            return f"{len(lines)} agents are among the canaries of {row.config.name} now."
        query = self.query(lines, self.request.POST.get("query", ""))
        assert query is not None
        for part in query.parts:
            assignment_set(live=part.live, agent=part.agent, settings={} if is_back else fixed_settings(form.values))
        agents = len(query.parts)
        if is_back and agents == 1:
            return f"1 agent finds the load factors of {query.name} again."
        if is_back:
            return f"{agents} agents find the load factors of {query.name} again."
        if agents == 1:
            return f"1 agent gets new load factors for {query.name}."
        return f"{agents} agents get new load factors for {query.name}."

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


def _rest(slug: str, plan: BulkPlan) -> tuple[str, str, dict[str, object]]:
    """The REST call that does the same: method, path, body; budgets take one for each agent."""
    names = [line.agent.name for line in plan.lines]
    if plan.rollout is not None:
        path = f"/api/v1/clusters/{slug}/rollouts/{plan.rollout.config.number}/canaries"
        return "POST", path, {"agents": names}
    if plan.query is not None and plan.what == "factors":
        settings = fixed_settings([factor or 0.0 for _, factor in plan.query.operators])
        parts = [{"agent": part.agent.name, "settings": settings} for part in plan.query.parts]
        return "PATCH", f"/api/v1/live-queries/{plan.query.parts[0].live.pk}", {"assignments": parts}
    return "PATCH", f"/api/v1/agents/{plan.lines[0].agent.pk}", {"budget_cores": plan.lines[0].agent.budget_cores}
