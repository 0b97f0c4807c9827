"""Provisioning: the bench, its scenarios, planned nodes, and what-ifs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Malformed, SluiceError, Unavailable
from apps.fleet.models import NodePool
from apps.fleet.services import nodes_plan
from apps.pages.base import ClusterPage, done
from apps.pages.crud import Crud
from apps.pages.provisioning.bench import BenchFacts
from apps.pages.provisioning.forms import inputs_query, types_read
from apps.pages.provisioning.results import RESULTS
from apps.pages.provisioning.tables import change_words, option_words, scenario_row, scenarios_table, what_ifs_table
from apps.pages.runs import RunPage
from apps.planning.choices import Find, ScenarioPlacement
from apps.planning.models import Scenario, WhatIf
from apps.planning.scenarios import scenario_create, scenario_delete, scenarios_visible
from apps.planning.what_if_options import Inputs, resized_pool
from apps.planning.what_ifs import WHAT_IF, stored_answer, what_if_changes
from apps.ui.feedback import toast
from apps.ui.numbers import money
from engine.words import listed

__all__ = [
    "BenchPage",
    "BenchRefine",
    "PlannedNodes",
    "ScenarioCrud",
    "ScenarioOpen",
    "ScenarioSave",
    "ScenariosCompare",
    "WhatIfNow",
    "WhatIfPage",
    "WhatIfsPage",
]


class BenchPage(ClusterPage):
    """`/c/<slug>/provisioning/`. For htmx the answer alone, without frame and scenarios."""

    template_name = "pages/provisioning/bench.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        bench = BenchFacts(self)
        context: dict[str, object] = {"bench": bench, "cluster": self.cluster}
        if request.headers.get("HX-Target") == "bench":
            response = self.page(context, template="pages/provisioning/part.html")
            response["HX-Replace-Url"] = bench.page
            return response
        table = scenarios_table(request, self.cluster)
        return self.page({**context, "table": table})


class BenchRefine(ClusterPage):
    """POST: estimate the chosen number of nodes by a job, or do the sweep of a large cluster; gives the answer part."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponseBase:
        bench = BenchFacts(self)
        if not bench.is_empty:
            if bench.question.is_quick:
                if bench.answer is not None:
                    WHAT_IF.request(
                        cluster=self.cluster, user=signed_in_user(request), from_bench=True, **bench.refined_question
                    )
            else:
                WHAT_IF.request(
                    cluster=self.cluster,
                    user=signed_in_user(request),
                    find=Find.SWEEP,
                    options=bench.sweep_options,
                    from_bench=True,
                )
        fresh = BenchFacts(self)
        return self.page({"bench": fresh}, template="pages/provisioning/part.html")


_NOW = {"name": "Now", "changes": [], "place": str(ScenarioPlacement.KEEP)}
_WITH_TYPES = {Find.CHEAPEST_MIX, Find.PARETO}


