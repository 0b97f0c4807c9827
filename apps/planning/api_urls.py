"""Addresses of scenarios and what-ifs, under /api/v1/."""

from __future__ import annotations

from apps.core.rest.api import Router
from apps.planning.what_ifs.api import ScenarioViewSet, WhatIfViewSet

router = Router()
router.register("what-ifs", WhatIfViewSet, basename="what-if")
router.register("scenarios", ScenarioViewSet, basename="scenario")

urlpatterns = router.urls
