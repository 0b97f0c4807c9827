"""Filters of lists of reviews, shared by pages and REST."""

from __future__ import annotations

from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.kubernetes.choices import ReviewBasis, ReviewOrigin

__all__ = ["KubernetesReviewFilter"]


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
