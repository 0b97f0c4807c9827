"""Addresses of the placements' REST resource, under /api/v1/."""

from __future__ import annotations

from apps.core.rest.api import Router
from apps.planning.placements.api import PlacementViewSet

router = Router()
router.register("placements", PlacementViewSet, basename="placement")

urlpatterns = router.urls
