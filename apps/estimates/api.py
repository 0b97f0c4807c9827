"""REST: estimates of clusters, of queries and of documents."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.core.api import ApiMixin, job_response
from apps.core.errors import Missing
from apps.estimates.filters import EstimateRunFilter
from apps.estimates.models import DocumentEstimate, EstimateRun
from apps.estimates.selectors import query_estimate_latest, run_staleness
from apps.estimates.serializers import (
    DocumentEstimateSerializer,
    EstimateCreateSerializer,
    EstimateRunDetailSerializer,
    EstimateRunSerializer,
    QueryLatestSerializer,
)
from apps.estimates.services import document_estimate_request, estimate_request
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.jobs.serializers import JobSerializer
from apps.queries.models import Query

__all__ = ["DocumentEstimateViewSet", "EstimateViewSet", "QueryEstimateView"]


class EstimateViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Estimates of clusters, newest first. POST asks for one: 202 with a job, or the result with `Prefer: wait=N`."""

    queryset = EstimateRun.objects.select_related("cluster")
    filterset_class = EstimateRunFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    def get_serializer_class(self) -> type:
        if self.action == "create":
            return EstimateCreateSerializer
        return EstimateRunDetailSerializer if self.action == "retrieve" else EstimateRunSerializer

    @extend_schema(responses={200: EstimateRunDetailSerializer, 202: JobSerializer})
    def create(self, request: Request) -> Response:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        asked = serializer.validated_data
        if "document" in asked:
            job = document_estimate_request(
                document=asked["document"], flow_slices=asked.get("flow_slices", 1), user=request.user
            )
            return job_response(request, job, _document_outcome)
        return job_response(request, estimate_request(cluster=_cluster(asked["cluster"]), user=request.user), _outcome)


class DocumentEstimateViewSet(ApiMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """The estimate of a document that was posted to `estimates`, kept for seven days."""

    queryset = DocumentEstimate.objects.all()
    serializer_class = DocumentEstimateSerializer
    scopes = {"GET": Scope.READ}


class QueryEstimateView(APIView):
    """A query's newest estimate."""

    scopes = {"GET": Scope.READ}

    @extend_schema(
        responses=QueryLatestSerializer,
        parameters=[OpenApiParameter("series", OpenApiTypes.BOOL, description="1: with the curves of the chart.")],
    )
    def get(self, request: Request, pk: int) -> Response:
        query = get_object_or_404(Query.objects.select_related("cluster"), pk=pk)
        row = query_estimate_latest(query)
        if row is None:
            raise Missing(f"Query {query.name} has no estimate: it does not run, or none was computed yet.")
        wanted = request.query_params.get("series", "").lower() in {"1", "true", "yes"}
        context = {"series": wanted, "staleness": run_staleness(row.run)}
        return Response(QueryLatestSerializer(row, context=context).data)


def _cluster(slug: str) -> Cluster:
    found = Cluster.objects.filter(slug=slug).first()
    if found is None:
        raise Missing(f"There is no cluster {slug!r}.", [("cluster", f"{slug!r} is not the slug of a cluster")])
    return found


def _outcome(job: Job) -> Any:
    return EstimateRunDetailSerializer(EstimateRun.objects.select_related("cluster").get(job_id=job.pk)).data


def _document_outcome(job: Job) -> Any:
    return DocumentEstimateSerializer(DocumentEstimate.objects.get(job_id=job.pk)).data
