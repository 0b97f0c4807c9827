"""Clusters, nodes, pools and links: lists, one node, bulk import, and the forms of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.errors import Conflict, Malformed, Missing, SluiceError
from apps.estimates.models import NodeEstimate
from apps.estimates.selectors import node_estimates, run_latest, servers_by_node
from apps.fleet import services
from apps.fleet.bulk import ImportResult, links_import, nodes_import
from apps.fleet.models import Link, Node, NodePool
from apps.fleet.selectors import links_listed, node_by_name, nodes_listed, pools_listed
from apps.fleet.services import cluster_create, cluster_delete, cluster_update, nodes_plan
from apps.pages.base import ClusterPage, Page, done, try_service
from apps.pages.fleet.forms import ClusterForm, ImportForm, LinkForm, NodeForm, PlanForm, PoolForm
from apps.pages.fleet.tables import NodeDetail, fleet_sentence, links_table, nodes_table, pools_table
from apps.ui.feedback import toast

__all__ = [
    "EXAMPLE",
    "ClusterDelete",
    "ClusterEdit",
    "ClusterNew",
    "FleetImport",
    "FleetPage",
    "LinkDelete",
    "LinkEdit",
    "LinkNew",
    "LinksPage",
    "NodeDelete",
    "NodeEdit",
    "NodeNew",
    "NodePage",
    "NodeStateChange",
    "PoolDelete",
    "PoolEdit",
    "PoolNew",
    "PoolPlan",
    "PoolsPage",
]


#: Body of the example call.
EXAMPLE = {"slug": "eu-1", "name": "EU 1", "environment": "prod", "subinterval_s": 1, "horizon_s": 3600}


class ClusterNew(Page):
    """`/clusters/new/`"""

    template_name = "pages/fleet/cluster_form.html"
    scope = "operate"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page({"form": ClusterForm(initial={"time_zone": request.user.time_zone}), "example": EXAMPLE})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ClusterForm(request.POST)
        if form.is_valid():
            cluster, ok = try_service(form, lambda: cluster_create(**form.cleaned_data))
            if ok:
                return done(request, f"{cluster.name} is registered. Add its nodes next.", "pages:fleet", cluster.slug)
        return self.page({"form": form, "example": EXAMPLE}, 422)


class ClusterEdit(ClusterPage):
    """`/c/<slug>/settings/`"""

    template_name = "pages/fleet/cluster_form.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page({"form": ClusterForm(instance=self.cluster), "editing": True})

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = ClusterForm(request.POST, instance=self.cluster)
        if form.is_valid():
            _, ok = try_service(form, lambda: cluster_update(cluster=self.cluster, **form.cleaned_data))
            if ok:
                return done(request, f"{self.cluster.name}: settings saved.", "pages:cluster-edit", slug)
            self.cluster.refresh_from_db()
        return self.page({"form": form, "editing": True}, 422)


class ClusterDelete(ClusterPage):
    """POST: delete the cluster with everything in it; its name has to be typed."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        if request.POST.get("confirm", "").strip() != slug:
            raise Conflict(f"To delete the cluster, type its address part {slug!r}.")
        cluster_delete(cluster=self.cluster)
        request.session.pop("cluster", None)
        toast(request, f"{self.cluster.name} is deleted.")
        return redirect("pages:home")


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


class NodeStateChange(ClusterPage):
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


class _RowPage(ClusterPage):
    """A form that makes or changes one thing of the fleet."""

    template_name = "pages/fleet/row_form.html"
    scope = "operate"
    what = ""
    back = "pages:fleet"

    def show(self, form: Any, row: Any = None, status: int = 200) -> HttpResponse:
        title = f"Change {row}" if row is not None else f"New {self.what}"
        context = {
            "form": form,
            "row": row,
            "title": title,
            "what": self.what,
            "back": reverse(self.back, args=[self.slug]),
        }
        return self.page({**context, **self.extra(row)}, status)

    def extra(self, row: Any) -> dict[str, Any]:
        return {}

    def save(self, form: Any, call: Callable[[], Any], row: Any = None, to: str = "") -> HttpResponse:
        if form.is_valid():
            saved, ok = try_service(form, call, {"from": "source", "to": "target"} if self.what == "link" else None)
            if ok:
                return done(self.request, f"{saved} is saved.", to or self.back, self.slug)
        return self.show(form, row, 422)


