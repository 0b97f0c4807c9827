"""Addresses of the admissions' REST resources, under /api/v1/."""

from __future__ import annotations

from apps.admission.api import AdmissionViewSet
from apps.core.rest.api import Router

router = Router()
router.register("admissions", AdmissionViewSet, basename="admission")

urlpatterns = router.urls
