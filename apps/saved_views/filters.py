"""Filters of the list of saved views."""

from __future__ import annotations

from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.saved_views.choices import SavedList

__all__ = ["SavedViewFilter"]


class SavedViewFilter(ListFilter):
    """`?list_name=queries&is_team=true&sort=name`."""

    list_name = ChoiceFilter(choices=SavedList.choices, label="The list it is a view of")
    name = TextFilter(label="Its name")
    owner = TextFilter("owner__username", label="Who saved it")
    is_team = BooleanFilter(label="Whether it is the team's")
    updated_at = TimeFilter()
    sorts = sort_paths("name", "list_name", "created_at", "updated_at", owner="owner__username")
