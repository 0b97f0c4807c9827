"""Clusters, nodes, pools and links: lists, one node, bulk import, and the forms of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db.models import Max, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict, Malformed, SluiceError
from apps.core.limits import MAX_NAME
from apps.core.reach import AskedOn
from apps.estimates.models import EstimateRun, NodeEstimate
from apps.estimates.selectors import run_latest
from apps.fleet import services
from apps.fleet.bulk import ImportResult, links_import, nodes_import
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Link, Node, NodePool
from apps.fleet.selectors import (
    cluster_by_slug,
    links_listed,
    node_by_name,
    nodes_listed,
    operators_on,
    pools_listed,
)
from apps.pages.base import ClusterPage, Page, done, try_service
from apps.pages.bulk import BulkAction, BulkPage, BulkQuestion
from apps.pages.context import MENU_CLUSTERS_LIMIT, menu_clusters
from apps.pages.crud import BaseCrud, Crud
from apps.pages.fleet.forms import ClusterForm, ImportForm, LinkForm, NodeForm, PlanForm, PoolForm
from apps.pages.fleet.tables import NodeDetail, fleet_sentence, links_table, nodes_table, pools_table
from apps.ui.tables import Table
from engine.words import listed

__all__ = [
    "EXAMPLE",
    "ClusterCrud",
    "ClusterMenu",
    "FleetImport",
    "FleetList",
    "FleetPage",
    "LinkCrud",
    "LinksPage",
    "NodeCrud",
    "NodePage",
    "NodeStateChange",
    "NodesChange",
    "PoolCrud",
    "PoolPlan",
    "PoolsPage",
]


_NAMED = 6  # operators that a node still runs
_MAX_POOLS = 9  # more are no row of chips
#: Body of the example call.
EXAMPLE = {"slug": "eu-1", "name": "EU 1", "environment": "prod", "subinterval_s": 1, "horizon_s": 3600}


class ClusterCrud(BaseCrud):
    """`/clusters/new/`, `/c/<slug>/settings/` and its deletion, for which the address part has to be typed."""

    asked_on = AskedOn.NARROWED
    noun = "cluster"
    form_class = ClusterForm
    template_name = "pages/fleet/cluster_form.html"
    service_create = staticmethod(services.cluster_create)
    service_update = staticmethod(services.cluster_update)

    def row(self, **key: str) -> Cluster:
        return cluster_by_slug(key["slug"])

    def form_arguments(self, row: Cluster | None) -> dict[str, object]:
        return {} if row is not None else {"initial": {"time_zone": signed_in_user(self.request).time_zone}}

    def context(self, row: Cluster | None) -> Mapping[str, object]:
        return {"editing": True, "cluster": row} if row is not None else {"example": EXAMPLE}

    def saved(self, row: Cluster) -> HttpResponse:
        if self.action == "create":
            return done(self.request, f"{row.name} is registered. Add its nodes next.", "pages:fleet", row.slug)
        return done(self.request, f"{row.name}: settings saved.", "pages:cluster-edit", row.slug)

    def post_delete(self, row: Cluster) -> HttpResponse:
        if self.request.POST.get("confirm", "").strip() != row.slug:
            raise Conflict(f"To delete the cluster, type its address part {row.slug!r}.")
        services.cluster_delete(cluster=row)
        self.request.session.pop("cluster", None)
        return done(self.request, f"{row.name} is deleted.", "pages:home")


class ClusterMenu(Page):
    """`/clusters/menu/?q=`: entries of the menu whose name, address part or environment has the text."""

    asked_on = AskedOn.NARROWED

    def get(self, request: HttpRequest) -> HttpResponse:
        text = request.GET.get("q", "").strip()[:MAX_NAME]
        found = menu_clusters(text, MENU_CLUSTERS_LIMIT + 1)
        context = {"clusters": found[:MENU_CLUSTERS_LIMIT], "has_more": len(found) > MENU_CLUSTERS_LIMIT}
        return render(request, "ui/cluster_list.html", context)


class FleetList(ClusterPage):
    """A tab of the fleet page; each has a template of its own that extends `pages/fleet/list.html`."""

    tab = ""

    def tabs(self) -> list[tuple[str, str, bool]]:
        names = {"nodes": "pages:fleet", "pools": "pages:pools", "links": "pages:links"}
        names["evacuations"] = "pages:evacuations"
        return [(tab.capitalize(), reverse(name, args=[self.slug]), tab == self.tab) for tab, name in names.items()]

    def show_list(self, table: Any, **context: Any) -> HttpResponse:
        sentence = fleet_sentence(self.cluster)
        return self.page({"table": table, "tabs": self.tabs(), "sentence": sentence, **context})


class FleetPage(FleetList):
    """`/c/<slug>/fleet/`: the nodes."""

    template_name = "pages/fleet/nodes.html"
    tab = "nodes"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table, run = _nodes_table(request, self.cluster)
        bulk = {"bulk_actions": NodesChange.actions, "bulk_url": reverse(NodesChange.address, args=[slug])}
        return self.show_list(table, run=run, **bulk)


def _nodes_table(request: HttpRequest, cluster: Cluster) -> tuple[Table, EstimateRun | None]:
    """The nodes with load and excess of the newest estimate, and that estimate."""
    run = run_latest(cluster)
    pools = list(cluster.pools.values_list("name", flat=True)[:_MAX_POOLS])
    of_run = run.nodes.all() if run is not None else NodeEstimate.objects.none()
    worst = of_run.filter(node_name=OuterRef("name")).order_by().values("node_name").annotate(worst=Max("excess_s"))
    rows = nodes_listed().filter(cluster=cluster).annotate(excess_s=Subquery(worst.values("worst")))
    can_change = "operate" in signed_in_user(request).scopes
    return nodes_table(request, cluster, rows, run, pools, can_change=can_change), run


class NodesChange(BulkPage):
    """`/c/<slug>/fleet/change/`: many nodes at once."""

    noun, nouns = "node", "nodes"
    back, address = "pages:fleet", "pages:nodes-change"
    actions = (
        BulkAction(
            "drain",
            "Drain",
            "drained",
            "They keep what they run and take nothing new; an evacuation moves it.",
            services.node_drain,
            "node",
        ),
        BulkQuestion("evacuate", "Evacuate", "pages:evacuation-new", "nodes"),
        BulkAction("activate", "Activate", "activated", "They take operators.", services.node_activate, "node"),
        BulkAction(
            "offline",
            "Take offline",
            "taken offline",
            "They leave the cluster's capacity. One that runs operators is refused.",
            services.node_take_offline,
            "node",
        ),
        BulkAction(
            "delete",
            "Delete",
            "deleted",
            "They go with their links, and come back with Undo. One that runs operators is refused.",
            services.node_delete,
            "node",
            "trash",
            is_hard_to_undo=True,
        ),
    )

    def rows(self, names: Sequence[str]) -> dict[str, Node]:
        found = self.cluster.nodes.select_related("pool", "cluster").filter(name__in=names)
        return {node.name: node for node in found}

    def table(self) -> Table:
        return _nodes_table(self.request, self.cluster)[0]


def _state_change(name: str) -> Callable[..., Node]:
    changes = {"drain": services.node_drain, "activate": services.node_activate, "offline": services.node_take_offline}
    if name not in changes:
        raise Malformed(f"change is {name!r}; allowed: {', '.join(changes)}.", [("change", f"{name!r} is not known")])
    return changes[name]


class PoolsPage(FleetList):
    """`/c/<slug>/fleet/pools/`"""

    template_name = "pages/fleet/pools.html"
    tab = "pools"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show_list(pools_table(request, self.cluster, pools_listed().filter(cluster=self.cluster)))


class LinksPage(FleetList):
    """`/c/<slug>/fleet/links/`"""

    template_name = "pages/fleet/links.html"
    tab = "links"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show_list(links_table(request, self.cluster, links_listed().filter(cluster=self.cluster)))


class NodePage(ClusterPage):
    """`/c/<slug>/fleet/nodes/<name>/`: one node with its operators and load."""

    template_name = "pages/fleet/node.html"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.page({"detail": NodeDetail(self.cluster, node_by_name(self.cluster, name))})


class NodeStateChange(ClusterPage):
    """POST: drain, activate or take offline."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        node = _state_change(request.POST.get("change", ""))(node=node_by_name(self.cluster, name))
        said = f"{node.name} is {node.get_state_display().lower()}."
        if node.state == NodeState.DRAINING and (staying := operators_on(node)):
            said = f"{said} It still runs {listed(staying, _NAMED)}: evacuate it to move them."
        return done(request, said, "pages:node", slug, name)


