"""REST: Spark queries that are watched, their micro-batches, progress of them, refits and settings."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.rest.api import ApiMixin, ServiceViewSet
from apps.core.rest.parsers import StrictJSONParser, check_shape
from apps.core.rest.serializers import read_body
from apps.microbatch import services
from apps.microbatch.filters import MicroBatchFilter, SparkQueryFilter
from apps.microbatch.fits import fit_refit
from apps.microbatch.models import MicroBatch, SparkQuery
from apps.microbatch.progress import ProgressAnswer, documents_of, own_progress_ingest, progress_ingest
from apps.microbatch.selectors import spark_queries_listed
from apps.microbatch.serializers import (
    ApplySerializer,
    BatchFitSerializer,
    MicroBatchSerializer,
    OwnProgressSerializer,
    SparkQuerySerializer,
)
from engine.microbatch.progress_text import ProgressText

__all__ = ["MicroBatchViewSet", "OwnProgressView", "ProgressParser", "SparkQueryViewSet"]


class ProgressParser(StrictJSONParser):
    """Progress of Spark as it is written: JSON, or lines of it, whose numbers Spark may also write as 6.9E8."""

    def read(self, data: bytes, max_values: int) -> Any:
        check_shape(data, max_values)
        return documents_of(data)


class _LinesParser(ProgressParser):
    media_type = "application/x-ndjson"


class _TextParser(ProgressParser):
    media_type = "text/plain"


_BODIES = dict.fromkeys(("application/json", "application/x-ndjson", "text/plain"), OpenApiTypes.OBJECT)


class SparkQueryViewSet(ServiceViewSet):
    """Spark queries that are watched."""

    body_sizes = {"progress": DOCUMENT}
    queryset = SparkQuery.objects.none()
    serializer_class = SparkQuerySerializer
    filterset_class = SparkQueryFilter
    ordering = "name"
    row_keyword = "query"
    creator_keyword = "user"
    service_create = staticmethod(services.spark_query_create)
    scopes = {"progress": Scope.INGEST}
    service_delete = staticmethod(services.spark_query_delete)

    def get_queryset(self) -> Any:
        return spark_queries_listed()

    @staticmethod
    def service_update(*, query: SparkQuery, **values: Any) -> Model:
        for fixed in ("cluster", "origin"):
            values.pop(fixed, None)
        return services.spark_query_update(query=query, **values)

    @extend_schema(request=_BODIES, responses=ProgressAnswer, filters=False)
    @action(detail=True, methods=["post"], parser_classes=[ProgressParser, _LinesParser, _TextParser])
    def progress(self, request: Request, pk: str | None = None) -> Response:
        """Take in StreamingQueryProgress: one object, a list, or lines. Repeated micro-batches change nothing."""
        query = self.get_object()
        text = request.data if isinstance(request.data, ProgressText) else documents_of(b"")  # there was no body
        answer = progress_ingest(query=query, documents=text.documents, unread=text.left_out)
        return Response(answer.to_dict())

    @extend_schema(request=None, responses=BatchFitSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def refit(self, request: Request, pk: str | None = None) -> Response:
        """Fit fixed time and time per row anew to the newest 20 micro-batches under the present settings."""
        return Response(BatchFitSerializer(fit_refit(query=self.get_object(), user=signed_in_user(request))).data)

    @extend_schema(request=ApplySerializer, responses=SparkQuerySerializer, filters=False)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str | None = None) -> Response:
        """Apply settings. The stream processor changes its trigger; of other queries it is noted that you did."""
        values = read_body(ApplySerializer, request)["settings"]
        row = services.settings_apply(query=self.get_object(), user=signed_in_user(request), **values)
        return Response(self._shown(row))


class MicroBatchViewSet(ApiMixin, mixins.ListModelMixin, viewsets.GenericViewSet):
    """Micro-batches of a Spark query, newest first."""

    queryset = MicroBatch.objects.none()
    serializer_class = MicroBatchSerializer
    filterset_class = MicroBatchFilter
    ordering = "-begins_at"
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        query = get_object_or_404(SparkQuery, pk=self.kwargs["query_pk"])
        return MicroBatch.objects.filter(query=query)


class OwnProgressView(ApiMixin, APIView):
    """Progress of the stream processor."""

    body_sizes = {"POST": DOCUMENT}
    scopes = {"POST": Scope.INGEST}

    @extend_schema(request=OwnProgressSerializer, responses=ProgressAnswer)
    def post(self, request: Request) -> Response:
        """Take in progress of Sluice's own stream processor; the answer names the trigger interval that is wanted."""
        values = read_body(OwnProgressSerializer, request)
        answer = own_progress_ingest(documents=values["progress"], settings=values["query"])
        return Response(answer.to_dict())
