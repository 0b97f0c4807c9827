"""Filters of predictions, executions, models and fine-tunings."""

from __future__ import annotations

from apps.core.filters import ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.predictions.choices import (
    ExecutionOrigin,
    FineTuningState,
    ModelOrigin,
    ModelState,
    PredictionPurpose,
    PredictionState,
)

__all__ = ["ExecutionFilter", "FineTuningFilter", "ModelFilter", "PredictionFilter"]


class PredictionFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&state=predicted`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    state = ChoiceFilter(choices=PredictionState.choices)
    purpose = ChoiceFilter(choices=PredictionPurpose.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "elapsed_s", "state", query="query__name", cluster="cluster__slug")


class ExecutionFilter(ListFilter):
    """`?cluster=eu-1&query=checkout&origin=reported`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    query = TextFilter("query__name", label="Name of the query")
    origin = ChoiceFilter(choices=ExecutionOrigin.choices)
    model = NumberFilter("model_id", whole=True, label="Id of a model version")
    ends_at = TimeFilter()
    sorts = sort_paths("ends_at", "starts_at", "created_at", query="query__name", cluster="cluster__slug")


class ModelFilter(ListFilter):
    """`?cluster=eu-1&state=in_force`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    origin = ChoiceFilter(choices=ModelOrigin.choices)
    state = ChoiceFilter(choices=ModelState.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "in_force_at", "number", "state", cluster="cluster__slug")


class FineTuningFilter(ListFilter):
    """`?cluster=eu-1&state=refused`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=FineTuningState.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "observations", "state", cluster="cluster__slug")
