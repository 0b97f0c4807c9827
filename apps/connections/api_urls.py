"""Addresses of the connections' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

from apps.connections.api import ConnectionViewSet, ImportedJobViewSet
from apps.core.rest.api import Router

router = Router()
router.register("connections", ConnectionViewSet, basename="connection")
router.register("imported-jobs", ImportedJobViewSet, basename="imported-job")

urlpatterns: list[URLPattern | URLResolver] = list(router.urls)
