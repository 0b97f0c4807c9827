"""REST: queries, their versions and statistics, arrivals, and clusters as documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Model
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import role_hint, scopes_of, signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.bulk import BulkAnswerSerializer, bulk_response
from apps.core.errors import Forbidden, Malformed
from apps.core.limits import MAX_SYNC_OPERATORS, MAX_VERSION_NUMBER
from apps.core.reach import AskedOn, caller_now, visible
from apps.core.rest.api import ApiMixin, Router, ServiceViewSet
from apps.core.rest.lists import StrictFilterBackend, parse_whole_number
from apps.core.rest.serializers import read_body
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import JobSerializer, job_response
from apps.queries.arrivals.inspection import InspectedUpload
from apps.queries.arrivals.services import (
    arrivals_create_from_counts,
    arrivals_create_from_generator,
    arrivals_create_from_upload,
    arrivals_delete,
    arrivals_dispersion_update,
    arrivals_fields_update,
    arrivals_inspect,
    arrivals_owner_update,
)
from apps.queries.arrivals.uploads import UploadedTrace
from apps.queries.backlogs import backlogs_of, backlogs_update
from apps.queries.documents import document_export, document_import
from apps.queries.imports import IMPORT, operator_count
from apps.queries.models import ArrivalSeries, Query, QueryVersion
from apps.queries.prepared_imports import DocumentImport
from apps.queries.selectors import (
    ArrivalFilter,
    QueryFilter,
    VersionFilter,
    arrivals_chart,
    arrivals_listed,
    queries_listed,
    version_current,
    version_numbered,
    versions_listed,
)
from apps.queries.serializers import (
    ArrivalCreateSerializer,
    ArrivalSerializer,
    BacklogsSerializer,
    DocumentSerializer,
    InspectSerializer,
    QueryBulkSerializer,
    QueryDetailSerializer,
    QuerySerializer,
    StatisticsSerializer,
    VersionSerializer,
)
from apps.queries.services import query_create, query_delete, query_stop, query_update, query_version_create
from apps.queries.statistics import statistics_of, statistics_update

__all__ = ["ArrivalViewSet", "ClusterDocumentView", "QueryViewSet"]

_VERSION = OpenApiParameter("version", int, description="Number of a version; the one that runs, or the newest.")
_POINTS = OpenApiParameter("points", int, description="At most so many points, 1 to 5000.", default=500)


_QUERY_CHANGES: dict[str, Callable[..., object]] = {
    "stop": query_stop,
    "update": query_update,
    "delete": query_delete,
}


class QueryViewSet(ServiceViewSet):
    """Continuous queries. Whether one may run is decided by an admission; here it is described and stopped."""

    asked_on = AskedOn.PARTS
    body_sizes = {"create": DOCUMENT, "create_version": DOCUMENT, "put_statistics": DOCUMENT}
    queryset = Query.objects.none()
    filterset_class = QueryFilter
    ordering = "name"
    creator_keyword = "user"
    row_keyword = "query"
    service_update = staticmethod(query_update)
    service_delete = staticmethod(query_delete)
    scopes = {"put_statistics": Scope.INGEST, "put_backlogs": Scope.INGEST}
    scopes |= dict.fromkeys(("create", "partial_update", "destroy", "create_version"), Scope.AUTHOR)
    etag_actions = ApiMixin.etag_actions | {"statistics", "put_statistics"}

    def get_queryset(self) -> Any:
        return queries_listed()

    def shown_for_etag(self, found: Any) -> Any:
        if self.action != "put_statistics":
            return super().shown_for_etag(found)
        data = self.request.data
        return _statistics(_version(found, data.get("version") if isinstance(data, Mapping) else None))

    def get_serializer_class(self) -> type:
        return QuerySerializer if self.action == "list" else QueryDetailSerializer

    @staticmethod
    def service_create(*, operators: object, **values: Any) -> Model:
        return query_create(body={"operators": operators}, **values)

    @extend_schema(responses=VersionSerializer(many=True))
    @action(detail=True, methods=["get"], ordering="-number", filterset_class=VersionFilter)
    def versions(self, request: Request, pk: str | None = None) -> Response:
        """Every version, newest first."""
        rows = StrictFilterBackend().filter_list(request, versions_listed(self.get_object()), self)
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(VersionSerializer(page, many=True).data)

    @extend_schema(request=VersionSerializer, responses={201: VersionSerializer})
    @versions.mapping.post
    def create_version(self, request: Request, pk: str | None = None) -> Response:
        """Add a version. What runs stays as it is until the version is admitted."""
        query = self.get_object()
        serializer = VersionSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = dict(serializer.validated_data)
        body = {"operators": values.pop("operators")}
        version = query_version_create(query=query, body=body, user=signed_in_user(request), **values)
        shown = VersionSerializer(version_numbered(query, version.number)).data
        return Response(shown, status=201, headers={"Location": f"{request.path}/{version.number}"})

    @extend_schema(responses=VersionSerializer)
    @action(detail=True, methods=["get"], url_path=r"versions/(?P<number>[0-9]{1,9})")
    def version(self, request: Request, pk: str | None = None, number: str = "0") -> Response:
        """One version with its operators."""
        return Response(VersionSerializer(version_numbered(self.get_object(), int(number))).data)

    @extend_schema(parameters=[_VERSION], responses=StatisticsSerializer)
    @action(detail=True, methods=["get"])
    def statistics(self, request: Request, pk: str | None = None) -> Response:
        """Statistics of each input, with their origin."""
        return Response(_statistics(_version(self.get_object(), request.query_params.get("version"))))

    @extend_schema(request=StatisticsSerializer, responses=StatisticsSerializer)
    @statistics.mapping.put
    def put_statistics(self, request: Request, pk: str | None = None) -> Response:
        """Refine statistics; inputs that are not named keep theirs."""
        query = self.get_object()
        serializer = StatisticsSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        version = _version(query, serializer.validated_data.get("version"))
        statistics_update(version=version, statistics=serializer.validated_data["statistics"])
        return Response(_statistics(version))

    @extend_schema(responses=BacklogsSerializer)
    @action(detail=True, methods=["get"])
    def backlogs(self, request: Request, pk: str | None = None) -> Response:
        """Backlogs of the query's inputs, as they were read last."""
        return Response({"backlogs": [row.to_dict() for row in backlogs_of(self.get_object())]})

    @extend_schema(request=BacklogsSerializer, responses=BacklogsSerializer)
    @backlogs.mapping.put
    def put_backlogs(self, request: Request, pk: str | None = None) -> Response:
        """State what waits at the query's inputs, in place of all that was known; an empty list: nothing waits.

        A reading is used for 15 minutes. Estimates that begin now begin with it.
        """
        query = self.get_object()
        values = read_body(BacklogsSerializer, request)
        changed = backlogs_of(backlogs_update(query=query, **values))
        return Response({"backlogs": [row.to_dict() for row in changed]})

    @extend_schema(request=None, responses=QueryDetailSerializer)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str | None = None) -> Response:
        """Stop a running or waiting query."""
        return Response(self._shown(query_stop(query=self.get_object())))

    @extend_schema(request=QueryBulkSerializer, responses=BulkAnswerSerializer, filters=False)
    @action(detail=False, methods=["post"], pagination_class=None, filterset_class=None)
    def bulk(self, request: Request) -> Response:
        """Stop, change or delete many queries: each whole or not at all, answered one by one."""
        values = read_body(QueryBulkSerializer, request)
        ids, change = values.pop("ids"), _QUERY_CHANGES[values.pop("action")]
        rows = visible(Query.objects.select_related("cluster"), caller_now().needed).in_bulk(ids)
        return bulk_response(ids, rows, lambda query: change(query=query, **values))


