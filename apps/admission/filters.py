"""Filters of lists of admission requests, shared by pages and API."""

from __future__ import annotations

import django_filters
from django.db.models import QuerySet

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest

__all__ = ["AdmissionFilter"]


class AdmissionFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=checkout&state=preview&state=queued&verdict=reject&mine=1`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    query = django_filters.CharFilter(field_name="query__name", label="Name of the query")
    state = django_filters.MultipleChoiceFilter(choices=AdmissionState.choices)
    verdict = django_filters.MultipleChoiceFilter(choices=Verdict.choices)
    mine = django_filters.BooleanFilter(method="filter_mine", label="Asked by the caller")

    class Meta:
        model = AdmissionRequest
        fields = ["cluster", "query", "state", "verdict", "mine"]

    def filter_mine(self, rows: QuerySet[AdmissionRequest], name: str, value: bool) -> QuerySet[AdmissionRequest]:
        user = self.request.user
        return rows.filter(requested_by=user) if value else rows.exclude(requested_by=user)
