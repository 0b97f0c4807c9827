"""Filters of lists of admission requests, shared by pages and API."""

from __future__ import annotations

from apps.admission.choices import AdmissionSource, AdmissionState, Verdict
from apps.core.filters import CallerFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths

__all__ = ["AdmissionFilter"]


class AdmissionFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&state=preview&state=queued&verdict=reject&source=kubernetes&mine=true`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=AdmissionState.choices)
    verdict = ChoiceFilter(choices=Verdict.choices)
    source = ChoiceFilter(choices=AdmissionSource.choices)
    mine = CallerFilter("requested_by", label="Whether you asked")
    created_at = TimeFilter()
    decided_at = TimeFilter()
    sorts = sort_paths("created_at", "decided_at", "updated_at", "state", "verdict", query="query__name")
