"""REST: clusters, node pools, nodes and links, with their addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Model
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.body_sizes import DOCUMENT
from apps.core.bulk import BulkAnswerSerializer, bulk_response
from apps.core.reach import AskedOn, caller_now, visible
from apps.core.rest.api import Router, ServiceViewSet
from apps.core.rest.serializers import read_body
from apps.fleet import bulk, services
from apps.fleet.models import Cluster, Link, Node, NodePool
from apps.fleet.selectors import (
    ClusterFilter,
    LinkFilter,
    NodeFilter,
    PoolFilter,
    cluster_by_slug,
    clusters_with_counts,
    links_listed,
    nodes_listed,
    pools_listed,
)
from apps.fleet.serializers import (
    ClusterSerializer,
    ImportSerializer,
    LinkSerializer,
    NodeBulkSerializer,
    NodeSerializer,
    PlanSerializer,
    PoolSerializer,
    TableSerializer,
)
from apps.fleet.services import nodes_plan

__all__ = ["ClusterViewSet", "LinkViewSet", "NodeViewSet", "PoolViewSet"]


_CLUSTER = OpenApiParameter("cluster", str, required=True, description="Slug of the cluster.")
_CSV = extend_schema(
    parameters=[_CLUSTER], responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "The table as CSV.")}
)
_TABLE = extend_schema(
    request={"application/json": TableSerializer, "multipart/form-data": TableSerializer}, responses=ImportSerializer
)


_NODE_CHANGES: dict[str, Callable[..., object]] = {
    "drain": services.node_drain,
    "activate": services.node_activate,
    "offline": services.node_take_offline,
    "delete": services.node_delete,
}


class ClusterViewSet(ServiceViewSet):
    """Clusters: the nodes, the time grid of their estimates, and the rules of admission."""

    asked_on = AskedOn.PARTS
    queryset = Cluster.objects.none()
    serializer_class = ClusterSerializer
    filterset_class = ClusterFilter
    lookup_field = "slug"
    lookup_value_regex = "[A-Za-z0-9._-]+"
    ordering = "slug"
    row_keyword = "cluster"
    service_create = staticmethod(services.cluster_create)
    service_update = staticmethod(services.cluster_update)
    service_delete = staticmethod(services.cluster_delete)

    def get_queryset(self) -> Any:
        return clusters_with_counts()


class PoolViewSet(ServiceViewSet):
    """Node pools: nodes of one kind."""

    asked_on = AskedOn.SEEN
    queryset = NodePool.objects.none()
    serializer_class = PoolSerializer
    filterset_class = PoolFilter
    ordering = "name"
    row_keyword = "pool"
    service_create = staticmethod(services.pool_create)
    service_update = staticmethod(services.pool_update)
    service_delete = staticmethod(services.pool_delete)

    def get_queryset(self) -> Any:
        return pools_listed()

    @extend_schema(request=PlanSerializer, responses={201: NodeSerializer(many=True)}, filters=False)
    @action(detail=True, methods=["post"], pagination_class=None, filterset_class=None)
    def plan(self, request: Request, pk: str | None = None) -> Response:
        """Plan nodes that are ordered. They are not part of the capacity until they are activated."""
        serializer = PlanSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        nodes = nodes_plan(pool=self.get_object(), count=serializer.validated_data["count"])
        rows = nodes_listed().filter(pk__in=[node.pk for node in nodes])
        return Response(NodeSerializer(rows, many=True, context=self.get_serializer_context()).data, status=201)


class NodeViewSet(ServiceViewSet):
    """Nodes, with bulk import and export."""

    asked_on = AskedOn.SEEN
    body_sizes = {"import_table": DOCUMENT}
    queryset = Node.objects.none()
    serializer_class = NodeSerializer
    filterset_class = NodeFilter
    ordering = "name"
    row_keyword = "node"
    service_update = staticmethod(services.node_update)
    service_delete = staticmethod(services.node_delete)

    def get_queryset(self) -> Any:
        return nodes_listed()

    @staticmethod
    def service_create(*, cluster: Cluster, **values: Any) -> Model:
        return services.node_create(**values)  # the pool was looked up in the cluster

    @extend_schema(request=None, responses=NodeSerializer)
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: str | None = None) -> Response:
        """Accept no further operators."""
        return Response(self._shown(services.node_drain(node=self.get_object())))

    @extend_schema(request=None, responses=NodeSerializer)
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, pk: str | None = None) -> Response:
        """Accept operators again."""
        return Response(self._shown(services.node_activate(node=self.get_object())))

    @extend_schema(request=None, responses=NodeSerializer)
    @action(detail=True, methods=["post"])
    def offline(self, request: Request, pk: str | None = None) -> Response:
        """Leave the cluster's capacity. 409 while operators are placed on it."""
        return Response(self._shown(services.node_take_offline(node=self.get_object())))

    @extend_schema(request=NodeBulkSerializer, responses=BulkAnswerSerializer, filters=False)
    @action(detail=False, methods=["post"], pagination_class=None, filterset_class=None)
    def bulk(self, request: Request) -> Response:
        """Drain, activate, take offline or delete many nodes: each whole or not at all, answered one by one."""
        values = read_body(NodeBulkSerializer, request)
        change = _NODE_CHANGES[values["action"]]
        rows = visible(Node.objects.select_related("pool", "cluster"), caller_now().needed).in_bulk(values["ids"])
        return bulk_response(values["ids"], rows, lambda node: change(node=node))

    @_TABLE
    @action(detail=False, methods=["post"], url_path="import")
    def import_table(self, request: Request) -> Response:
        """Create or update many nodes at once; all of them or, with any fault, none."""
        return _imported(request, bulk.nodes_import)

    @_CSV
    @action(detail=False, methods=["get"], filterset_class=None, pagination_class=None)
    def export(self, request: Request) -> HttpResponse:
        """All nodes of a cluster as CSV, in the form the import reads."""
        return _exported(request, "nodes", bulk.nodes_export)


