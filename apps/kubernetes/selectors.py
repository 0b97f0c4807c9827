"""Reading answers to Kubernetes, and the filters of their list, shared by pages and REST."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.kubernetes.models import KubernetesReview, ReviewBasis, ReviewOrigin

__all__ = ["KubernetesReviewFilter", "reviews_listed"]


def reviews_listed() -> QuerySet[KubernetesReview]:
    """Reviews, newest first, with the requests that they became."""
    return KubernetesReview.objects.select_related(
        "cluster", "admission__version__query", "admission__cluster", "asked_by"
    ).defer("admission__result", "admission__curves", "admission__snapshot_parts")


class KubernetesReviewFilter(ListFilter):
    """`?cluster=eu-1&namespace=streams&kind=FlinkDeployment&allowed=false&dry_run=false`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    kind = TextFilter("kind", label="Kind of the object")
    namespace = TextFilter("namespace", label="Namespace of the object")
    name = TextFilter("name", label="Name of the object")
    username = TextFilter("username", label="Who changes it in Kubernetes")
    allowed = BooleanFilter("allowed", label="Whether it was allowed")
    dry_run = BooleanFilter("dry_run", label="Whether it was a dry run")
    basis = ChoiceFilter(choices=ReviewBasis.choices)
    origin = ChoiceFilter(choices=ReviewOrigin.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "kind", "namespace", "name", "allowed", "basis", "waited_s")
