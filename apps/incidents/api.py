"""REST: incidents, and where they are reported to."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.permissions import signed_in_user
from apps.core.rest.api import ApiMixin, Router
from apps.core.rest.serializers import read_body
from apps.fleet.selectors import cluster_by_slug
from apps.incidents.filters import IncidentFilter
from apps.incidents.models import Incident
from apps.incidents.selectors import incident_in_full, incidents_listed, routing_of
from apps.incidents.serializers import (
    IncidentAcknowledgeSerializer,
    IncidentDetailSerializer,
    IncidentRoutingSerializer,
    IncidentSerializer,
)
from apps.incidents.services import incident_acknowledge, incident_routing_update

__all__ = ["IncidentRoutingView", "IncidentViewSet"]


class IncidentViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Late queries by cause, newest first; one of them with its timeline."""

    queryset = Incident.objects.none()
    filterset_class = IncidentFilter
    ordering = "-opened_at"

    def get_serializer_class(self) -> type:
        return IncidentSerializer if self.action == "list" else IncidentDetailSerializer

    def get_queryset(self) -> Any:
        return incidents_listed() if self.action == "list" else incident_in_full()

    @extend_schema(request=IncidentAcknowledgeSerializer, responses=IncidentDetailSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, pk: str | None = None) -> Response:
        """Say that somebody has seen it. The first who says so is remembered."""
        values = read_body(IncidentAcknowledgeSerializer, request)
        row = incident_acknowledge(incident=self.get_object(), user=signed_in_user(request), **values)
        return Response(IncidentDetailSerializer(incident_in_full().get(pk=row.pk)).data)


class IncidentRoutingView(ApiMixin, APIView):
    """Mail addresses and webhooks that a cluster's incidents are reported to, and how long these are kept."""

    @extend_schema(responses=IncidentRoutingSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """The routing in force."""
        return Response(IncidentRoutingSerializer(routing_of(cluster_by_slug(slug))).data)

    @extend_schema(request=IncidentRoutingSerializer, responses=IncidentRoutingSerializer)
    def put(self, request: Request, slug: str) -> Response:
        """Replace the routing."""
        cluster = cluster_by_slug(slug)
        routing = incident_routing_update(cluster=cluster, **read_body(IncidentRoutingSerializer, request))
        return Response(IncidentRoutingSerializer(routing).data)


router = Router()
router.register("incidents", IncidentViewSet, basename="incident")

urlpatterns = [
    path("clusters/<str:slug>/incident-routing", IncidentRoutingView.as_view(), name="incident-routing"),
    *router.urls,
]
