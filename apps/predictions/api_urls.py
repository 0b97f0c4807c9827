"""Addresses of the predictions' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from apps.core.rest.api import Router
from apps.predictions.api import (
    ExecutionViewSet,
    FineTuningViewSet,
    ModelVersionViewSet,
    PredictionAccuracyView,
    PredictionViewSet,
    QueryBasisView,
)

router = Router()
router.register("predictions", PredictionViewSet, basename="prediction")
router.register("observed-executions", ExecutionViewSet, basename="observed-execution")
router.register("model-versions", ModelVersionViewSet, basename="model-version")
router.register("fine-tunings", FineTuningViewSet, basename="fine-tuning")

urlpatterns = [
    path("predictions/accuracy", PredictionAccuracyView.as_view(), name="prediction-accuracy"),
    path("queries/<int:pk>/basis", QueryBasisView.as_view(), name="query-basis"),
    *router.urls,
]