class ScenarioSave(ClusterPage):
    """POST: keep the bench's inputs and its chosen number of nodes under a name, and have them answered."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        bench = BenchFacts(self)
        name = " ".join(request.POST.get("name", "").split())
        nodes = _chosen(bench)
        inputs = {**bench.inputs.options, "nodes": nodes}
        scenario = scenario_create(
            cluster=self.cluster,
            name=name,
            user=signed_in_user(request),
            description=request.POST.get("description", "").strip(),
            changes=bench.question.changes(nodes),
            place=str(ScenarioPlacement.SEARCH),
            inputs=inputs,
        )
        WHAT_IF.request(cluster=self.cluster, user=signed_in_user(request), scenarios=[scenario.pk])
        toast(request, f"{scenario.name} is saved; its answer is on its way.")
        return redirect(reverse("pages:provisioning", args=[slug]) + inputs_query(bench.inputs, nodes=nodes))


def _chosen(bench: BenchFacts) -> int:
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
        scenario = self.find(scenarios_visible(self.cluster), "scenario", pk=pk)
        bench_url = ""
        if scenario.inputs:
            inputs = Inputs.parse(scenario.inputs)
            bench_url = reverse("pages:provisioning", args=[slug]) + inputs_query(inputs, nodes=inputs.nodes)
        rest_path = f"/api/v1/scenarios/{scenario.pk}"
        row = scenario_row(scenario)
        return self.page({"scenario": scenario, "row": row, "bench_url": bench_url, "rest_path": rest_path})


class ScenarioCrud(Crud):
    """Scenarios are saved from the bench; here they are deleted."""

    noun = "scenario"
    back = "pages:provisioning"
    service_delete = staticmethod(scenario_delete)

    def rows(self) -> QuerySet[Scenario]:
        return scenarios_visible(self.cluster)


class ScenariosCompare(ClusterPage):
    """POST: answer the chosen scenarios side by side, beside what is now."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        chosen = [int(pk) for pk in request.POST.getlist("row") if pk.isdigit()]
        if not chosen:
            raise Malformed("Choose at least one scenario to compare.", [("row", "no scenario is chosen")])
        row, _ = WHAT_IF.request(cluster=self.cluster, user=signed_in_user(request), scenarios=[_NOW, *chosen])
        return redirect("pages:what-if", slug, row.pk)


class WhatIfNow(ClusterPage):
    """POST: ask for a search that starts from the bench's loads and objectives; its page comes next."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        find = request.POST.get("search", "")
        if find not in Find.values:
            raise Malformed(f"search is {find!r}; allowed: {', '.join(Find.values)}.", [("search", f"{find!r}")])
        bench = BenchFacts(self)
        inputs = bench.inputs
        changes = [*inputs.load_changes(), *inputs.objective_changes(bench.snapshot.deployment)]
        base = (
            {"name": "As on the bench", "changes": changes, "place": str(ScenarioPlacement.SEARCH)} if changes else _NOW
        )
        options = self.options(find, inputs)
        row, _ = WHAT_IF.request(
            cluster=self.cluster, user=signed_in_user(request), scenarios=[base], find=find, options=options
        )
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
        if find == Find.SURVIVAL and (domain := self.request.POST.get("domain", "")):
            options["domain"] = domain
        if find in _WITH_TYPES:
            options["types"] = types_read(self.request.POST)
        return options


class PlannedNodes(ClusterPage):
    """`/c/<slug>/provisioning/nodes/`: what is missing or too many for the chosen number of nodes. POST plans it."""

    template_name = "pages/provisioning/nodes.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        bench = BenchFacts(self)
        if not bench.snapshot.deployment.nodes:
            return redirect("pages:fleet", slug)
        return self.show(bench)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        bench = BenchFacts(self)
        change = _PoolChange(bench)
        if change.pool is None or change.more <= 0:
            raise Malformed("There is nothing to plan: the nodes are there.", [("nodes", "no more than there are")])
        try:
            nodes = nodes_plan(pool=change.pool, count=change.more)
        except SluiceError as refusal:
            return self.show(bench, refusal)
        message = f"1 node of {change.pool.name} is planned. Activate it when it is there."
        if len(nodes) > 1:
            message = f"{len(nodes)} nodes of {change.pool.name} are planned. Activate them when they are there."
        return done(request, message, "pages:fleet", slug)

    def show(self, bench: BenchFacts, refusal: SluiceError | None = None) -> HttpResponse:
        page = reverse("pages:provisioning", args=[self.slug]) + bench.query
        context: dict[str, object] = {"bench": bench, "change": _PoolChange(bench), "back": page, "refusal": refusal}
        return self.page(context, refusal.status if refusal else 200)


class _PoolChange:
    """Changes of the fleet that a number of nodes asks for."""

    def __init__(self, bench: BenchFacts) -> None:
        self.bench, self.cluster = bench, bench.cluster
        self.deployment = bench.snapshot.deployment
        self.now = len(self.deployment.nodes)

    @cached_property
    def nodes(self) -> int:
        """The number looked at."""
        inputs = self.bench.question.inputs
        if inputs.nodes is not None:
            return inputs.nodes
        return self.bench.answer.chosen.nodes if self.bench.answer is not None else self.now

    @property
    def more(self) -> int:
        return self.nodes - self.now

    @property
    def fewer(self) -> int:
        return -self.more

    @cached_property
    def pool(self) -> NodePool | None:
        name = self.bench.question.inputs.pool or resized_pool(self.deployment, "")
        return self.cluster.pools.filter(name=name).first() or self.cluster.pools.first()

    @property
    def cost(self) -> str:
        """Their total price per hour."""
        price = self.pool.price_per_hour if self.pool is not None else None
        return "" if price is None else money(float(price) * abs(self.more), self.cluster.currency)

    @property
    def leaving(self) -> list[str]:
        """Nodes that could go, the last of their pool first to be named."""
        own = [node.id for node in self.deployment.nodes if self.pool is None or node.pool == self.pool.name]
        return own[self.more :] if self.more < 0 else []

    @property
    def bench_query(self) -> str:
        return inputs_query(self.bench.question.inputs, nodes=self.nodes)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The inputs, to be sent along."""
        return parse_qsl(self.bench_query.removeprefix("?"))

    @property
    def rest_path(self) -> str:
        return f"/api/v1/node-pools/{self.pool.pk if self.pool else 0}/plan"

    @property
    def rest_body(self) -> dict[str, object]:
        return {"count": self.more}


