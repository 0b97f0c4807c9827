"""Filters of predictions, executions, models and fine-tunings."""

from __future__ import annotations

import django_filters

from apps.predictions.choices import (
    ExecutionOrigin,
    FineTuningState,
    ModelOrigin,
    ModelState,
    PredictionPurpose,
    PredictionState,
)
from apps.predictions.models import FineTuning, ModelVersion, ObservedExecution, Prediction

__all__ = ["ExecutionFilter", "FineTuningFilter", "ModelFilter", "PredictionFilter"]


class PredictionFilter(django_filters.FilterSet):
    cluster = django_filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    query = django_filters.CharFilter(field_name="query__name", help_text="Name of the query.")
    state = django_filters.ChoiceFilter(choices=PredictionState.choices)
    purpose = django_filters.ChoiceFilter(choices=PredictionPurpose.choices)

    class Meta:
        model = Prediction
        fields: list[str] = []


class ExecutionFilter(django_filters.FilterSet):
    cluster = django_filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    query = django_filters.CharFilter(field_name="query__name", help_text="Name of the query.")
    origin = django_filters.ChoiceFilter(choices=ExecutionOrigin.choices)
    model = django_filters.NumberFilter(field_name="model_id", help_text="Id of a model version.")

    class Meta:
        model = ObservedExecution
        fields: list[str] = []


class ModelFilter(django_filters.FilterSet):
    cluster = django_filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    origin = django_filters.ChoiceFilter(choices=ModelOrigin.choices)
    state = django_filters.ChoiceFilter(choices=ModelState.choices)

    class Meta:
        model = ModelVersion
        fields: list[str] = []


class FineTuningFilter(django_filters.FilterSet):
    cluster = django_filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    state = django_filters.ChoiceFilter(choices=FineTuningState.choices)

    class Meta:
        model = FineTuning
        fields: list[str] = []
