"""Addresses of the estimates' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from apps.core.rest.api import Router
from apps.estimates.api import (
    AccuracyViewSet,
    CalibrationViewSet,
    DocumentEstimateViewSet,
    EstimateViewSet,
    ObjectiveViewSet,
    QueryEstimateView,
    SimulationView,
    UnscoredViewSet,
)

router = Router()
router.register("estimates/documents", DocumentEstimateViewSet, basename="document-estimate")
router.register("accuracy/unscored", UnscoredViewSet, basename="unscored")
router.register("accuracy", AccuracyViewSet, basename="accuracy")
router.register("calibrations", CalibrationViewSet, basename="calibration")
router.register("objectives", ObjectiveViewSet, basename="objective")
router.register("estimates", EstimateViewSet, basename="estimate")

urlpatterns = [
    path("queries/<int:pk>/estimate", QueryEstimateView.as_view(), name="query-estimate"),
    path("accuracy/simulations", SimulationView.as_view(), name="accuracy-simulation"),
    *router.urls,
]
