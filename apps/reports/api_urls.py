"""Addresses of the reports' REST resources, under /api/v1/."""

from __future__ import annotations

from apps.core.rest.api import Router
from apps.reports.api import DefinitionViewSet, ReportViewSet, ScheduleViewSet, WebhookViewSet

router = Router()
router.register("reports", ReportViewSet, basename="report")
router.register("report-definitions", DefinitionViewSet, basename="report-definition")
router.register("report-schedules", ScheduleViewSet, basename="report-schedule")
router.register("webhooks", WebhookViewSet, basename="webhook")

urlpatterns = router.urls
