"""Reading saved views: the one rule on who may see and change them, on pages and over REST, and their filters."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from rest_framework.request import Request

from apps.accounts.choices import Scope
from apps.accounts.models import Token, User
from apps.accounts.permissions import role_hint, signed_in_user
from apps.core.errors import Forbidden
from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.saved_views.models import DefaultView, SavedList, SavedView

__all__ = ["SavedViewFilter", "ViewCaller", "caller_of", "opens_with_all_rows", "view_by_link", "views_visible"]


@dataclass(frozen=True)
class ViewCaller:
    """Somebody who asks for views, with their scopes on everything: through a token they are fewer than the role's.

    A view of one's own needs no more than reading. What the team sees is changed by its owner as an operator, and by
    administrators. Others' own views are not there, but for whoever has the link that opens a list with one.
    """

    user: User
    scopes: frozenset[str]

    @property
    def listed(self) -> Q:
        """Condition on the views that lists show."""
        return Q(owner=self.user) | Q(is_team=True) if Scope.READ in self.scopes else Q(owner=self.user)

    @property
    def may_share(self) -> bool:
        """Whether the caller may save views for the team."""
        return Scope.OPERATE in self.scopes

    def is_listed(self, view: SavedView) -> bool:
        """Whether a view is the caller's own or the team's."""
        return view.owner_id == self.user.pk or (view.is_team and Scope.READ in self.scopes)

    def may_change(self, view: SavedView) -> bool:
        """Whether the caller may change and delete a view."""
        is_owner = view.owner_id == self.user.pk
        return (is_owner and self.may_share) or Scope.ADMIN in self.scopes if view.is_team else is_owner

    def check_change(self, view: SavedView) -> None:
        """Raise Forbidden unless the caller may change a view."""
        if self.may_change(view):
            return
        if view.owner_id == self.user.pk:
            self.check_share()
        raise Forbidden(
            f"“{view.name}” belongs to {view.owner.get_username()}: its owner or an administrator changes it. "
            "Save a view of your own like it."
        )

    def check_share(self) -> None:
        """Raise Forbidden unless the caller may save views for the team."""
        if not self.may_share:
            message = f"Views for the team are not yours to save. {role_hint(Scope.OPERATE)}"
            raise Forbidden(message, code="scope_missing")


def caller_of(request: HttpRequest | Request) -> ViewCaller:
    """The caller of a request, by a session or by a token."""
    user = signed_in_user(request)
    token = getattr(request, "auth", None)
    return ViewCaller(user, (token if isinstance(token, Token) else user).reach.everything)


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


class SavedViewFilter(ListFilter):
    """`?list_name=queries&is_team=true&sort=name`."""

    list_name = ChoiceFilter(choices=SavedList.choices, label="The list it is a view of")
    name = TextFilter(label="Its name")
    owner = TextFilter("owner__username", label="Who saved it")
    is_team = BooleanFilter(label="Whether it is the team's")
    updated_at = TimeFilter()
    sorts = sort_paths("name", "list_name", "created_at", "updated_at", owner="owner__username")