@transaction.atomic
def _state(*, arrivals: ArrivalSeries, **values: Any) -> None:
    if "event_fields" in values:
        arrivals_fields_update(arrivals=arrivals, event_fields=values.get("event_fields"))
    owner = {name: values[name] for name in ("team", "labels") if name in values}
    if owner:
        arrivals_owner_update(arrivals=arrivals, **owner)
    scatter = {name: values.get(name) for name in ("dispersion", "dispersion_step_s")}
    if scatter.keys() & values.keys():
        arrivals_dispersion_update(arrivals=arrivals, **scatter)


@transaction.atomic
def _store(*, event_fields: Any = ..., team: Any = ..., labels: Any = ..., **values: Any) -> ArrivalSeries:
    stored = _store_arrivals(values)
    if event_fields is not ...:
        stored = arrivals_fields_update(arrivals=stored, event_fields=event_fields)
    is_owned = team is not ... or labels is not ...
    return arrivals_owner_update(arrivals=stored, team=team, labels=labels) if is_owned else stored


def _store_arrivals(values: dict[str, Any]) -> ArrivalSeries:
    if "generator" in values:
        return arrivals_create_from_generator(spec=values.pop("generator"), **values)
    if "counts" in values:
        return arrivals_create_from_counts(**values)
    if "file" in values:
        key, inspection = arrivals_inspect(file=values.pop("file"), time_zone=values.get("time_zone", "UTC"))
        values["key"] = key
        if "time_column" not in values:
            hint = f"{inspection.time_column!r} looks like one" if inspection.time_column else "none looks like a time"
            columns = ", ".join(column.name for column in inspection.columns)
            message = f"time_column is missing; the file has {columns}; {hint}"
            raise Malformed(f"{message}.", [("time_column", message)])
    elif "time_column" not in values:
        raise Malformed("time_column is missing.", [("time_column", "is missing; allowed: a column of the file")])
    return arrivals_create_from_upload(**UploadedTrace.split(values))


