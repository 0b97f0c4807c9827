"""Load factors by hand: typed or slid, previewed, applied; and given back to the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from apps.core.errors import Conflict, Impossible, Malformed
from apps.pages.agents import AgentQueryPage
from apps.pages.agents_predict import Forecast
from apps.pages.agents_view import AgentView, PipelineAt
from apps.pages.base import done
from apps.telemetry.adapting import fixed
from apps.telemetry.services import assignment_set
from apps.ui.numbers import bytes_size, percent, rate, ratio, significant

__all__ = ["AgentFactors", "AgentGiveBack", "FactorsForm", "forecast_words"]


class FactorsForm(forms.Form):
    """One number for each operator that may run at the source: its id, and what it is now where that is known."""

    def __init__(self, *args: Any, operators: list[tuple[str, float | None]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.operators = operators
        for place, (name, now) in enumerate(operators):
            self.fields[f"f{place}"] = forms.FloatField(
                label=name,
                min_value=0.0,
                max_value=1.0,
                initial=round(now or 0.0, 4),
                error_messages={
                    "required": "Enter 0 to 1.",
                    "invalid": "It is no number. Enter 0 to 1.",
                    "min_value": "A load factor is at least 0. Enter 0 to 1.",
                    "max_value": "A load factor is at most 1. Enter 0 to 1.",
                },
            )

    @property
    def values(self) -> list[float]:
        return [self.cleaned_data[f"f{place}"] for place in range(len(self.operators))]

    @property
    def rows(self) -> list[tuple[Any, float | None, str]]:
        """(field, what it is now, what stands in the field)."""
        bound = [(self[f"f{place}"], now) for place, (_, now) in enumerate(self.operators)]
        return [(one, now, one.value() if self.is_bound else f"{one.value():g}") for one, now in bound]


@dataclass(frozen=True)
class FactorsPreview:
    """What would follow from load factors, reckoned with what came lately."""

    view: AgentView
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
    def forecast(self) -> Forecast:
        budget = self.view.agent.budget_cores
        return self.view.forecast(budget, settings={self.part.assignment.pk: fixed(self.factors)})

    @property
    def is_known(self) -> bool:
        return self.part.query not in self.forecast.unknown

    @property
    def words(self) -> str:
        if not self.applies:
            return "These are the load factors it has already."
        if not self.is_known:
            return (
                "What follows can be reckoned once each operator has taken records: their costs are not measured yet."
            )
        kept = "" if self.changes else "It would keep these load factors whatever comes. "
        return kept + forecast_words(self.forecast)

    @property
    def is_over(self) -> bool:
        """Whether more is asked of the agent than it may use."""
        return self.is_known and self.forecast.overflow > 0.005

    @property
    def rate(self) -> str:
        return str(rate(self.part.flow.in_eps)) if self.part.flow else ""


def forecast_words(forecast: Forecast) -> str:
    """Bytes, share saved and CPU, then and now."""
    sent = f"It would send {bytes_size(forecast.sent_then, '/s')} instead of {bytes_size(forecast.sent_now, '/s')}"
    saved = f"{percent(forecast.saved_then)} of bytes saved instead of {percent(forecast.saved_now)}"
    used = f"It would use {significant(forecast.cpu_then)} instead of {significant(forecast.cpu_now)} cores"
    return f"{sent}, {saved}. {used} of the {ratio(forecast.budget_cores)} that it may."


class AgentFactors(AgentQueryPage):
    """`…/load-factors/<query>/`: type, preview what would change, apply."""

    template_name = "pages/sources/factors.html"

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
            assignment_set(live=part.assignment.live, agent=agent, settings=fixed(form.values))
        except (Malformed, Conflict, Impossible) as refusal:
            return self.answer(agent, part, form, refusal.status, notice=refusal.message)
        return done(request, f"{name} gets new load factors for {query}.", "pages:agent", slug, name)

    def answer(self, agent: Any, part: PipelineAt, form: FactorsForm, status: int = 200, **more: Any) -> HttpResponse:
        now = [factor or 0.0 for _, factor in part.operators]
        rest: Mapping[str, Any] = {"assignments": [{"agent": agent.name, "settings": fixed(now)}]}
        return self.page({"agent": agent, "part": part, "form": form, "rest_body": rest, **more}, status)


class AgentGiveBack(AgentQueryPage):
    """POST: the agent finds the load factors of a query by itself again."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str, query: str) -> HttpResponse:
        agent = self.agent(name)
        _, part = self.part(agent, query)
        assignment_set(live=part.assignment.live, agent=agent, settings={})
        return done(request, f"{name} finds the load factors of {query} by itself again.", "pages:agent", slug, name)