class FleetImport(ClusterPage):
    """`/c/<slug>/fleet/import/`: paste or upload, see what would happen and every fault, then store."""

    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/fleet/import.html"
    scope = "operate"

    def page(self, context: Mapping[str, object], status: int = 200, template: str = "") -> HttpResponse:
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
        context = {"form": ImportForm(initial={"kind": kind, "text": table})}
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
    created, updated, unchanged = len(result.created), len(result.updated), len(result.unchanged)
    if result.dry_run:
        return f"{created} would be created, {updated} would be changed, {unchanged} unchanged."
    return f"{created} created, {updated} changed, {unchanged} unchanged."


class PoolCrud(Crud):
    """Pools of a cluster."""

    noun = "pool"
    form_class = PoolForm
    template_name = "pages/fleet/row_form.html"
    kept_fields = ("capacity_cps", "cycle_unit", "cores", "memory_bytes", "price_per_hour", "labels")
    back, delete_name = "pages:pools", "pages:pool-delete"
    text_deleted = "Pool {row} is deleted."
    service_create = staticmethod(services.pool_create)
    service_update = staticmethod(services.pool_update)
    service_delete = staticmethod(services.pool_delete)

    def rows(self) -> QuerySet[NodePool]:
        return self.cluster.pools.select_related("cluster")


