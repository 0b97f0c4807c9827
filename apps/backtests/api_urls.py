"""Addresses of the backtests' REST resources, under /api/v1/."""

from __future__ import annotations

from apps.core.rest.api import Router
from apps.planning.backtests.api import BacktestViewSet

router = Router()
router.register("backtests", BacktestViewSet, basename="backtest")

urlpatterns = router.urls
