"""Nodes, pools and links of a cluster: lists, what a node does, bulk import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.core.errors import Malformed, SluiceError
from apps.estimates.models import NodeEstimate
from apps.estimates.selectors import node_estimates, run_latest
from apps.estimates.servers import servers_by_node
from apps.fleet import services
from apps.fleet.models import Node
from apps.fleet.selectors import links_listed, node_by_name, nodes_listed, pools_listed
from apps.fleet.tables import ImportResult, links_import, nodes_import
from apps.pages.base import ClusterPage, done
from apps.pages.fleet_tables import fleet_sentence, links_table, nodes_table, pools_table
from apps.pages.forms import ImportForm
from apps.pages.node_detail import NodeDetail

__all__ = ["FleetImport", "FleetPage", "LinksPage", "NodePage", "NodeState", "PoolsPage"]


class _FleetList(ClusterPage):
    """A tab of the fleet page."""

    template_name = "pages/fleet/list.html"
    tab = ""

    def tabs(self) -> list[tuple[str, str, bool]]:
        names = {"nodes": "pages:fleet", "pools": "pages:pools", "links": "pages:links"}
        return [(tab.capitalize(), reverse(name, args=[self.slug]), tab == self.tab) for tab, name in names.items()]

    def answer(self, table: Any, **context: Any) -> HttpResponse:
        if table.wants_csv:
            return table.csv_response()
        sentence = fleet_sentence(self.cluster)
        return self.page({"table": table, "tabs": self.tabs(), "tab": self.tab, "sentence": sentence, **context})


class FleetPage(_FleetList):
    """`/c/<slug>/fleet/`: the nodes. POST drains or activates the chosen ones."""

    tab = "nodes"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        run = run_latest(self.cluster)
        loads = servers_by_node(node_estimates(run)) if run is not None else []
        servers = {load.node_name: load for load in loads if load.node_name}
        pools = list(self.cluster.pools.values_list("name", flat=True))
        of_run = node_estimates(run) if run is not None else NodeEstimate.objects.none()
        worst = of_run.filter(node_name=OuterRef("name")).order_by("-excess_s").values("excess_s")[:1]
        rows = nodes_listed().filter(cluster=self.cluster).annotate(excess_s=Subquery(worst))
        return self.answer(nodes_table(request, self.cluster, rows, servers, pools), run=run, has_pools=bool(pools))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        change = _state_change(request.POST.get("change", ""))
        names = request.POST.getlist("row")
        nodes = [node_by_name(self.cluster, name) for name in names]
        for node in nodes:
            change(node=node)
        return done(request, f"{len(nodes)} node{'s' if len(nodes) != 1 else ''} changed.", "pages:fleet", slug)


def _state_change(name: str) -> Callable[..., Node]:
    changes = {"drain": services.node_drain, "activate": services.node_activate, "offline": services.node_take_offline}
    if name not in changes:
        raise Malformed(f"change is {name!r}; allowed: {', '.join(changes)}.", [("change", f"{name!r} is not known")])
    return changes[name]


class PoolsPage(_FleetList):
    """`/c/<slug>/fleet/pools/`"""

    tab = "pools"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.answer(pools_table(request, self.cluster, pools_listed().filter(cluster=self.cluster)))


class LinksPage(_FleetList):
    """`/c/<slug>/fleet/links/`"""

    tab = "links"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.answer(links_table(request, self.cluster, links_listed().filter(cluster=self.cluster)))


class NodePage(ClusterPage):
    """`/c/<slug>/fleet/nodes/<name>/`: what a node does."""

    template_name = "pages/fleet/node.html"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.page({"detail": NodeDetail(self.cluster, node_by_name(self.cluster, name))})


class NodeState(ClusterPage):
    """POST: drain, activate or take offline."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        node = _state_change(request.POST.get("change", ""))(node=node_by_name(self.cluster, name))
        return done(request, f"{node.name} is {node.get_state_display().lower()}.", "pages:node", slug, name)


class FleetImport(ClusterPage):
    """`/c/<slug>/fleet/import/`: paste or upload, see what would happen and every fault, then store."""

    template_name = "pages/fleet/import.html"
    scope = "operate"

    def page(self, context: dict[str, Any], status: int = 200, template: str = "") -> HttpResponse:
        rest_form = f"-F cluster={self.slug} -F dry_run=true -F file=@nodes.csv"
        return super().page({"rest_form": rest_form, **context}, status, template)

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        kind = request.GET.get("kind")
        return self.page({"form": ImportForm(initial={"kind": kind if kind == "links" else "nodes"})})

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = ImportForm(request.POST, request.FILES)
        if not form.is_valid():
            return self.page({"form": form}, 422)
        table, kind, is_stored = form.table, form.cleaned_data["kind"], "store" in request.POST
        context: dict[str, Any] = {"form": ImportForm(initial={"kind": kind, "text": table})}
        try:
            result = self.read(kind, table, dry_run=not is_stored)
        except SluiceError as error:
            return self.page({**context, "refusal": error}, error.status)
        if is_stored:
            to = "pages:links" if kind == "links" else "pages:fleet"
            return done(request, _summary(result), to, slug)
        return self.page({**context, "result": result, "table_text": table, "kind": kind, "summary": _summary(result)})

    def read(self, kind: str, table: str, *, dry_run: bool) -> ImportResult:
        importer = links_import if kind == "links" else nodes_import
        return importer(cluster=self.cluster, table=table, dry_run=dry_run)


def _summary(result: ImportResult) -> str:
    verb = "would be " if result.dry_run else ""
    parts = [f"{len(result.created)} {verb}created", f"{len(result.updated)} {verb}changed"]
    return f"{', '.join(parts)}, {len(result.unchanged)} stay as they are."
