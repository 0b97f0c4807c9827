"""Reading answers to Kubernetes."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.kubernetes.models import KubernetesReview

__all__ = ["reviews_listed"]


def reviews_listed() -> QuerySet[KubernetesReview]:
    """Reviews, newest first, with the requests that they became."""
    return KubernetesReview.objects.select_related(
        "cluster", "admission__version__query", "admission__cluster", "asked_by"
    ).defer("admission__result", "admission__curves", "admission__snapshot_parts")
