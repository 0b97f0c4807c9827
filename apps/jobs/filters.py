"""Filters of job lists, shared by pages and REST."""

from __future__ import annotations

import django_filters
from django.db.models import QuerySet

from apps.jobs.models import Job, JobKind, JobState

__all__ = ["JobFilter"]


class JobFilter(django_filters.FilterSet):
    """?state= (may repeat) ?kind= ?cluster=slug ?mine=true"""

    state = django_filters.MultipleChoiceFilter(choices=JobState.choices)
    kind = django_filters.ChoiceFilter(choices=JobKind.choices)
    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster.")
    mine = django_filters.BooleanFilter(method="filter_mine", label="Only those you requested.")

    class Meta:
        model = Job
        fields = ["state", "kind", "cluster", "mine"]

    def filter_mine(self, queryset: QuerySet[Job], name: str, value: bool) -> QuerySet[Job]:
        return queryset.filter(requested_by=self.request.user) if value else queryset