class WhatIfsPage(ClusterPage):
    """`/c/<slug>/provisioning/what-ifs/`: what was asked on purpose, newest first."""

    template_name = "pages/provisioning/what_ifs.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = what_ifs_table(request, self.cluster)
        return self.page({"table": table})


class WhatIfPage(RunPage):
    """`/c/<slug>/provisioning/what-ifs/<uuid>/`"""

    kind, noun = WHAT_IF, "what-if"
    template_name = "pages/provisioning/what_if.html"

    def shown(self, run: WhatIf, refusal: SluiceError | None = None) -> HttpResponse:
        return self.answer(run, facts=WhatIfFacts(run))


class WhatIfFacts:
    """Facts of a what-if for its page."""

    def __init__(self, row: WhatIf) -> None:
        self.row, self.cluster = row, row.cluster

    @property
    def title(self) -> str:
        return self.row.get_find_display()

    @cached_property
    def result(self) -> Any:
        """The answer in the form that the template of its kind shows; None while there is none."""
        answer = stored_answer(self.row)
        return None if answer is None else RESULTS[Find(self.row.find)](self.row, answer)

    @property
    def template(self) -> str:
        return f"pages/provisioning/found_{self.row.find}.html"

    @cached_property
    def changes(self) -> Sequence[str] | None:
        return what_if_changes(self.row)

    @property
    def moved(self) -> str:
        """Changes of the cluster since, in words."""
        return listed(self.changes or (), 7)

    @property
    def question(self) -> list[tuple[str, list[str]]]:
        """(scenario, its changes in words)."""
        return [
            (scenario["name"], [change_words(change) for change in scenario["changes"]])
            for scenario in self.row.scenarios
        ]

    @property
    def options(self) -> list[tuple[str, str]]:
        return option_words(self.row.options)

    @property
    def rest_body(self) -> dict[str, object]:
        """The call that asks the same."""
        scenarios = [
            scenario.get("id") or scenario
            for scenario in self.row.scenarios
            if scenario["changes"] or scenario.get("id")
        ]
        body: dict[str, object] = {"cluster": self.cluster.slug, "find": self.row.find}
        body |= {"scenarios": scenarios} if scenarios else {}
        return body | ({"options": self.row.options} if self.row.options else {})
