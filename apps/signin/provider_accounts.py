"""Accounts at the provider: whose they are, how they are linked to accounts here, and what they bring along."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.grants import admin_kept, grant_give
from apps.accounts.models import Group, User
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Forbidden
from apps.core.events import announce_session_end
from apps.core.limits import MAX_NAME
from apps.core.secrets import SecretLost, seal_secret, unseal_secret
from apps.ledger.recorder import recorded
from apps.signin.models import PROVIDER_PURPOSE, ProviderAccount, ProviderSession
from apps.signin.provider import Provider, ProviderAnswer, ProviderAway, ProviderEnded, ProviderUntrusted

__all__ = [
    "LinkNeeded",
    "id_token_of",
    "person_of_answer",
    "provider_account_link",
    "provider_account_unlink",
    "provider_session_begin",
    "provider_sessions_end",
    "provider_sessions_renew",
]

RENEW_EVERY = timedelta(minutes=10)  #: groups are asked for again
UNRENEWED = timedelta(hours=8)  #: so long a session goes on that the provider has not vouched for again
_RETRY = timedelta(minutes=1)
_LEASE = timedelta(minutes=2)
_BATCH_LIMIT = 50  # renewals of one run
_MAX_USERNAME = 100
_MAX_GROUPS = 1000
_log = logging.getLogger(__name__)


class LinkNeeded(Exception):
    """An account here has the address that the provider vouches for: its owner has to show that it is theirs."""


@recorded()
def person_of_answer(answer: ProviderAnswer) -> User:
    """The person that the provider speaks of, who is made where there is none.

    Raises
    ------
    LinkNeeded
        An account here has the address already. Nobody gets into it by what a provider says alone.
    Forbidden
        The account is switched off.
    """
    issuer = settings.PROVIDER.issuer
    account = ProviderAccount.objects.select_related("user").filter(issuer=issuer, subject=answer.subject).first()
    if account is None:
        email = _email(answer)
        if email and User.objects.filter(email__iexact=email).exists():
            raise LinkNeeded
        try:
            with transaction.atomic():
                user = _create(answer, email)
                account = ProviderAccount.objects.create(user=user, issuer=issuer, subject=answer.subject)
        except IntegrityError:  # of two first sign-ins at once the other one was there before
            account = ProviderAccount.objects.select_related("user").get(issuer=issuer, subject=answer.subject)
    if not account.user.is_active:
        raise Forbidden("This account is switched off. An administrator can switch it on.", code="account_off")
    ProviderAccount.objects.filter(pk=account.pk).update(last_used_at=timezone.now())
    _follow_groups(account, answer)
    return account.user


@recorded()
def provider_account_link(*, user: User, subject: str, email: str = "") -> ProviderAccount:
    """Let an account at the provider sign in as a person, who has shown a password or a session.

    With `email`, the address has to be that of the person.

    Raises
    ------
    Conflict
        The account at the provider, or the person, is linked already, or the address is another one's.
    """
    if email and user.email.lower() != email.lower():
        raise Conflict(f"The account {user.username} has another address than your account at the provider.")
    issuer = settings.PROVIDER.issuer
    same = ProviderAccount.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
    if same is not None and same.user_id == user.pk:
        return same
    if same is not None:
        raise Conflict("This account at the provider signs in as somebody else already.")
    if ProviderAccount.objects.filter(issuer=issuer, user=user).exists():
        raise Conflict(f"{user.username} has another account at the provider. Unlink it first.")
    try:
        with transaction.atomic():
            return ProviderAccount.objects.create(user=user, issuer=issuer, subject=subject)
    except IntegrityError:
        raise Conflict("This account at the provider signs in as somebody else already.") from None


@recorded()
def provider_account_unlink(*, user: User) -> None:
    """Take the account at the provider from a person; sessions that began with it end.

    Raises
    ------
    Conflict
        The person could not sign in any more.
    """
    if not user.has_usable_password():
        raise Conflict("Set a password first: without it and without the provider you could not sign in any more.")
    user.provider_accounts.all().delete()
    announce_session_end(user.pk)


@transaction.atomic
def provider_session_begin(user: User, answer: ProviderAnswer) -> ProviderSession:
    """Keep what ends and renews a session that begins now."""
    now = timezone.now()
    return ProviderSession.objects.create(
        account=ProviderAccount.objects.get(user=user, issuer=settings.PROVIDER.issuer, subject=answer.subject),
        id_token=seal_secret(answer.id_token, PROVIDER_PURPOSE),
        refresh_token=seal_secret(answer.refresh_token, PROVIDER_PURPOSE),
        sid=str(answer.claims.get("sid") or "")[:255],
        renewed_at=now,
        renew_at=now + (RENEW_EVERY if answer.refresh_token else UNRENEWED),
    )


def id_token_of(session: ProviderSession | None) -> str:
    """The token that names a session to the provider; empty where that is lost."""
    try:
        return unseal_secret(session.id_token, PROVIDER_PURPOSE) if session is not None else ""
    except SecretLost:
        return ""


def provider_sessions_end(subject: str, sid: str) -> int:
    """End the sessions of somebody, or the one of a name, that the provider has ended; returns how many."""
    found = ProviderSession.objects.filter(account__issuer=settings.PROVIDER.issuer)
    found = found.filter(account__subject=subject) if subject else found
    return _end(found.filter(sid=sid) if sid else found)


def provider_sessions_renew() -> int:
    """Ask the provider about sessions that are due; it may have taken a group away, or end them. Returns how many.

    A provider that is away ends no session at once: only what it has not vouched for in `UNRENEWED`.
    """
    provider, done = Provider.configured(), 0
    if provider is None:
        return 0
    while done < _BATCH_LIMIT and (session := _take()) is not None:
        done += 1
        try:
            _renew(provider, session)
        except ProviderAway:
            _put_off(session)
            break  # it is away for the others, too
        except ProviderUntrusted:
            _put_off(session)
        except (ProviderEnded, SecretLost):
            _end(ProviderSession.objects.filter(pk=session.pk))
    return done


def _take() -> ProviderSession | None:
    """The next session that is due, taken: of several workers that see it, one update succeeds."""
    now = shared_now()
    due = ProviderSession.objects.filter(renew_at__lte=now, browser_sessions__isnull=False)
    for row in due.order_by("renew_at")[:10]:
        mine = ProviderSession.objects.filter(pk=row.pk, renew_at=row.renew_at)
        if mine.update(renew_at=now + _LEASE):
            return ProviderSession.objects.select_related("account__user").filter(pk=row.pk).first()
    return None


def _renew(provider: Provider, session: ProviderSession) -> None:
    if not session.refresh_token:
        raise ProviderEnded("The provider gave nothing to renew it with.")
    answer = provider.renew(unseal_secret(session.refresh_token, PROVIDER_PURPOSE), session.account.subject)
    now = timezone.now()
    with recorded():
        if answer.claims:  # what was not told is not taken away
            _follow_groups(session.account, answer)
        values = {"refresh_token": seal_secret(answer.refresh_token, PROVIDER_PURPOSE)}
        if answer.id_token:
            values["id_token"] = seal_secret(answer.id_token, PROVIDER_PURPOSE)
        rows = ProviderSession.objects.filter(pk=session.pk)
        rows.update(renewed_at=now, renew_at=now + RENEW_EVERY, **values)


def _put_off(session: ProviderSession) -> None:
    now = shared_now()
    rows = ProviderSession.objects.filter(pk=session.pk)
    if now - session.renewed_at >= UNRENEWED:
        _end(rows)
    else:
        rows.update(renew_at=now + _RETRY)


@transaction.atomic
def _end(sessions: Any) -> int:
    rows = list(sessions.select_related("account"))
    ProviderSession.objects.filter(pk__in=[row.pk for row in rows]).delete()  # those of browsers go with them
    for user in {row.account.user_id for row in rows}:
        announce_session_end(user)
    return len(rows)


def _create(answer: ProviderAnswer, email: str) -> User:
    user = User(username=_free_username(answer.claims, email), email=email)
    user.set_unusable_password()
    user.clean_fields()
    user.save()
    if settings.PROVIDER_ROLE:
        grant_give(user=user, role=settings.PROVIDER_ROLE)
    return user


def _follow_groups(account: ProviderAccount, answer: ProviderAnswer) -> None:
    """Put the person into the groups that the provider names, and take away what it named before and does not now.

    Groups that nobody made here are not made by what a provider says; who was put into one by hand stays in it.
    """
    told, before = _group_names(answer), set(account.groups)
    user, groups = account.user, {group.name: group for group in Group.objects.filter(name__in=told | before)}
    held = set(user.memberships.values_list("name", flat=True))
    kept = set()
    for name in sorted((told - held) & groups.keys()):
        Group.ledger_touch(groups[name].pk)
        groups[name].members.add(user)
    for name in sorted((before - told) & held & groups.keys()):
        try:
            with transaction.atomic(), admin_kept():
                Group.ledger_touch(groups[name].pk)
                groups[name].members.remove(user)
        except Conflict as error:
            kept.add(name)  # the next time it may be taken away
            _log.warning("%s stays in the group %s: %s", user.username, name, error.message)
    if sorted(told | kept) != account.groups:
        account.groups = sorted(told | kept)
        account.save(update_fields=["groups"])
    if before != told:
        user.refresh_from_db()


def _group_names(answer: ProviderAnswer) -> set[str]:
    """Names as they are here; some providers write them as paths. What is no list of names is none."""
    told = answer.claims.get(settings.PROVIDER.groups_claim)
    names = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    texts = (name.strip().lstrip("/") for name in names[:_MAX_GROUPS] if isinstance(name, str))
    return {name for name in texts if 0 < len(name) <= MAX_NAME and name.isprintable()}


def _email(answer: ProviderAnswer) -> str:
    """The checked address, if it is one; nothing is made of one that is not checked."""
    try:
        validate_email(answer.verified_email)
    except ValidationError:
        return ""
    return answer.verified_email


def _free_username(claims: Mapping[str, Any], email: str) -> str:
    """A name that nobody has: a taken one never leads into the account that has it."""
    wanted = claims.get(settings.PROVIDER.username_claim)
    text = wanted if isinstance(wanted, str) and wanted else email.partition("@")[0]
    base = re.sub(r"[^\w.@+-]", "", text)[:_MAX_USERNAME]
    if not base or not re.match(UnicodeUsernameValidator.regex, base):
        base = "person"
    for name in (base, *(f"{base}-{number}" for number in range(2, 20)), f"{base}-{secrets.token_hex(4)}"):
        if not User.objects.filter(username__iexact=name).exists():
            return name
    raise Conflict(f"There is no free name like {base!r}.")
