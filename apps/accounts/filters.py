"""Filters of the list of tokens."""

from __future__ import annotations

from apps.accounts.choices import TokenState
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths

__all__ = ["TokenFilter"]


class TokenFilter(ListFilter):
    """`?state=active&sort=last_used_at`."""

    name = TextFilter(label="Its name")
    state = ChoiceFilter(choices=TokenState.choices)
    expires_at = TimeFilter()
    last_used_at = TimeFilter()
    sorts = sort_paths("name", "created_at", "expires_at", "last_used_at")
