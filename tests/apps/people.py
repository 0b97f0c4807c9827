"""People with a role on everything, whatever their password."""

from __future__ import annotations

from apps.accounts.choices import Role
from apps.accounts.grants import grant_give
from apps.accounts.models import User

__all__ = ["person"]


def person(name: str, role: str = Role.VIEWER, password: str | None = None) -> User:
    user = User.objects.create_user(name, password=password)
    grant_give(user=user, role=role)
    return user
