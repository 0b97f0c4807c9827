"""Addresses of the backtests' REST resources, under /api/v1/."""

from __future__ import annotations

from apps.backtests.api import BacktestViewSet
from apps.core.api import Router

router = Router()
router.register("backtests", BacktestViewSet, basename="backtest")

urlpatterns = router.urls