class PoolNew(_RowPage):
    what, back = "pool", "pages:pools"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(PoolForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = PoolForm(request.POST)
        return self.save(form, lambda: services.pool_create(cluster=self.cluster, **form.cleaned_data))


class PoolEdit(_RowPage):
    what, back = "pool", "pages:pools"

    def extra(self, row: Any) -> dict[str, Any]:
        return {"delete_url": reverse("pages:pool-delete", args=[self.slug, row.pk])}

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        pool = self.row(pk)
        return self.show(PoolForm(instance=pool), pool)

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        pool = self.row(pk)
        form = PoolForm(request.POST, instance=pool)
        return self.save(form, lambda: services.pool_update(pool=pool, **form.cleaned_data), pool)

    def row(self, pk: int) -> NodePool:
        return _row(self.cluster.pools.select_related("cluster"), pk, "pool")


class PoolDelete(ClusterPage):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        pool = _row(self.cluster.pools.select_related("cluster"), pk, "pool")
        services.pool_delete(pool=pool)
        return done(request, f"Pool {pool.name} is deleted.", "pages:pools", slug)


class PoolPlan(ClusterPage):
    """`/c/<slug>/fleet/pools/<pk>/plan/`: note nodes that are wanted; `?count=` says how many."""

    template_name = "pages/fleet/plan.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        count = request.GET.get("count", "")
        return self.show(PlanForm(initial={"count": count if count.isdecimal() else 1}), self.row(pk))

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        pool, form = self.row(pk), PlanForm(request.POST)
        if form.is_valid():
            nodes, stored = try_service(form, lambda: nodes_plan(pool=pool, **form.cleaned_data))
            if stored:
                names = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} to {nodes[-1].name}"
                return done(request, f"Planned: {names}. Activate them when they are there.", "pages:fleet", slug)
        return self.show(form, pool, 422)

    def show(self, form: PlanForm, pool: NodePool, status: int = 200) -> HttpResponse:
        return self.page({"form": form, "pool": pool, "pool_id": str(pool.pk), "rest_body": {"count": 1}}, status)

    def row(self, pk: int) -> NodePool:
        return _row(self.cluster.pools.select_related("cluster"), pk, "pool")


class NodeNew(_RowPage):
    what = "node"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        if not self.cluster.pools.exists():
            return done(request, "Nodes belong to a pool: create one first.", "pages:pool-new", slug)
        return self.show(NodeForm(cluster=self.cluster))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = NodeForm(request.POST, cluster=self.cluster)
        return self.save(form, lambda: services.node_create(**form.cleaned_data))


class NodeEdit(_RowPage):
    what = "node"

    def extra(self, row: Any) -> dict[str, Any]:
        return {"delete_url": reverse("pages:node-delete", args=[self.slug, row.name])}

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        node = node_by_name(self.cluster, name)
        return self.show(NodeForm(instance=node, cluster=self.cluster), node)

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        node = node_by_name(self.cluster, name)
        form = NodeForm(request.POST, instance=node, cluster=self.cluster)
        return self.save(form, lambda: services.node_update(node=node, **_with_pool_defaults(form.cleaned_data)), node)


def _with_pool_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Empty capacity and cores mean the pool's."""
    pool = values["pool"]
    given = {name: value for name, value in values.items() if value is not None}
    return {"capacity_cps": pool.capacity_cps, "cores": pool.cores, **given}


class NodeDelete(ClusterPage):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        node = node_by_name(self.cluster, name)
        services.node_delete(node=node)
        return done(request, f"Node {name} is deleted.", "pages:fleet", slug)


class LinkNew(_RowPage):
    what, back = "link", "pages:links"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(LinkForm(cluster=self.cluster))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = LinkForm(request.POST, cluster=self.cluster)
        return self.save(form, lambda: services.link_create(**form.cleaned_data))


class LinkEdit(_RowPage):
    what, back = "link", "pages:links"

    def extra(self, row: Any) -> dict[str, Any]:
        return {"delete_url": reverse("pages:link-delete", args=[self.slug, row.pk])}

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        link = self.row(pk)
        return self.show(LinkForm(instance=link, cluster=self.cluster), link)

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        link = self.row(pk)
        form = LinkForm(request.POST, instance=link, cluster=self.cluster)
        return self.save(form, lambda: services.link_update(link=link, **form.cleaned_data), link)

    def row(self, pk: int) -> Link:
        return _row(links_listed().filter(cluster=self.cluster), pk, "link")


class LinkDelete(ClusterPage):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        link = _row(links_listed().filter(cluster=self.cluster), pk, "link")
        services.link_delete(link=link)
        return done(request, f"Link {link} is deleted.", "pages:links", slug)


def _row(rows: Any, pk: int, what: str) -> Any:
    found = rows.filter(pk=pk).first()
    if found is None:
        raise Missing(f"This cluster has no {what} with the number {pk}.")
    return found
