"""Views saved, changed, deleted, and made the default of a person or of the team."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.core.errors import Conflict, Fault, Malformed
from apps.core.limits import MAX_NOTE
from apps.fleet.validation import check_row
from apps.saved_views.models import DefaultView, SavedList, SavedView
from apps.saved_views.selectors import ViewCaller

__all__ = [
    "my_default_set",
    "saved_view_create",
    "saved_view_delete",
    "saved_view_update",
    "team_default_set",
]

MAX_PARAMETERS = 20  # of one view; the list with most has a handful
MAX_OWN_VIEWS = 200  # of one person, over all lists
_NOT_KEPT = frozenset({"view", "page", "export"})
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,39}")


@transaction.atomic
def saved_view_create(
    *, by: ViewCaller, list_name: str, name: str, parameters: Mapping[str, object], is_team: bool = False
) -> SavedView:
    """Save filters, search and order of a list under a name.

    Parameters
    ----------
    parameters : mapping
        {parameter of the list's address: text}: its filters, `q` for the search, `sort`.

    Raises
    ------
    Malformed
        With every fault of list, name and parameters.
    Forbidden
        A view for the team from somebody who only reads.
    Conflict
        The name is taken in this list.
    """
    if is_team:
        by.check_share()
    user = by.user
    if user.saved_views.count() >= MAX_OWN_VIEWS:
        raise Conflict(f"You have {MAX_OWN_VIEWS} saved views, the most that are kept. Delete some first.")
    view = SavedView(list_name=list_name, name=name.strip(), owner=user, parameters=parameters, is_team=is_team)
    return _store(view)


@transaction.atomic
def saved_view_update(*, view: SavedView, by: ViewCaller, **fields: Any) -> SavedView:
    """Change `name`, `parameters` or `is_team`."""
    by.check_change(view)
    unknown = sorted(set(fields) - {"name", "parameters", "is_team"})
    if unknown:
        raise Malformed(f"{unknown[0]} of a view cannot be set.", [(name, "cannot be set") for name in unknown])
    if fields.get("is_team", False):
        by.check_share()
    if view.is_team and fields.get("is_team") is False and view.owner_id != by.user.pk:
        message = f"it belongs to {view.owner.get_username()}, who alone takes it from the team; delete it instead"
        raise Conflict(f"“{view.name}” stays the team's: {message}.", [("is_team", message)])
    for name, value in fields.items():
        setattr(view, name, value.strip() if name == "name" else value)
    if not view.is_team:
        view.is_team_default = False
        view.default_of.exclude(user=view.owner).delete()  # it is nobody else's any more
    return _store(view)


@transaction.atomic
def saved_view_delete(*, view: SavedView, by: ViewCaller) -> None:
    """Delete a view. Lists that opened with it open with all rows, or with the team's default."""
    by.check_change(view)
    view.delete()


@transaction.atomic
def my_default_set(*, by: ViewCaller, list_name: str, view: SavedView | None, all_rows: bool = False) -> None:
    """Open a list with a view for one person; None with whatever the team has, or with `all_rows` despite it."""
    if list_name not in SavedList.values:
        raise Malformed("The list is not known.", [_list_fault(list_name)])
    if view is not None and (view.list_name != list_name or not by.is_listed(view)):
        raise Conflict(f"“{view.name}” is not a view of yours or the team's in this list. Save one like it first.")
    if view is None and not all_rows:
        DefaultView.objects.filter(user=by.user, list_name=list_name).delete()
        return
    DefaultView.objects.update_or_create(user=by.user, list_name=list_name, defaults={"view": view})


@transaction.atomic
def team_default_set(*, view: SavedView, by: ViewCaller, is_default: bool) -> SavedView:
    """Open the list with a view for everybody who chose no other, in the place of the team's present default."""
    if view.is_team_default == is_default:
        return view
    by.check_change(view)
    by.check_share()
    if not view.is_team:
        raise Conflict(f"“{view.name}” is a view of one person. Save it for the team first.")
    SavedView.objects.filter(list_name=view.list_name, is_team_default=True).update(is_team_default=False)
    view.is_team_default = is_default
    view.save(update_fields=["is_team_default", "updated_at"])
    return view


def _store(view: SavedView) -> SavedView:
    faults = _parameter_faults(view.parameters)
    if view.list_name not in SavedList.values:
        faults.append(_list_fault(view.list_name))
    check_row(view, faults)
    rows = SavedView.objects.filter(list_name=view.list_name, name=view.name, is_team=view.is_team)
    rows = rows if view.is_team else rows.filter(owner=view.owner)
    if rows.exclude(pk=view.pk).exists():
        whose = "The team has" if view.is_team else "You have"
        raise Conflict(f"{whose} a view {view.name!r} of this list already.", [("name", f"{view.name!r} is taken")])
    view.save()
    return view


def _list_fault(list_name: Any) -> Fault:
    return Fault("list_name", f"list_name is {str(list_name)[:40]!r}; allowed: {', '.join(SavedList.values)}")


def _parameter_faults(parameters: Any) -> list[Fault]:
    if not isinstance(parameters, Mapping) or not parameters:
        message = 'allowed: at least one filter, search or order, such as {"state": "running", "sort": "-estimate"}'
        return [Fault("parameters", f"parameters is {'empty' if not parameters else 'no object'}; {message}")]
    faults = []
    if len(parameters) > MAX_PARAMETERS:
        faults.append(Fault("parameters", f"{len(parameters)} parameters are given; allowed: {MAX_PARAMETERS}"))
    for name, value in parameters.items():
        if not isinstance(name, str) or name in _NOT_KEPT or not _PARAMETER.fullmatch(name):
            faults.append(Fault("parameters", f"{str(name)[:40]!r} is no filter, q or sort"))
        elif not isinstance(value, str) or not 0 < len(value) <= MAX_NOTE or not value.isprintable():
            allowed = f"a text of 1 to {MAX_NOTE} characters"
            faults.append(Fault(f"parameters.{name}", f"{name} is {str(value)[:40]!r}; allowed: {allowed}"))
    return faults
