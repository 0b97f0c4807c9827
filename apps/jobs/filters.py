"""Filters of job lists, shared by pages and REST."""

from __future__ import annotations

from apps.core.filters import CallerFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.jobs.models import JobKind, JobState

__all__ = ["JobFilter"]


class JobFilter(ListFilter):
    """`?state=queued&state=running&kind=…&cluster=eu-1&mine=true`."""

    state = ChoiceFilter(choices=JobState.choices)
    kind = ChoiceFilter(choices=JobKind.choices)
    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    mine = CallerFilter("requested_by", label="Whether you requested it")
    created_at = TimeFilter()
    finished_at = TimeFilter()
    sorts = sort_paths("created_at", "started_at", "finished_at", "state", "kind", cluster="cluster__slug")
