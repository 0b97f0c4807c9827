"""Permissions on saved views: the one rule on who may see, save and change them, on pages and over REST."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q
from django.http import HttpRequest
from rest_framework.request import Request

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import role_hint, scopes_of, signed_in_user
from apps.core.errors import Forbidden
from apps.saved_views.models import SavedView

__all__ = ["ViewCaller", "caller_of"]


@dataclass(frozen=True)
class ViewCaller:
    """Somebody who asks for views, with the scopes of the request: through a token they are fewer than the role's.

    A view of one's own needs no more than reading. What the team sees is changed by its owner as an operator, and by
    administrators. Others' own views are not there, but for whoever has the link that opens a list with one.
    """

    user: User
    scopes: frozenset[str]

    @property
    def listed(self) -> Q:
        """Condition on the views that lists show."""
        return Q(owner=self.user) | Q(is_team=True)

    @property
    def may_share(self) -> bool:
        """Whether the caller may save views for the team."""
        return Scope.OPERATE in self.scopes

    def is_listed(self, view: SavedView) -> bool:
        """Whether a view is the caller's own or the team's."""
        return view.is_team or view.owner_id == self.user.pk

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
    return ViewCaller(user, scopes_of(user, getattr(request, "auth", None)))
