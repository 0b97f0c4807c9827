"""Addresses of the measurements' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from apps.measurements.api import QueryMeasurementsView

urlpatterns: list[URLPattern | URLResolver] = [
    path("queries/<int:pk>/measurements", QueryMeasurementsView.as_view(), name="query-measurements"),
]