class ArrivalViewSet(ServiceViewSet):
    """Events per slice of each source, from uploaded traces, generators or counts."""

    asked_on = AskedOn.SEEN
    body_sizes = {"create": DOCUMENT, "inspect": DOCUMENT}
    queryset = ArrivalSeries.objects.none()
    serializer_class, create_class = ArrivalSerializer, ArrivalCreateSerializer
    filterset_class = ArrivalFilter
    ordering = "source_id"
    row_keyword = "arrivals"
    service_create = staticmethod(_store)
    service_update = staticmethod(_state)
    service_delete = staticmethod(arrivals_delete)

    def get_queryset(self) -> Any:
        return arrivals_listed()

    @extend_schema(
        request={"application/json": ArrivalCreateSerializer, "multipart/form-data": ArrivalCreateSerializer},
        responses={201: ArrivalSerializer},
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Store arrivals from a file, an inspected upload, a generator or counts."""
        return super().create(request, *args, **kwargs)

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """State the fields of the source's events, how its counts scatter, the team that owns it, or its labels."""
        return super().partial_update(request, *args, **kwargs)

    @extend_schema(request={"multipart/form-data": InspectSerializer}, responses=InspectedUpload)
    @action(detail=False, methods=["post"])
    def inspect(self, request: Request) -> Response:
        """Look at a file before storing anything of it: columns, a proposal, lines that cannot be read."""
        serializer = InspectSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        key, inspection = arrivals_inspect(**serializer.validated_data)
        return Response(InspectedUpload(key=key, **vars(inspection)).to_dict())

    @extend_schema(parameters=[_POINTS], responses=OpenApiTypes.OBJECT)
    @action(detail=True, methods=["get"])
    def series(self, request: Request, pk: str | None = None) -> Response:
        """The rate over time, downsampled: mean and highest events/s of each part."""
        points = parse_whole_number(request.query_params.get("points", "500"), "points", 1, 5000)
        return Response(arrivals_chart(self.get_object(), points))


class ClusterDocumentView(ApiMixin, APIView):
    """A cluster as a deployment document."""

    asked_on = AskedOn.NARROWED

    body_sizes = {"POST": DOCUMENT}

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, slug: str) -> Response:
        """Running queries of the cluster, at the width of a slice."""
        return Response(document_export(cluster_by_slug(slug)))

    @extend_schema(request=DocumentSerializer, responses={200: DocumentImport, 202: JobSerializer})
    def post(self, request: Request, slug: str) -> Response:
        """Import nodes, links, arrivals and queries (as drafts) from a document; all of it or, with any fault, none.

        A document of more than 300 operators is imported by a job: 202 with its `Location`, or `Prefer: wait=30`.
        With `start`, which only administrators may say, queries run where the document places them, past admission.
        """
        cluster = cluster_by_slug(slug)
        serializer = DocumentSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        asked: dict[str, Any] = serializer.validated_data
        if asked["start"] and Scope.ADMIN not in scopes_of(signed_in_user(request), request.auth):
            raise Forbidden(
                f"start passes admission by. {role_hint(Scope.ADMIN)}", [("start", "needs the scope 'admin'")]
            )
        if operator_count(asked["document"]) > MAX_SYNC_OPERATORS:
            run, job = IMPORT.request(cluster=cluster, user=signed_in_user(request), **asked)
            return job_response(request, job, lambda _: IMPORT.visible().get(pk=run.pk).result or {})
        done = document_import(cluster=cluster, user=signed_in_user(request), path="document", **asked)
        return Response(done.to_dict())


def _version(query: Query, number: Any) -> QueryVersion:
    if number is None:
        return version_current(query)
    return version_numbered(query, parse_whole_number(str(number), "version", 1, MAX_VERSION_NUMBER))


def _statistics(version: QueryVersion) -> dict[str, object]:
    return {"version": version.number, "statistics": statistics_of(version)}


router = Router()
router.register("queries", QueryViewSet, basename="query")
router.register("arrivals", ArrivalViewSet, basename="arrivals")
urlpatterns = [
    path("clusters/<str:slug>/document", ClusterDocumentView.as_view(), name="cluster-document"),
    *router.urls,
]
