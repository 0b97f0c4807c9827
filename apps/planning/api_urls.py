"""Addresses of planning under /api/v1/."""

from __future__ import annotations

from django.urls import path

from apps.core.rest.api import Router
from apps.planning.backtests import BacktestViewSet
from apps.planning.capacities import CapacityMetricsView, ClusterCapacityView, QueryCapacityView
from apps.planning.evacuation_api import EvacuationViewSet
from apps.planning.event_answers import EventRunViewSet
from apps.planning.events import PlannedEventViewSet
from apps.planning.forecasts import ForecastViewSet
from apps.planning.history_jobs import HistoryView
from apps.planning.load_histories import LoadHistoryViewSet
from apps.planning.parallelism import QueryParallelismView
from apps.planning.placements import PlacementViewSet
from apps.planning.plans import PlanAdoptView, PlanComparisonViewSet, PlansView
from apps.planning.remedies import QueryRemediesView, RemedyPreviewView
from apps.planning.resource_plans import ResourcePlanViewSet
from apps.planning.scenarios import ScenarioViewSet
from apps.planning.what_ifs import WhatIfViewSet

router = Router()
router.register("placements", PlacementViewSet, basename="placement")
router.register("evacuations", EvacuationViewSet, basename="evacuation")
router.register("backtests", BacktestViewSet, basename="backtest")
router.register("plan-comparisons", PlanComparisonViewSet, basename="plan-comparison")
router.register("load-histories", LoadHistoryViewSet, basename="load-history")
router.register("forecasts", ForecastViewSet, basename="forecast")
router.register("what-ifs", WhatIfViewSet, basename="what-if")
router.register("resource-plans", ResourcePlanViewSet, basename="resource-plan")
router.register("planned-events", PlannedEventViewSet, basename="planned-event")
router.register("event-runs", EventRunViewSet, basename="event-run")
router.register("scenarios", ScenarioViewSet, basename="scenario")

urlpatterns = [
    path("history", HistoryView.as_view(), name="history"),
    path("queries/<int:pk>/capacity", QueryCapacityView.as_view(), name="query-capacity"),
    path("queries/<int:pk>/parallelism", QueryParallelismView.as_view(), name="query-parallelism"),
    path("queries/<int:pk>/remedies", QueryRemediesView.as_view(), name="query-remedies"),
    path("queries/<int:pk>/remedies/preview", RemedyPreviewView.as_view(), name="query-remedies-preview"),
    path("clusters/<str:slug>/capacity", ClusterCapacityView.as_view(), name="cluster-capacity"),
    path("clusters/<str:slug>/capacity/metrics", CapacityMetricsView.as_view(), name="cluster-capacity-metrics"),
    path("queries/<int:pk>/plans", PlansView.as_view(), name="query-plans"),
    path("queries/<int:pk>/plans/adopt", PlanAdoptView.as_view(), name="query-plans-adopt"),
    *router.urls,
]
