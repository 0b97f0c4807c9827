"""Addresses of the incidents' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from apps.core.rest.api import Router
from apps.incidents.api import IncidentRoutingView, IncidentViewSet

router = Router()
router.register("incidents", IncidentViewSet, basename="incident")

urlpatterns = [
    path("clusters/<str:slug>/incident-routing", IncidentRoutingView.as_view(), name="incident-routing"),
    *router.urls,
]
