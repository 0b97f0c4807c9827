"""What is done from the bench: scenarios saved, compared, deleted; searches asked; nodes added."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.errors import Malformed, Missing, Unavailable
from apps.pages.base import ClusterPage, done
from apps.pages.provisioning import Bench
from apps.pages.provisioning_inputs import inputs_query
from apps.pages.provisioning_scenarios import scenario_row
from apps.pages.provisioning_types import types_read
from apps.planning.choices import Find, Place
from apps.planning.inputs import Inputs
from apps.planning.models import Scenario
from apps.planning.selectors import scenarios_listed
from apps.planning.services import scenario_create, scenario_delete, what_if_request
from apps.ui.feedback import toast

__all__ = ["Compare", "FindNow", "ScenarioDelete", "ScenarioOpen", "ScenarioSave"]

_NOW = {"name": "Now", "changes": [], "place": str(Place.KEEP)}
_WITH_TYPES = {Find.CHEAPEST_MIX, Find.PARETO}


class ScenarioSave(ClusterPage):
    """POST: keep the bench's inputs and its chosen number of nodes under a name, and have them answered."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        bench = Bench(self)
        name = " ".join(request.POST.get("name", "").split())
        nodes = _chosen(bench)
        inputs = {**bench.inputs.options, "nodes": nodes}
        scenario = scenario_create(
            cluster=self.cluster,
            name=name,
            user=request.user,
            description=request.POST.get("description", "").strip(),
            changes=bench.question.changes(nodes),
            place=str(Place.SEARCH),
            inputs=inputs,
        )
        what_if_request(cluster=self.cluster, user=request.user, scenarios=[scenario.pk])
        toast(request, f"{scenario.name} is saved; its answer is on its way.")
        return redirect(reverse("pages:provisioning", args=[slug]) + inputs_query(bench.inputs, nodes=nodes))


def _chosen(bench: Bench) -> int:
    """The number asked for, or the one the bench would choose."""
    if bench.inputs.nodes is not None:
        return bench.inputs.nodes
    if bench.answer is None:
        raise Unavailable("The bench is still being prepared. Choose a number of nodes once it has answered.")
    return bench.answer.chosen.nodes


class ScenarioOpen(ClusterPage):
    """`/c/<slug>/provisioning/scenarios/<id>/`: on the bench again if it came from there, else its newest answer."""

    template_name = "pages/provisioning/scenario.html"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        scenario = _scenario(self, pk)
        bench_url = ""
        if scenario.inputs:
            inputs = Inputs.of(scenario.inputs)
            page = reverse("pages:provisioning", args=[slug])
            bench_url = page + inputs_query(inputs, nodes=scenario.inputs.get("nodes"))
        rest_path = f"/api/v1/scenarios/{scenario.pk}"
        row = scenario_row(scenario)
        return self.page({"scenario": scenario, "row": row, "bench_url": bench_url, "rest_path": rest_path})


class ScenarioDelete(ClusterPage):
    """POST: forget a scenario."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        scenario = _scenario(self, pk)
        scenario_delete(scenario=scenario)
        return done(request, f"{scenario.name} is deleted.", "pages:provisioning", slug)


class Compare(ClusterPage):
    """POST: answer the chosen scenarios side by side, beside what is now."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        chosen = [int(pk) for pk in request.POST.getlist("row") if pk.isdigit()]
        if not chosen:
            raise Malformed("Choose at least one scenario to compare.", [("row", "no scenario is chosen")])
        row, _ = what_if_request(cluster=self.cluster, user=request.user, scenarios=[_NOW, *chosen])
        return redirect("pages:what-if", slug, row.pk)


class FindNow(ClusterPage):
    """POST: ask for a search that starts from the bench's loads and objectives; its page comes next."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        find = request.POST.get("search", "")
        if find not in Find.values:
            raise Malformed(f"search is {find!r}; allowed: {', '.join(Find.values)}.", [("search", f"{find!r}")])
        bench = Bench(self)
        inputs = bench.inputs
        changes = [*inputs.load_changes(), *inputs.objective_changes(bench.snapshot.deployment)]
        base = {"name": "As on the bench", "changes": changes, "place": str(Place.SEARCH)} if changes else _NOW
        options = self.options(find, inputs)
        row, _ = what_if_request(cluster=self.cluster, user=request.user, scenarios=[base], find=find, options=options)
        if request.headers.get("HX-Request"):
            page = reverse("pages:provisioning", args=[slug])
            response = self.page({"row": row, "bench": bench}, template="pages/provisioning/found.html")
            response["HX-Replace-Url"] = page + inputs_query(inputs, find=row.pk)
            return response
        return redirect("pages:what-if", slug, row.pk)

    def options(self, find: str, inputs: Inputs) -> dict[str, Any]:
        """Parameters of the search from the inputs and, for mixes, the node types of the form."""
        options: dict[str, Any] = {}
        if inputs.headroom_s and find in {Find.SMALLEST_POOL, Find.CHEAPEST_MIX}:
            options["headroom_s"] = inputs.headroom_s
        if find in {Find.SMALLEST_POOL, *_WITH_TYPES}:
            options |= {"lose_one": inputs.lose_one, "keep_present": self.request.POST.get("keep_present") != "0"}
        if find == Find.SMALLEST_POOL and inputs.pool:
            options["pool"] = inputs.pool
        if find in _WITH_TYPES:
            options["types"] = types_read(self.request.POST)
        return options


def _scenario(page: ClusterPage, pk: int) -> Scenario:
    found = scenarios_listed(page.cluster).filter(pk=pk).first()
    if found is None:
        raise Missing(f"Cluster {page.cluster.slug!r} has no scenario {pk}.")
    return found
