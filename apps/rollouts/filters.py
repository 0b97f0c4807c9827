"""Filters of lists of configurations and rollouts."""

from __future__ import annotations

import django_filters

from apps.rollouts.choices import ConfigOrigin, ConfigState, RolloutState
from apps.rollouts.models import RefinedConfig, Rollout

__all__ = ["ConfigFilter", "RolloutFilter"]


class ConfigFilter(django_filters.FilterSet):
    """`?state=current&origin=spark`."""

    state = django_filters.MultipleChoiceFilter(choices=ConfigState.choices)
    origin = django_filters.ChoiceFilter(choices=ConfigOrigin.choices)

    class Meta:
        model = RefinedConfig
        fields = ["state", "origin"]


class RolloutFilter(django_filters.FilterSet):
    """`?state=canary`."""

    state = django_filters.MultipleChoiceFilter(choices=RolloutState.choices)

    class Meta:
        model = Rollout
        fields = ["state"]