class PoolPlan(ClusterPage):
    """`/c/<slug>/fleet/pools/<pk>/plan/`: plan further nodes; `?count=` is their number."""

    template_name = "pages/fleet/plan.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        count = request.GET.get("count", "")
        return self.show(PlanForm(initial={"count": count if count.isdecimal() else 1}), self.row(pk))

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        pool, form = self.row(pk), PlanForm(request.POST)
        if form.is_valid():
            nodes, stored = try_service(form, lambda: services.nodes_plan(pool=pool, **form.cleaned_data))
            if stored:
                message = f"Planned: {nodes[0].name}. Activate it when it is there."
                if len(nodes) > 1:
                    names = f"{nodes[0].name} to {nodes[-1].name}"
                    message = f"Planned: {names}. Activate them when they are there."
                return done(request, message, "pages:fleet", slug)
        return self.show(form, pool, 422)

    def show(self, form: PlanForm, pool: NodePool, status: int = 200) -> HttpResponse:
        return self.page({"form": form, "pool": pool, "pool_id": str(pool.pk), "rest_body": {"count": 1}}, status)

    def row(self, pk: int) -> NodePool:
        return self.find(self.cluster.pools.select_related("cluster"), "pool", pk=pk)


class NodeCrud(Crud):
    """Nodes of a cluster; each belongs to a pool."""

    noun = "node"
    form_class = NodeForm
    template_name = "pages/fleet/row_form.html"
    kept_fields = ("pool", "capacity_cps", "cores", "memory_bytes", "labels")
    back, delete_name = "pages:fleet", "pages:node-delete"
    text_deleted = "Node {row} is deleted."
    service_create = staticmethod(services.node_create)
    service_update = staticmethod(services.node_update)
    service_delete = staticmethod(services.node_delete)

    def get(self, request: HttpRequest, slug: str, **key: Any) -> HttpResponse:
        if self.action == "create" and not self.cluster.pools.exists():
            return done(request, "Nodes belong to a pool: create one first.", "pages:pool-new", slug)
        return super().get(request, slug, **key)

    def row(self, **key: str) -> Node:
        return node_by_name(self.cluster, key["name"])

    def owner(self) -> Mapping[str, object]:
        return {}  # the pool's cluster

    def form_arguments(self, row: Node | None) -> dict[str, object]:
        return {"cluster": self.cluster}

    def values(self, form: NodeForm) -> Mapping[str, object]:
        """Empty capacity and cores mean the pool's; without memory of its own a node follows that of its pool."""
        pool = form.cleaned_data["pool"]
        is_new = form.instance.pk is None
        may_be_none = {"memory_bytes"} if is_new else {"memory_bytes", "cycles_per_ns"}
        entered = {name: v for name, v in form.cleaned_data.items() if v not in (None, "") or name in may_be_none}
        unit = {"cycle_unit": pool.cycle_unit} | ({"cycles_per_ns": pool.cycles_per_ns} if is_new else {})
        return {"capacity_cps": pool.capacity_cps, "cores": pool.cores, **unit, **entered}


class LinkCrud(Crud):
    """Links between nodes of a cluster."""

    noun = "link"
    form_class = LinkForm
    template_name = "pages/fleet/row_form.html"
    fault_fields = {"from": "source", "to": "target"}
    kept_fields = ("source", "bandwidth_bytes_s", "delay_s")
    back, delete_name = "pages:links", "pages:link-delete"
    text_deleted = "Link {row} is deleted."
    service_create = staticmethod(services.link_create)
    service_update = staticmethod(services.link_update)
    service_delete = staticmethod(services.link_delete)

    def rows(self) -> QuerySet[Link]:
        return links_listed().filter(cluster=self.cluster)

    def owner(self) -> Mapping[str, object]:
        return {}  # the cluster of its nodes

    def form_arguments(self, row: Link | None) -> dict[str, object]:
        return {"cluster": self.cluster}
