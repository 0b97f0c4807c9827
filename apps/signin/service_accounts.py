"""Accounts of programs, such as CI and webhooks: tokens and grants, no password, and a team that answers for them."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db.models import Count, Max, Min, Q, QuerySet
from django.utils import timezone

from apps.accounts.choices import Role
from apps.accounts.grants import grant_give
from apps.accounts.models import Team, User
from apps.accounts.services import token_revoke
from apps.core.errors import Conflict, Fault, Malformed, field_faults
from apps.core.limits import MAX_NOTE
from apps.ledger.recorder import recorded
from apps.signin.models import ServiceAccount

__all__ = [
    "service_account_create",
    "service_account_update",
    "service_accounts_listed",
]


def service_accounts_listed() -> QuerySet[ServiceAccount]:
    """Every account of a program with how many tokens work, when one was last used, and when the first one ends."""
    works = Q(user__tokens__revoked_at=None) & (
        Q(user__tokens__expires_at=None) | Q(user__tokens__expires_at__gt=timezone.now())
    )
    return ServiceAccount.objects.select_related("user", "team").annotate(
        token_count=Count("user__tokens", filter=works),
        used_at=Max("user__tokens__last_used_at"),
        ends_at=Min("user__tokens__expires_at", filter=works),
    )


@recorded()
def service_account_create(*, name: str, team: Team, by: User, role: str = "", description: str = "") -> ServiceAccount:
    """Make an account that nobody signs in to; `role` is granted on everything, none where it is empty.

    Raises
    ------
    Malformed
        A name or a role that is none.
    Conflict
        The name is taken.
    """
    user = User(username=name.strip())
    user.set_unusable_password()
    faults = (
        [] if not role or role in Role.values else [Fault("role", f"{role!r} is not one of {', '.join(Role.values)}")]
    )
    try:
        user.clean_fields()
    except ValidationError as error:
        faults += [
            Fault("name" if fault.path == "username" else fault.path, fault.message) for fault in field_faults(error)
        ]
    if len(description) > MAX_NOTE:
        faults.append(Fault("description", f"it has {len(description)} characters; at most {MAX_NOTE} are allowed"))
    if faults:
        raise Malformed("The service account cannot be created.", faults)
    if User.objects.filter(username__iexact=user.username).exists():
        raise Conflict(f"There is an account {user.username!r} already.", [("name", "is taken")])
    user.save()
    if role:
        grant_give(user=user, role=role)
    return ServiceAccount.objects.create(user=user, team=team, description=description.strip(), created_by=by)


@recorded()
def service_account_update(
    *, account: ServiceAccount, team: Team | None = None, is_active: bool | None = None
) -> ServiceAccount:
    """Give an account to another team, or switch it on or off; switched off, its tokens are revoked for good."""
    if team is not None:
        account.team = team
        account.save(update_fields=["team"])
    if is_active is not None and account.user.is_active != is_active:
        account.user.is_active = is_active
        account.user.save(update_fields=["is_active"])
        for token in account.user.tokens.filter(revoked_at=None) if not is_active else ():
            token_revoke(token=token)
    return account
