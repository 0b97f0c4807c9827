"""Filters of lists of configurations and rollouts."""

from __future__ import annotations

from apps.core.filters import ChoiceFilter, ListFilter, TimeFilter, sort_paths
from apps.rollouts.choices import ConfigOrigin, ConfigState, RolloutState

__all__ = ["ConfigFilter", "RolloutFilter"]


class ConfigFilter(ListFilter):
    """`?state=current&origin=spark`."""

    state = ChoiceFilter(choices=ConfigState.choices)
    origin = ChoiceFilter(choices=ConfigOrigin.choices)
    created_at = TimeFilter()
    sorts = sort_paths("number", "created_at", "updated_at", "state", "origin")


class RolloutFilter(ListFilter):
    """`?state=canary`."""

    state = ChoiceFilter(choices=RolloutState.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "started_at", "ended_at", "state", number="config__number")
