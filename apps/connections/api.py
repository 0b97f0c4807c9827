"""REST: connections to engines, their checks, imports, refreshes and uploads, and the jobs that were imported."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db.models import Model
from django.urls import URLPattern, URLResolver
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.connections import services
from apps.connections.filters import ConnectionFilter, ImportedJobFilter
from apps.connections.models import Connection, ImportedJob
from apps.connections.selectors import connections_listed, jobs_listed
from apps.connections.serializers import (
    ConnectionSerializer,
    ImportedJobSerializer,
    ImportSettingsSerializer,
    UploadAnswerSerializer,
)
from apps.connections.uploads import upload_store
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Malformed
from apps.core.rest.api import ApiMixin, Router
from apps.core.rest.serializers import read_body
from apps.core.viewsets import ServiceViewSet
from apps.jobs.api import job_response
from apps.jobs.models import Job
from apps.jobs.serializers import JobSerializer

__all__ = ["ConnectionViewSet", "ImportedJobViewSet"]

_JOB_ANSWER = {200: ConnectionSerializer, 202: JobSerializer}
_FILE = {"multipart/form-data": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}}


class ConnectionViewSet(ServiceViewSet):
    """Connections to engines."""

    body_sizes = {"upload": DOCUMENT}
    queryset = Connection.objects.none()
    serializer_class = ConnectionSerializer
    filterset_class = ConnectionFilter
    ordering = "name"
    row_keyword = "connection"
    scopes = {"import_jobs": Scope.ADMIT}
    service_update = staticmethod(services.connection_update)
    service_delete = staticmethod(services.connection_delete)

    def get_queryset(self) -> Any:
        return connections_listed()

    def create_row(self, values: dict[str, Any]) -> Model:
        return services.connection_create(user=signed_in_user(self.request), **values)

    @extend_schema(request=None, responses=_JOB_ANSWER, filters=False)
    @action(detail=True, methods=["post"])
    def check(self, request: Request, pk: str | None = None) -> Response:
        """Look at what the engine answers: what was found, is missing, is assumed, and what asking costs it.

        No pool, node, query or statistic is stored by it.
        """
        connection = self.get_object()
        job = services.connection_check(connection=connection, user=signed_in_user(request))
        return self._answer(request, connection, job)

    @extend_schema(request=ImportSettingsSerializer, responses=_JOB_ANSWER, filters=False)
    @action(detail=True, methods=["post"], url_path="import", url_name="import")
    def import_jobs(self, request: Request, pk: str | None = None) -> Response:
        """Turn the engine's jobs into running queries with measured statistics. Repeated, it changes what changed."""
        values = read_body(ImportSettingsSerializer, request)
        connection = self.get_object()
        job = services.connection_import(connection=connection, user=signed_in_user(request), **values)
        return self._answer(request, connection, job)

    @extend_schema(request=None, responses=_JOB_ANSWER, filters=False)
    @action(detail=True, methods=["post"])
    def refresh(self, request: Request, pk: str | None = None) -> Response:
        """Ask once more now, outside the schedule."""
        connection = self.get_object()
        job = services.connection_refresh(connection=connection, user=signed_in_user(request))
        return self._answer(request, connection, job)

    @extend_schema(request=None, responses=ConnectionSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str | None = None) -> Response:
        """Ask nothing more until it is resumed."""
        return Response(self._shown(services.connection_pause(connection=self.get_object())))

    @extend_schema(request=None, responses=ConnectionSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str | None = None) -> Response:
        """Ask again from now on."""
        return Response(self._shown(services.connection_resume(connection=self.get_object())))

    @extend_schema(
        request={**_FILE, "application/json": OpenApiTypes.OBJECT}, responses=UploadAnswerSerializer, filters=False
    )
    @action(detail=True, methods=["post"], parser_classes=[MultiPartParser])
    def upload(self, request: Request, pk: str | None = None) -> Response:
        """Take the engine's answers as a file, in place of those before; a check or an import reads them then."""
        file = request.FILES.get("file")
        if file is None:
            message = "file is missing; allowed: a zip, JSON or text of the engine's answers"
            raise Malformed(f"{message}.", [("file", message)])
        return Response(UploadAnswerSerializer(asdict(upload_store(connection=self.get_object(), file=file))).data)

    def _answer(self, request: Request, connection: Connection, job: Job) -> Response:
        address = f"/api/v1/connections/{connection.pk}"
        return job_response(request, job, lambda _: self._shown(connection), address=address)


class ImportedJobViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Jobs of engines that are queries here."""

    queryset = ImportedJob.objects.none()
    serializer_class = ImportedJobSerializer
    filterset_class = ImportedJobFilter
    ordering = "name"
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return jobs_listed()


router = Router()
router.register("connections", ConnectionViewSet, basename="connection")
router.register("imported-jobs", ImportedJobViewSet, basename="imported-job")

urlpatterns: list[URLPattern | URLResolver] = list(router.urls)
