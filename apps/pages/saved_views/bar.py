"""The saved views of a list as its page offers them, and the one in force."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.http import HttpRequest, QueryDict

from apps.saved_views.models import SavedList, SavedView
from apps.saved_views.selectors import caller_of, opens_with_all_rows, view_by_link, views_visible
from apps.ui.tables import ALL_ROWS

__all__ = ["ListViews", "open_views"]

_NO_FILTERS = frozenset({"view", "page", "export"})


def open_views(request: HttpRequest, list_name: SavedList) -> ListViews:
    """Put the view that the address names, or else the default, in force: its parameters become those of the request.

    An address with filters, search or order of its own shows just these.
    """
    views = ListViews(request, list_name)
    if views.current is not None and not views.given:
        query = QueryDict(mutable=True)
        query.update(views.current.parameters)
        query.update({name: request.GET[name] for name in ("page", "export") if name in request.GET})
        query["view"] = str(views.current.pk)
        request.GET = query
    return views


class ListViews:
    """Read by templates as `table.views`.

    Attributes
    ----------
    given : dict
        Filters, search and order that the address itself names.
    current : SavedView or None
        The view in force, or the one that the present filters began with.
    is_missing : bool
        The address names a view that does not exist, or no longer.
    """

    def __init__(self, request: HttpRequest, list_name: SavedList) -> None:
        self.caller = caller_of(request)
        self.list_name, self.path = list_name, request.path
        self.rows = list(views_visible(self.caller).filter(list_name=list_name))
        self.given = {name: value for name, value in request.GET.items() if name not in _NO_FILTERS}
        link = request.GET.get("view", "")
        self.current = self._current(link)
        self.is_missing = bool(link) and link != ALL_ROWS and self.current is None
        self.link = request.build_absolute_uri(f"{self.path}?view={self.current.pk}") if self.current else ""

    def _current(self, link: str) -> SavedView | None:
        if link and link != ALL_ROWS:
            listed = next((view for view in self.rows if str(view.pk) == link), None)
            return listed or view_by_link(self.list_name, link)
        return None if link or self.given else self.default

    @cached_property
    def default(self) -> SavedView | None:
        """The view that the list opens with: one's own choice, else the team's."""
        own = next((view for view in self.rows if view.is_my_default), None)
        return own if own or self.team_default is None or self.prefers_all else self.team_default

    @property
    def team_default(self) -> SavedView | None:
        return next((view for view in self.rows if view.is_team_default), None)

    @cached_property
    def prefers_all(self) -> bool:
        """Whether the person opens the list with all rows although the team has a default."""
        return self.team_default is not None and opens_with_all_rows(self.caller.user, self.list_name)

    @property
    def mine(self) -> list[SavedView]:
        return [view for view in self.rows if not view.is_team]

    @property
    def team(self) -> list[SavedView]:
        return [view for view in self.rows if view.is_team]

    @property
    def is_changed(self) -> bool:
        """Whether filters, search or order were changed since the view was opened."""
        given = {name: value for name, value in self.given.items() if value}
        return self.current is not None and bool(self.given) and given != self.current.parameters

    @property
    def is_listed(self) -> bool:
        """Whether the view in force is among one's own and the team's."""
        return any(view == self.current for view in self.rows)

    @property
    def may_change(self) -> bool:
        return self.current is not None and self.caller.may_change(self.current)

    @property
    def may_share(self) -> bool:
        return self.caller.may_share

    def lost(self, kept: dict[str, str]) -> list[tuple[str, Any]]:
        """Parameters of the view in force that the list does not know, or no longer: (parameter, value)."""
        if self.current is None or self.is_changed:
            return []
        return [(name, value) for name, value in self.current.parameters.items() if kept.get(name) != value]
