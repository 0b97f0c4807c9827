"""Local accounts: who may sign in with a password."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm

from apps.accounts.models import User
from apps.signin.models import ServiceAccount

__all__ = ["SignInForm", "are_passwords_limited", "is_local_account"]


def are_passwords_limited() -> bool:
    """Whether only named accounts sign in with a password (`SLUICE_LOCAL_ACCOUNTS`)."""
    return bool(settings.LOCAL_ACCOUNTS)


def is_local_account(user: User) -> bool:
    """Whether a person may sign in with a password."""
    is_named = not are_passwords_limited() or user.username in settings.LOCAL_ACCOUNTS
    return is_named and not ServiceAccount.objects.filter(user=user).exists()


class SignInForm(AuthenticationForm):
    """User name and password. That somebody may not use a password is not told apart from a wrong one."""

    def confirm_login_allowed(self, user: Any) -> None:
        super().confirm_login_allowed(user)
        if not is_local_account(user):
            raise self.get_invalid_login_error()
