"""Addresses of the answers to Kubernetes, under /api/v1/."""

from __future__ import annotations

from apps.core.rest.api import Router
from apps.kubernetes.api import KubernetesReviewViewSet

router = Router()
router.register("kubernetes-reviews", KubernetesReviewViewSet, basename="kubernetes-review")

urlpatterns = router.urls
