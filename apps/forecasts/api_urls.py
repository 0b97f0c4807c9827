"""Addresses of the API."""

from __future__ import annotations

from apps.core.api import Router
from apps.forecasts.api import ForecastViewSet, LoadHistoryViewSet

router = Router()
router.register("load-histories", LoadHistoryViewSet, basename="load-history")
router.register("forecasts", ForecastViewSet, basename="forecast")

urlpatterns = router.urls
