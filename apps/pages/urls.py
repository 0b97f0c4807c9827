"""Addresses of the pages: one module with `urlpatterns` for each room."""

from __future__ import annotations

from django.urls import include, path

app_name = "pages"

_ROOMS = (
    "apps.pages.overview.urls",
    "apps.pages.incidents.urls",
    "apps.pages.fleet.urls",
    "apps.pages.queries.urls",
    "apps.pages.admission.urls",
    "apps.pages.kubernetes",
    "apps.pages.placement.urls",
    "apps.pages.plans.urls",
    "apps.pages.forecasts.urls",
    "apps.pages.provisioning.urls",
    "apps.pages.microbatch.urls",
    "apps.pages.resource_plans.urls",
    "apps.pages.reports.urls",
    "apps.pages.arrivals.urls",
    "apps.pages.sources.urls",
    "apps.pages.connections.urls",
    "apps.pages.live.urls",
    "apps.pages.accuracy.urls",
    "apps.pages.predictions.urls",
    "apps.pages.backtests.urls",
    "apps.pages.jobs",
    "apps.pages.saved_views.urls",
    "apps.pages.people",
    "apps.pages.search",
    "apps.pages.help",
)

urlpatterns = [path("", include(room)) for room in _ROOMS]
