"""Addresses of the API."""

from __future__ import annotations

from apps.core.rest.api import Router
from apps.planning.forecasts.api import ForecastViewSet, LoadHistoryViewSet

router = Router()
router.register("load-histories", LoadHistoryViewSet, basename="load-history")
router.register("forecasts", ForecastViewSet, basename="forecast")

urlpatterns = router.urls
