"""Invitations: a link by which somebody makes an account, once, with a role that was set beforehand."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives
from django.db.models import Case, CharField, QuerySet, Value, When
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Group, User
from apps.accounts.services import token_digest, user_create
from apps.core.errors import Conflict, Fault, Malformed, Missing, field_faults
from apps.core.messages import send_mail
from apps.ledger.recorder import recorded
from apps.signin.choices import InvitationState
from apps.signin.local_accounts import are_passwords_limited
from apps.signin.models import Invitation
from engine.redaction import note_secret

__all__ = [
    "MAX_DAYS",
    "invitation_accept",
    "invitation_create",
    "invitation_mail",
    "invitation_of",
    "invitation_revoke",
    "invitations_listed",
]

MAX_DAYS = 30
_PREFIX = "sli_"


def invitations_listed() -> QuerySet[Invitation]:
    """Every invitation, newest first, each with its `state`."""
    state = Case(
        When(used_at__isnull=False, then=Value(InvitationState.USED)),
        When(revoked_at__isnull=False, then=Value(InvitationState.REVOKED)),
        When(expires_at__lte=timezone.now(), then=Value(InvitationState.EXPIRED)),
        default=Value(InvitationState.OPEN),
        output_field=CharField(),
    )
    return Invitation.objects.select_related("invited_by", "used_by").annotate(state=state)


@recorded()
def invitation_create(
    *, by: User, note: str, role: str, email: str = "", days: int = 7, groups: Iterable[Group] = ()
) -> tuple[Invitation, str]:
    """Invite somebody; returns the invitation and the secret of its link, which is shown once and stored nowhere.

    Raises
    ------
    Malformed
        A role or an address that is none, no note, another number of days than from 1 to `MAX_DAYS`.
    Conflict
        Passwords are for named accounts alone.
    """
    if are_passwords_limited():
        raise Conflict("Only named accounts sign in with a password here: people come by the provider.")
    secret = f"{_PREFIX}{secrets.token_urlsafe(32)}"
    note_secret(secret)
    invitation = Invitation(digest=token_digest(secret), note=note.strip(), role=role, email=email, invited_by=by)
    invitation.expires_at = timezone.now() + timedelta(days=min(max(days, 1), MAX_DAYS))
    faults: list[Fault] = []
    if not 1 <= days <= MAX_DAYS:
        faults.append(Fault("days", f"{days} is not a number of days from 1 to {MAX_DAYS}"))
    try:
        invitation.clean_fields(exclude={"used_by"})
    except ValidationError as error:
        faults += field_faults(error)
    if email and User.objects.filter(email__iexact=email).exists():
        faults.append(Fault("email", f"somebody has the address {email} already"))
    if faults:
        raise Malformed("Nobody is invited.", faults)
    invitation.save()
    invitation.groups.set(groups)
    return invitation, secret


@recorded()
def invitation_revoke(*, invitation: Invitation) -> Invitation:
    """Let the link of an invitation work no more.

    Raises
    ------
    Conflict
        It was used already.
    """
    rows = Invitation.objects.filter(pk=invitation.pk, used_at__isnull=True, revoked_at__isnull=True)
    if not rows.update(revoked_at=timezone.now()):
        invitation.refresh_from_db()
        if invitation.used_at is not None:
            raise Conflict("This invitation was used. Switch the account off instead.")
    invitation.refresh_from_db()
    return invitation


def invitation_of(secret: str) -> Invitation:
    """The invitation of a link.

    Raises
    ------
    Missing
        It was used or taken back, has expired, or is none.
    """
    found = invitations_listed().filter(digest=token_digest(secret), state=InvitationState.OPEN).first()
    if found is None:
        raise Missing("This invitation was used or taken back, or has expired. Ask for another one.")
    return found


@recorded()
def invitation_accept(*, secret: str, username: str, password: str) -> User:
    """Make the account that an invitation is for. Of two who use one link at once, one gets it.

    Raises
    ------
    Missing
        The link does not work any more.
    Malformed, Conflict
        The name or the password is not taken; the invitation stays open.
    """
    invitation = invitation_of(secret)
    user = user_create(username=username, password=password, role=invitation.role, email=invitation.email)
    mine = Invitation.objects.filter(pk=invitation.pk, used_at__isnull=True, revoked_at__isnull=True)
    for group in invitation.groups.all():
        Group.ledger_touch(group.pk)
        group.members.add(user)
    if not mine.update(used_at=timezone.now(), used_by=user):
        raise Missing("This invitation was used or taken back, or has expired. Ask for another one.")
    return user


def invitation_mail(invitation: Invitation, secret: str) -> None:
    """Mail the link. Raises as `send_mail`."""
    send_mail(lambda connection: _mail(invitation, secret, connection))


def _mail(invitation: Invitation, secret: str, connection: Any) -> EmailMultiAlternatives:
    link = settings.PUBLIC_URL + reverse("signin:invitation", args=[secret])
    return EmailMultiAlternatives(
        subject="Your account for Sluice",
        body=render_to_string("signin/invitation_mail.txt", {"invitation": invitation, "link": link}),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[invitation.email],
        connection=connection,
    )
