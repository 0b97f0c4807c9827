"""Addresses: REST below /api/, everything else pages."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from apps.core.health import healthz
from apps.core.reach import AskedOn
from apps.core.rest.schema import ApiIndex
from apps.exposition.views import MetricsView


class SchemaView(SpectacularAPIView):
    """The description of the REST API, for everybody who signs in."""

    asked_on = AskedOn.OWN


class DocumentationView(SpectacularSwaggerSplitView):
    """Its documentation to try it out."""

    asked_on = AskedOn.OWN


urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("api/v1/", ApiIndex.as_view(), name="api-index"),
    path("api/v1/", include("apps.accounts.api")),
    path("api/v1/", include("apps.signin.api")),
    path("api/v1/", include("apps.accounts.people_api")),
    path("api/v1/", include("apps.ledger.api")),
    path("api/v1/", include("apps.jobs.api")),
    path("api/v1/", include("apps.fleet.api")),
    path("api/v1/", include("apps.saved_views.api")),
    path("api/v1/", include("apps.queries.api")),
    path("api/v1/", include("apps.policies.api")),
    path("api/v1/", include("apps.estimates.api")),
    path("api/v1/", include("apps.connections.api")),
    path("api/v1/", include("apps.predictions.api")),
    path("api/v1/", include("apps.admission.group_api")),
    path("api/v1/", include("apps.admission.api")),
    path("api/v1/", include("apps.telemetry.agent_api")),
    path("api/v1/", include("apps.telemetry.ingest_api")),
    path("api/v1/", include("apps.telemetry.live_api")),
    path("api/v1/", include("apps.results.api")),
    path("api/v1/", include("apps.measurements.api")),
    path("api/v1/", include("apps.microbatch.api")),
    path("api/v1/", include("apps.rollouts.api")),
    path("api/v1/", include("apps.rollouts.schedule_api")),
    path("api/v1/", include("apps.planning.api_urls")),
    path("api/v1/", include("apps.reports.api")),
    path("api/v1/", include("apps.incidents.api")),
    path("api/v1/", include("apps.exports.api")),
    path("api/v1/", include("apps.operation.api")),
    path("api/v1/", include("apps.kubernetes.api")),
    path("api/schema/", SchemaView.as_view(), name="api-schema"),
    path("api/docs/", DocumentationView.as_view(url_name="api-schema"), name="api-docs"),
    path("", include("apps.kubernetes.urls")),
    path("", include("apps.signin.urls")),
    path("", include("apps.accounts.urls")),
    path("", include("apps.pages.urls")),
]

handler400 = "apps.core.problem_details.bad_request"
handler403 = "apps.core.problem_details.forbidden"
handler404 = "apps.core.problem_details.not_found"
handler500 = "apps.core.problem_details.server_error"
