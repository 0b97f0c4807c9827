"""`/metrics`: the console's metrics for Prometheus and whatever reads OpenMetrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.permissions import ScopePermission
from apps.core.addresses import is_within
from apps.core.metrics import Family, Metric, metrics_response
from apps.exposition.families import console_families, health_families

__all__ = ["MetricsView"]

_TOOK = Metric("sluice_scrape_duration_seconds", "Time that this answer took to read.")


class ScrapePermission(ScopePermission):
    """A token of scope read, or an address in `SLUICE_METRICS_NETWORKS`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        listed = is_within(request.META.get("REMOTE_ADDR", ""), settings.METRICS_NETWORKS)
        return listed or super().has_permission(request, view)


class MetricsView(APIView):
    """`GET /metrics`."""

    permission_classes = [ScrapePermission]

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Everything; while the database is away what is known without it, to those who need no token."""
        response = metrics_response(request.headers.get("Accept", ""), _all())
        response["Cache-Control"] = "no-store"
        return response

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Every `Accept` is served: what is written is chosen by `metrics_response`, and faults are JSON."""
        return super().perform_content_negotiation(request, force=True)


def _all() -> Iterator[Family]:
    began = time.perf_counter()
    yield from health_families()
    try:
        yield from list(console_families())
    except DatabaseError:
        return  # `sluice_healthy` says so
    yield _TOOK.family(((), time.perf_counter() - began))
