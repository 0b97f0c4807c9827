"""Addresses of the telemetry's REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from apps.core.rest.api import Router
from apps.telemetry.agents.api import AgentViewSet, EnrolmentViewSet, SourceViewSet, TableViewSet
from apps.telemetry.ingest.api import (
    BatchesView,
    FramesView,
    KeyedStateView,
    MetricsView,
    PipelineView,
    PlanView,
    ProducerView,
    StreamStateView,
)
from apps.telemetry.live.api import LiveViewSet

router = Router()
router.register("agents", AgentViewSet, basename="agent")
router.register("enrolment-tokens", EnrolmentViewSet, basename="enrolment-token")
router.register("telemetry-sources", SourceViewSet, basename="telemetry-source")
router.register("static-tables", TableViewSet, basename="static-table")
router.register("live-queries", LiveViewSet, basename="live-query")
urlpatterns = [
    path("telemetry/batches", BatchesView.as_view(), name="telemetry-batches"),
    path("streams/<str:cluster>/<str:query>/<str:operator>/batches", ProducerView.as_view(), name="producer-batches"),
    path("stream-processor", StreamStateView.as_view(), name="stream-processor"),
    path("stream-processor/state", KeyedStateView.as_view(), name="stream-processor-state"),
    path("stream-processor/metrics", MetricsView.as_view(), name="stream-processor-metrics"),
    path("stream-processor/plan", PlanView.as_view(), name="stream-processor-plan"),
    path("stream-processor/pipelines/<str:digest>", PipelineView.as_view(), name="stream-processor-pipeline"),
    path("stream-processor/frames", FramesView.as_view(), name="stream-processor-frames"),
    *router.urls,
]
