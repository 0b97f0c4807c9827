"""Reads of clusters, pools, nodes and links, and the filters of their lists, shared by pages and REST.

Queries and operators are models of a higher app; they are only reached by their relations to a cluster or node.
"""

from __future__ import annotations

from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from apps.core.errors import Missing
from apps.core.filters import ChoiceFilter, LabelFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.core.reach import check_cluster, visible
from apps.fleet.choices import ABSENT, Evidence, NodeState
from apps.fleet.models import Cluster, Link, Node, NodePool

__all__ = [
    "ClusterFilter",
    "LinkFilter",
    "NodeFilter",
    "PoolFilter",
    "cluster_by_slug",
    "cluster_seen",
    "clusters_with_counts",
    "cores_in_use",
    "links_listed",
    "node_by_name",
    "nodes_listed",
    "operators_on",
    "pools_listed",
    "queries_running",
]


def cluster_seen(slug: str) -> Cluster:
    """The cluster of a slug; Missing lists those that the caller sees."""
    seen = visible(Cluster.objects.all())
    cluster = seen.filter(slug=slug).first() if slug.isprintable() else None
    if cluster is None:
        slugs = ", ".join(seen.values_list("slug", flat=True)[:10]) or "none"
        raise Missing(f"There is no cluster {slug!r}. There are: {slugs}.", [("cluster", f"no cluster {slug!r}")])
    return cluster


def cluster_by_slug(slug: str) -> Cluster:
    """The cluster of a slug, where the caller may do what they ask for. Raises Missing and Forbidden."""
    cluster = cluster_seen(slug)
    check_cluster(cluster)
    return cluster


def node_by_name(cluster: Cluster, name: str) -> Node:
    """A cluster's node by its name."""
    node = cluster.nodes.select_related("pool").filter(name=name).first()
    if node is None:
        raise Missing(f"Cluster {cluster.slug!r} has no node {name!r}.", [("node", f"no node {name!r}")])
    return node


def clusters_with_counts() -> QuerySet[Cluster]:
    """Clusters with `node_count`, `core_count` (of nodes that are there) and `running_count`."""
    up = ~Q(nodes__state__in=ABSENT)
    # Counted in subqueries: joining nodes and queries at once would multiply one by the other.
    running = Cluster.objects.filter(pk=OuterRef("pk")).annotate(n=Count("queries", filter=Q(queries__state="running")))
    return Cluster.objects.annotate(
        node_count=Count("nodes", filter=up),
        core_count=Coalesce(Sum("nodes__cores", filter=up), 0),
        running_count=Subquery(running.values("n")),
    )


def pools_listed() -> QuerySet[NodePool]:
    """Pools with their cluster, team and `node_count`."""
    return NodePool.objects.select_related("cluster", "team").annotate(node_count=Count("nodes"))


def nodes_listed() -> QuerySet[Node]:
    """Nodes with cluster, pool and `operator_count`, the operators placed on each."""
    placed = Node.objects.filter(pk=OuterRef("pk")).annotate(n=Count("placements__operator", distinct=True))
    return Node.objects.select_related("cluster", "pool").annotate(operator_count=Subquery(placed.values("n")))


def links_listed() -> QuerySet[Link]:
    """Links with the names of their ends."""
    return Link.objects.select_related("cluster", "source", "target")


def operators_on(node: Node) -> list[str]:
    """Operators placed on a node, as `query/operator`."""
    rows = node.placements.order_by("operator__version__query__name", "operator__position")
    names = rows.values_list("operator__version__query__name", "operator__name")
    return list(dict.fromkeys(f"{query}/{operator}" for query, operator in names))


def cores_in_use(node: Node) -> int:
    """One more than the highest core an operator is placed on; 0 for an empty node."""
    highest = node.placements.aggregate(highest=Max("core"))["highest"]
    return 0 if highest is None else highest + 1


def queries_running(cluster: Cluster) -> list[str]:
    """Names of the queries that run in a cluster."""
    return list(cluster.queries.filter(state="running").values_list("name", flat=True))


class ClusterFilter(ListFilter):
    """`?environment=production&name__contains=west`."""

    slug = TextFilter(label="Its slug")
    name = TextFilter(label="Its name")
    environment = TextFilter(label="Its environment")
    created_at = TimeFilter()
    sorts = sort_paths("slug", "name", "environment", "created_at", "updated_at")


class PoolFilter(ListFilter):
    """`?cluster=eu-1&cores__gte=4`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    team = TextFilter("team__name", label="The team that owns it")
    labels = LabelFilter()
    cores = NumberFilter(whole=True)
    capacity_cps = NumberFilter()
    sorts = sort_paths("name", "cores", "capacity_cps", "price_per_hour", "updated_at", cluster="cluster__slug")


class NodeFilter(ListFilter):
    """`?cluster=eu-1&pool=standard&state=active&state=draining`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    pool = TextFilter("pool__name", label="Name of the pool")
    state = ChoiceFilter(choices=NodeState.choices)
    evidence = ChoiceFilter(choices=Evidence.choices, label="What its capacity rests on")
    labels = LabelFilter("labels", "pool__labels")
    name = TextFilter(label="Its name")
    cores = NumberFilter(whole=True)
    capacity_cps = NumberFilter()
    sorts = sort_paths(
        "name", "state", "cores", "capacity_cps", "created_at", "updated_at", pool="pool__name", cluster="cluster__slug"
    )


class LinkFilter(ListFilter):
    """`?cluster=eu-1&node=n1`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    node = TextFilter("source__name", "target__name", label="Name of the node at either end")
    delay_s = NumberFilter()
    sorts = sort_paths("bandwidth_bytes_s", "delay_s", "updated_at", **{"from": "source__name", "to": "target__name"})