class LinkViewSet(ServiceViewSet):
    """Directed links between nodes, with bulk import and export. A missing link costs nothing."""

    body_sizes = {"import_table": DOCUMENT}
    queryset = Link.objects.none()
    serializer_class = LinkSerializer
    filterset_class = LinkFilter
    ordering = "pk"
    row_keyword = "link"
    service_update = staticmethod(services.link_update)
    service_delete = staticmethod(services.link_delete)

    def get_queryset(self) -> Any:
        return links_listed()

    @staticmethod
    def service_create(*, cluster: Cluster, **values: Any) -> Model:
        return services.link_create(**values)  # both ends were looked up in the cluster

    @_TABLE
    @action(detail=False, methods=["post"], url_path="import")
    def import_table(self, request: Request) -> Response:
        """Create or update many links at once; all of them or, with any fault, none."""
        return _imported(request, bulk.links_import)

    @_CSV
    @action(detail=False, methods=["get"], filterset_class=None, pagination_class=None)
    def export(self, request: Request) -> HttpResponse:
        """All links of a cluster as CSV, in the form the import reads."""
        return _exported(request, "links", bulk.links_export)


def _imported(request: Request, service: Callable[..., bulk.ImportResult]) -> Response:
    serializer = TableSerializer(data=request.data)
    serializer.is_valid(raise_exception=True)
    values = serializer.validated_data
    result = service(cluster=values["cluster"], table=serializer.table, dry_run=values["dry_run"])
    return Response(ImportSerializer(result).data)


def _exported(request: Request, what: str, export: Callable[[Cluster], str]) -> HttpResponse:
    cluster = cluster_by_slug(request.query_params.get("cluster", ""))
    headers = {"Content-Disposition": f'attachment; filename="{cluster.slug}-{what}.csv"'}
    return HttpResponse(export(cluster), content_type="text/csv; charset=utf-8", headers=headers)


router = Router()
router.register("clusters", ClusterViewSet, basename="cluster")
router.register("node-pools", PoolViewSet, basename="node-pool")
router.register("nodes", NodeViewSet, basename="node")
router.register("links", LinkViewSet, basename="link")
urlpatterns = router.urls
