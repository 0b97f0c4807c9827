"""Addresses of the plans' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from apps.core.rest.api import Router
from apps.planning.plans.api import PlanAdoptView, PlanComparisonViewSet, PlansView

router = Router()
router.register("plan-comparisons", PlanComparisonViewSet, basename="plan-comparison")

urlpatterns = [
    path("queries/<int:pk>/plans", PlansView.as_view(), name="query-plans"),
    path("queries/<int:pk>/plans/adopt", PlanAdoptView.as_view(), name="query-plans-adopt"),
    *router.urls,
]
