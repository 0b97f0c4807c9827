"""Addresses: REST below /api/, everything else pages."""

from __future__ import annotations

from importlib.util import find_spec

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from apps.core.health import healthz
from apps.core.index import ApiIndex

API = [
    "apps.accounts.api_urls",
    "apps.jobs.api_urls",
    "apps.fleet.api_urls",
    "apps.queries.api_urls",
    "apps.estimates.api_urls",
    "apps.admission.api_urls",
]
PAGES = ["apps.accounts.urls", "apps.pages.urls"]

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("api/v1/", ApiIndex.as_view(), name="api-index"),
    *(path("api/v1/", include(module)) for module in API if find_spec(module)),
    path("api/schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="api-schema"), name="api-docs"),
    *(path("", include(module)) for module in PAGES if find_spec(module)),
]

handler400 = "apps.core.pages.bad_request"
handler403 = "apps.core.pages.forbidden"
handler404 = "apps.core.pages.not_found"
handler500 = "apps.core.pages.server_error"
