"""The placement page of a cluster: where everything is, a search, earlier runs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.pages.base import ClusterPage, try_service
from apps.pages.placement_forms import RULES, Rule, SearchForm
from apps.pages.placement_nodes import NodesNow
from apps.pages.placement_rows import runs_table
from apps.pages.placement_words import finding_words
from apps.placements.asking import objective_usual
from apps.placements.models import PlacementRun
from apps.placements.selectors import placements_visible
from apps.placements.services import placement_request
from apps.queries.choices import QueryState
from apps.queries.engine_rows import operator_id
from apps.queries.models import Operator

__all__ = ["PickPart", "PlacementPage", "RulePart", "RunsPage"]

_LATEST = 5
_PICKS = 30


class PlacementPage(ClusterPage):
    """`/c/<slug>/placement/`"""

    template_name = "pages/placement/now.html"
    write_scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self._shown(SearchForm(initial={"objective": objective_usual(self.cluster)}))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = SearchForm(request.POST)
        if form.is_valid():
            run, ok = try_service(form, lambda: self._ask(form), {"constraints.max_moves": "max_moves"})
            if ok:
                return redirect("pages:placement-run", slug, run.pk)
        return self._shown(form, 422)

    def _ask(self, form: SearchForm) -> PlacementRun:
        run, _ = placement_request(cluster=self.cluster, user=self.request.user, **form.asked(self.cluster))
        return run

    def _shown(self, form: SearchForm, status: int = 200) -> HttpResponse:
        now = NodesNow(self.request, self.cluster)
        runs = placements_visible().filter(cluster=self.cluster)[:_LATEST]
        context = {
            "form": form,
            "now": now,
            "rules": RULES,
            "runs": [{"run": run, "words": finding_words(run)} for run in runs],
            "has_running": self.cluster.queries.filter(state=QueryState.RUNNING).exists(),
            "rest_body": {"cluster": self.cluster.slug, "budget_s": 5},
        }
        return self.page(context, status)


class RunsPage(ClusterPage):
    """`/c/<slug>/placement/runs/`"""

    template_name = "pages/placement/runs.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = runs_table(request, self.cluster)
        return table.csv_response() if table.wants_csv else self.page({"table": table})


class RulePart(ClusterPage):
    """One more line for the constraints of a search."""

    template_name = "pages/placement/rule.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page({"rule": Rule(), "rules": RULES})


class PickPart(ClusterPage):
    """Names that contain what was typed so far, for a field's suggestions."""

    template_name = "pages/placement/picks.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        typed = (request.GET.get("rule_operator") or request.GET.get("rule_other") or "").strip()
        operators = list(self._operators(typed))
        is_other = "rule_other" in request.GET
        nodes = self.cluster.nodes.filter(name__icontains=typed).values_list("name", flat=True)[:_PICKS]
        return self.page({"names": [*nodes, *operators][:_PICKS] if is_other else operators})

    def _operators(self, typed: str) -> Any:
        query, _, name = typed.partition("/")
        rows = Operator.objects.filter(version__running_as__cluster=self.cluster)
        if name or "/" in typed:
            rows = rows.filter(version__query__name__icontains=query, name__icontains=name)
        elif typed:
            rows = rows.filter(version__query__name__icontains=typed) | rows.filter(name__icontains=typed)
        names = rows.order_by("version__query__name", "position").values_list("version__query__name", "name")
        return (operator_id(*pair) for pair in names[:_PICKS])
