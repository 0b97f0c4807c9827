"""Reading saved views."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from apps.accounts.models import User
from apps.saved_views.models import DefaultView, SavedView
from apps.saved_views.permissions import ViewCaller

__all__ = ["opens_with_all_rows", "view_by_link", "views_visible"]


def views_visible(caller: ViewCaller) -> QuerySet[SavedView]:
    """A person's own views and those of the team, by list and name, each with `is_my_default`."""
    mine = DefaultView.objects.filter(user=caller.user, view=OuterRef("pk"))
    rows = SavedView.objects.select_related("owner").filter(caller.listed)
    return rows.annotate(is_my_default=Exists(mine)).order_by("list_name", "name", "pk")


def view_by_link(list_name: str, text: str) -> SavedView | None:
    """The view of a list that a link names, also somebody else's own: whoever has the link may open it."""
    try:
        identity = UUID(text)
    except ValueError:
        return None
    return SavedView.objects.select_related("owner").filter(list_name=list_name, pk=identity).first()


def opens_with_all_rows(user: User, list_name: str) -> bool:
    """Whether a person wants a list to open with all rows although the team has a default."""
    return DefaultView.objects.filter(user=user, list_name=list_name, view=None).exists()
