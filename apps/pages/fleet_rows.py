"""Forms that make, change and delete one pool, node or link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.core.errors import Missing
from apps.fleet import services
from apps.fleet.models import Link, NodePool
from apps.fleet.planned import nodes_plan
from apps.fleet.selectors import links_listed, node_by_name
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.forms import LinkForm, NodeForm, PlanForm, PoolForm

__all__ = [
    "LinkDelete",
    "LinkEdit",
    "LinkNew",
    "NodeDelete",
    "NodeEdit",
    "NodeNew",
    "PoolDelete",
    "PoolEdit",
    "PoolNew",
    "PoolPlan",
]


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
