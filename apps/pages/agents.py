"""The page of one agent, and what is changed there: load factors after a preview, budget, enabled or not, removal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from apps.core.errors import Conflict, Impossible, Malformed, Missing
from apps.pages.agents_view import AgentView, PipelineAt
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.sources_forms import AgentForm
from apps.telemetry.adapting import fixed
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named
from apps.telemetry.services import agent_delete, agent_update, assignment_set
from apps.ui.numbers import bytes_size, percent, rate, significant

__all__ = ["AgentEnable", "AgentFactors", "AgentPage", "AgentRemove", "AgentSettings"]


class AgentPage(ClusterPage):
    """`/c/<slug>/sources/agents/<name>/`"""

    template_name = "pages/sources/agent.html"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.shown(self.agent(name))

    def agent(self, name: str) -> Agent:
        return agent_named(self.cluster, name)

    def shown(self, agent: Agent, status: int = 200, **context: Any) -> HttpResponse:
        shared = {
            "agent": agent,
            "view": AgentView(self.cluster, agent),
            "settings": AgentForm(initial={"budget_cores": agent.budget_cores}),
        }
        return self.page({**shared, **context}, status)


class AgentSettings(AgentPage):
    """POST: change the CPU budget."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        agent, form = self.agent(name), AgentForm(request.POST)
        if form.is_valid():
            _, ok = try_service(form, lambda: agent_update(agent=agent, **form.cleaned_data))
            if ok:
                budget = form.cleaned_data["budget_cores"]
                return done(
                    request, f"{name} may use {budget:g} cores from its next report on.", "pages:agent", slug, name
                )
        return self.shown(self.agent(name), 422, settings=form)


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


class FactorsForm(forms.Form):
    """One number for each operator that may run at the source."""

    def __init__(self, *args: Any, part: PipelineAt, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.part = part
        for place, stage in enumerate(self.own):
            self.fields[f"f{place}"] = forms.FloatField(
                label=stage.name, min_value=0.0, max_value=1.0, initial=round(stage.factor or 0.0, 4)
            )

    @property
    def own(self) -> list[Any]:
        return [stage for stage in self.part.stages if stage.factor is not None]

    @property
    def values(self) -> list[float]:
        return [self.cleaned_data[f"f{place}"] for place in range(len(self.own))]

    @property
    def rows(self) -> list[tuple[Any, Any, str]]:
        """(field, operator, what stands in the field)."""
        bound = [(self[f"f{place}"], stage) for place, stage in enumerate(self.own)]
        return [(one, stage, one.value() if self.is_bound else f"{one.value():g}") for one, stage in bound]

    @property
    def rest_body(self) -> dict[str, Any]:
        """The call that sets what the agent has now."""
        factors = [stage.factor for stage in self.own]
        return {"assignments": [{"agent": self.part.agent.name, "settings": fixed(factors)}]}


@dataclass(frozen=True)
class FactorsPreview:
    """What would follow from other load factors, reckoned with what came lately."""

    part: PipelineAt
    factors: list[float]

    @property
    def changes(self) -> list[tuple[str, float, float]]:
        """(operator, now, then) of what would be different."""
        own = [stage for stage in self.part.stages if stage.factor is not None]
        pairs = [(stage.name, stage.factor or 0.0, then) for stage, then in zip(own, self.factors, strict=True)]
        return [row for row in pairs if abs(row[1] - row[2]) > 1e-9]

    @cached_property
    def reckoned(self) -> tuple[float, float, float, float] | None:
        """(sent bytes/s now, then, CPU in cores now, then); None without statistics."""
        flow = self.part.flow
        if flow is None or not flow.in_eps:
            return None
        now = [stage.factor or 0.0 for stage in self.part.stages if stage.factor is not None]
        known = [_Step.of(one) for one in flow.operators]
        if len(known) < len(self.factors) or any(step is None for step in known[: len(self.factors)]):
            return None
        steps = [step for step in known[: len(self.factors)] if step is not None]
        sent_now, cpu_now = _walk(flow.in_eps, now, steps)
        sent, cpu = _walk(flow.in_eps, self.factors, steps)
        return sent_now, sent, cpu_now, cpu

    @property
    def words(self) -> str:
        if not self.changes:
            return "These are the load factors it has already."
        if self.reckoned is None:
            return (
                "What follows can be reckoned once each operator has taken records: their costs are not measured yet."
            )
        sent_now, sent, cpu_now, cpu = self.reckoned
        whole = self.part.flow.in_bytes_s if self.part.flow else 0.0
        saved = (
            f", {percent(1 - sent / whole)} of bytes saved instead of {percent(1 - sent_now / whole)}" if whole else ""
        )
        used = f"CPU of this query would go from {significant(cpu_now)} to {significant(cpu)} cores"
        return f"It would send {bytes_size(sent, '/s')} instead of {bytes_size(sent_now, '/s')}{saved}. {used}."

    @property
    def is_over(self) -> bool:
        """Whether this query alone would take more than the agent may use."""
        return self.reckoned is not None and self.reckoned[3] > self.part.agent.budget_cores

    @property
    def rate(self) -> str:
        return str(rate(self.part.flow.in_eps)) if self.part.flow else ""


@dataclass(frozen=True)
class _Step:
    """One operator: records out per record taken, bytes per record in and out, CPU seconds per record."""

    selectivity: float
    in_bytes: float
    out_bytes: float
    cpu_s: float

    @classmethod
    def of(cls, flow: Any) -> _Step | None:
        if not flow.processed_eps or not flow.in_eps:
            return None
        outs = flow.out_eps
        return cls(
            outs / flow.processed_eps,
            flow.in_bytes_s / flow.in_eps,
            flow.out_bytes_s / outs if outs else 0.0,
            flow.cpu_cores / flow.processed_eps,
        )


def _walk(in_eps: float, factors: list[float], steps: list[_Step]) -> tuple[float, float]:
    """Bytes/s that leave and cores used, when records walk through operators of constant selectivity and cost."""
    came, sent, cpu = in_eps, 0.0, 0.0
    for factor, step in zip(factors, steps, strict=True):
        sent += came * (1 - factor) * step.in_bytes
        cpu += came * factor * step.cpu_s
        came *= factor * step.selectivity
    return sent + came * (steps[-1].out_bytes if steps else 0.0), cpu


class AgentFactors(AgentPage):
    """`…/load-factors/<query>/`: type, preview what would change, apply."""

    template_name = "pages/sources/factors.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        part = self.part(agent, query)
        return self.page({"agent": agent, "part": part, "form": FactorsForm(part=part)})

    def post(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        part = self.part(agent, query)
        form = FactorsForm(request.POST, part=part)
        context: dict[str, Any] = {"agent": agent, "part": part, "form": form}
        if not form.is_valid():
            return self.page(context, 422)
        if "apply" not in request.POST:
            return self.page({**context, "preview": FactorsPreview(part, form.values)})
        try:
            assignment_set(live=part.assignment.live, agent=agent, settings=fixed(form.values))
        except (Malformed, Conflict, Impossible) as refusal:
            return self.page({**context, "notice": refusal.message}, refusal.status)
        return done(request, f"{name} gets new load factors for {query}.", "pages:agent", slug, name)

    def part(self, agent: Agent, query: str) -> PipelineAt:
        view = AgentView(self.cluster, agent)
        found = next((one for one in view.pipelines if one.query == query), None)
        if found is None:
            raise Missing(f"Agent {agent.name!r} has no part in {query!r}.", [("query", f"{query!r} is not assigned")])
        return found
