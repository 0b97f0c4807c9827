"""The plans tab of a query: compare, look at the ranking, take a plan over."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Impossible, Malformed, Missing
from apps.pages.base import done
from apps.pages.plans.facts import ComparisonFacts, history_words
from apps.pages.queries.views import QueryTab
from apps.planning.choices import PlanPlacement, RunState
from apps.planning.models import PlanComparison
from apps.planning.plans import PLANS, comparison_latest, comparison_under_way, plan_adopt
from apps.queries.models import Query
from apps.queries.selectors import query_by_name
from apps.ui.feedback import toast

__all__ = ["CompareForm", "PlanAdopt", "PlansCompare", "PlansTab"]

_HISTORY = 20


class CompareForm(forms.Form):
    """Form of a comparison: where plans are judged, and what is known of the engine's queues."""

    places = forms.ChoiceField(
        label="Placement",
        choices=PlanPlacement.choices,
        help_text="Kept places show the difference the plan alone makes.",
    )
    capacity_cps = forms.FloatField(
        label="One node instead",
        required=False,
        min_value=1.0,
        help_text="Judge the plans alone on one core of this capacity, as the paper does.",
    )
    hop_cycles = forms.FloatField(
        label="Cost of a queue",
        required=False,
        min_value=0.0,
        help_text="Cycles an event spends between two operators. Without it nothing is fused.",
    )

    @property
    def values(self) -> dict[str, object]:
        values = self.cleaned_data
        return {
            "places": values["places"],
            "capacity_cps": values["capacity_cps"],
            "hop_cycles": values["hop_cycles"] or 0.0,
        }


class PlansTab(QueryTab):
    """`/c/<slug>/queries/<name>/plans/`; `?comparison=` shows an earlier one."""

    template_name = "pages/plans/tab.html"
    tab = "plans"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.shown(name)

    def shown(self, name: str, *, form: CompareForm | None = None, notice: str = "", status: int = 200) -> HttpResponse:
        detail = self.detail(name)
        query = detail.query
        comparison = _comparison(query, self.request.GET.get("comparison", ""))
        notes = dict(query.versions.values_list("number", "note"))
        history = list(PLANS.visible().filter(query=query)[:_HISTORY])
        context = {
            "view": ComparisonFacts(comparison, notes) if comparison is not None else None,
            "versions": len(notes),
            "under_way": comparison_under_way(query),
            "failed": history[0] if history and history[0].state == RunState.FAILED else None,
            "history": [(row, history_words(row)) for row in history],
            "settings": form or CompareForm(initial=_settings(comparison)),
            "notice": notice,
            "rest_body": _settings(comparison),
        }
        return self.show(detail, status, **context)


def _comparison(query: Query, comparison_id: str) -> PlanComparison | None:
    """The comparison of the address, or the newest with a ranking."""
    if not comparison_id:
        return comparison_latest(query)
    try:
        comparison = PLANS.visible().filter(query=query, pk=UUID(comparison_id), state=RunState.DONE).first()
    except ValueError:
        comparison = None
    if comparison is None:
        raise Missing(
            f"Query {query.name} has no such comparison.", [("comparison", f"{comparison_id!r} has no ranking")]
        )
    return comparison


def _settings(comparison: PlanComparison | None) -> dict[str, Any]:
    if comparison is None:
        return {"places": str(PlanPlacement.KEEP), "hop_cycles": 0.0}
    kept: dict[str, object] = {"places": str(comparison.places), "hop_cycles": comparison.hop_cycles}
    return kept | ({"capacity_cps": comparison.capacity_cps} if comparison.capacity_cps else {})


class PlansCompare(PlansTab):
    """POST: compare now, by the settings of the form or, without one, those of the last comparison."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        query = query_by_name(self.cluster, name)
        is_form = "places" in request.POST
        form = CompareForm(request.POST if is_form else _settings(comparison_latest(query)))
        if not form.is_valid():
            return self.shown(name, form=form, notice="The settings cannot be used; open them to see why.", status=422)
        try:
            PLANS.request(query=query, user=signed_in_user(request), **form.values)
        except (Malformed, Impossible) as error:
            return self.shown(name, notice=error.message, status=422)
        return done(request, f"The plans of {name} are being compared.", "pages:query-plans", slug, name)


class PlanAdopt(PlansTab):
    """POST: a plan becomes a version, and its admission is the next page. Nothing that runs changes."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        comparison = _comparison(query_by_name(self.cluster, name), request.POST.get("comparison", ""))
        if comparison is None:
            return self.shown(name, notice="There is no comparison yet; compare first.", status=422)
        try:
            version = plan_adopt(comparison=comparison, plan=request.POST.get("plan", ""), user=signed_in_user(request))
        except Conflict as error:
            return self.shown(name, notice=error.message, status=error.status)
        toast(request, f"Version {version.number} of {name} is stored. Preview it: nothing runs differently yet.")
        address = reverse("pages:admission-new", args=[slug])
        return redirect(f"{address}?{urlencode({'query': name, 'version': version.number})}")
