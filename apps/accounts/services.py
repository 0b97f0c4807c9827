"""People and tokens: what changes them, and the tokens of a person."""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import OperationalError, transaction
from django.db.models import Case, CharField, QuerySet, Value, When
from django.utils import timezone

from apps.accounts.choices import Role, Scope, TokenState
from apps.accounts.grants import admin_kept, grant_give
from apps.accounts.models import Team, Token, User
from apps.accounts.reach import implied_scopes
from apps.core.errors import Conflict, Fault, Forbidden, Malformed, field_faults
from apps.core.events import announce_session_end
from apps.core.reach import Part, Reach
from apps.ledger.recorder import recorded
from engine.redaction import note_secret

__all__ = [
    "ENDS_SOON",
    "password_change",
    "password_set",
    "token_create",
    "token_digest",
    "token_revoke",
    "token_used",
    "tokens_ending",
    "tokens_of",
    "user_create",
    "user_update",
]

_log = logging.getLogger(__name__)
_USED_EVERY = timedelta(minutes=1)
ENDS_SOON = timedelta(days=14)  #: before a token ends somebody is told


def token_digest(secret: str) -> str:
    """The stored form of a token. A plain hash is enough: the secret has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


@recorded()
def user_create(*, username: str, password: str, role: str = Role.VIEWER, email: str = "") -> User:
    """Create a person who can sign in."""
    note_secret(password)
    faults = []
    if role not in Role.values:
        faults.append(Fault("role", f"{role!r} is not one of {', '.join(Role.values)}"))
    user = User(username=username, email=email)
    user.set_password(password)
    try:
        user.clean_fields()
    except ValidationError as error:
        faults += field_faults(error)
    try:
        validate_password(password, user)
    except ValidationError as error:
        faults += field_faults({"password": error.messages})
    if faults:
        raise Malformed("The user cannot be created.", faults)
    if User.objects.filter(username=username).exists():
        raise Conflict(f"There is a user {username!r} already.", [("username", "is taken")])
    user.save()
    grant_give(user=user, role=role)
    return user


@recorded()
def user_update(*, user: User, by: User, role: str | None = None, is_active: bool | None = None) -> User:
    """Change somebody else's role on everything, or whether she may sign in. Nobody can lock herself out this way.

    Raises
    ------
    Forbidden
        `user` is the one who asks.
    Conflict
        `last_admin`: nobody would be left who may administer everything.
    """
    if user.pk == by.pk:
        raise Forbidden("Nobody changes their own role or access: ask another administrator.")
    if role is not None:
        if role not in Role.values:
            fault = Fault("role", f"{role!r} is not one of {', '.join(Role.values)}")
            raise Malformed("The person cannot be changed.", [fault])
        grant_give(user=user, role=role)
    if is_active is not None:
        with admin_kept():
            user.is_active = is_active
            user.save(update_fields=["is_active"])
    if not user.is_active:
        announce_session_end(user.pk)
    return user


def password_change(*, user: User, current: str, password: str) -> User:
    """Change one's own password. It ends every session of the person, and the open pages with them.

    Raises
    ------
    Malformed
        The present password is another one, or the new one is not taken.
    """
    note_secret(current)
    faults = [] if user.check_password(current) else [Fault("current", "this is not your present password")]
    return _store_password(user, password, faults)


def password_set(*, user: User, password: str, by: User | None) -> User:
    """Give somebody another password, as an administrator or (without `by`) on the command line. It ends all sessions.

    Raises
    ------
    Forbidden
        `user` is the one who asks: the own password is changed with the present one.
    Malformed
        The password is not taken.
    """
    if by is not None and user.pk == by.pk:
        raise Forbidden("Your own password you change in Settings, with the present one.")
    return _store_password(user, password)


@recorded()
def _store_password(user: User, password: str, faults: Sequence[Fault] = ()) -> User:
    """Sessions hold a digest of the password they began with, so they end with it."""
    note_secret(password)
    found = list(faults)
    try:
        validate_password(password, user)
    except ValidationError as error:
        found += field_faults({"password": error.messages})
    if found:
        raise Malformed("The password is not changed.", found)
    user.set_password(password)
    user.save(update_fields=["password"])
    announce_session_end(user.pk)
    return user


@recorded()
def token_create(
    *,
    user: User,
    name: str,
    scopes: Sequence[str],
    expires_at: datetime | None = None,
    networks: Sequence[str] = (),
    clusters: Sequence[Any] = (),
    teams: Sequence[Team] = (),
) -> tuple[Token, str]:
    """Create a token of `user`; returns it and its secret (`slu_…`), which is shown once and stored nowhere.

    With `clusters` or `teams` it works on these alone, also once one of them is gone.

    Raises
    ------
    Malformed
        An unknown or missing scope, an expiry in the past, an address that is no network, no name.
    Forbidden
        A scope that the user does not have, or none of them on one of the clusters or teams.
    """
    faults = [*_scope_faults(scopes), *_network_faults(networks)]
    if not name.strip() or len(name) > 80:
        faults.append(Fault("name", "give it a name of 1 to 80 characters"))
    if expires_at is not None and expires_at <= timezone.now():
        faults.append(Fault("expires_at", f"{expires_at.isoformat()} has passed already"))
    if faults:
        raise Malformed("The token cannot be created.", faults)
    beyond = sorted(set(scopes) - user.scopes)
    if beyond:
        message = f"your role ({user.get_role_display()}) does not have {', '.join(beyond)}"
        raise Forbidden(f"A token cannot do more than its owner: {message}.", [("scopes", message)])
    places = {"clusters": [row.pk for row in clusters], "teams": [row.pk for row in teams]}
    _check_places(user.reach.within(implied_scopes(scopes)).bound(**places), clusters, teams)
    secret = f"slu_{secrets.token_urlsafe(32)}"
    token = Token.objects.create(
        user=user,
        name=name.strip(),
        prefix=secret[:10],
        digest=token_digest(secret),
        scopes=[scope for scope in Scope.values if scope in scopes],
        networks=[str(ipaddress.ip_network(network, strict=False)) for network in networks],
        expires_at=expires_at,
        places=places if any(places.values()) else None,
    )
    return token, secret


def _check_places(reach: Reach, clusters: Sequence[Any], teams: Sequence[Team]) -> None:
    """Refuse a place where the owner has none of the token's scopes."""
    part = Part(labels=list(reach.labels))
    held = [("clusters", row, reach.clusters[row.pk] | reach.on_part(row.pk, part)) for row in clusters]
    held += [("teams", row, reach.teams[row.pk]) for row in teams]
    faults = [(field, f"you have none of the scopes on {str(row)!r}") for field, row, scopes in held if not scopes]
    if faults:
        raise Forbidden(f"A token cannot do more than its owner: {faults[0][1]}.", faults)


@recorded()
def token_revoke(*, token: Token) -> Token:
    """End a token now. Revoking twice changes nothing."""
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
    return token


def token_used(*, token: Token) -> None:
    """Store the last use of a token, at most once a minute, so that not every read costs a write.

    A read is answered also where the database takes no writes just now.
    """
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at >= _USED_EVERY:
        try:
            with transaction.atomic():
                Token.objects.filter(pk=token.pk).update(last_used_at=now)
        except OperationalError as error:
            _log.warning("the last use of token %s is not stored: %s", token.prefix, error)


def tokens_of(user: User) -> QuerySet[Token]:
    """A person's tokens, newest first, each with its `state`: active, expired or revoked."""
    state = Case(
        When(revoked_at__isnull=False, then=Value(TokenState.REVOKED)),
        When(expires_at__lte=timezone.now(), then=Value(TokenState.EXPIRED)),
        default=Value(TokenState.ACTIVE),
        output_field=CharField(),
    )
    return Token.objects.filter(user=user).annotate(state=state).order_by("-created_at", "-pk")


def tokens_ending() -> QuerySet[Token]:
    """Tokens that work and expire within `ENDS_SOON`, the first one first."""
    now = timezone.now()
    rows = Token.objects.filter(revoked_at=None, expires_at__gt=now, expires_at__lt=now + ENDS_SOON)
    return rows.order_by("expires_at", "pk")


def _scope_faults(scopes: Sequence[str]) -> list[Fault]:
    if not scopes:
        return [Fault("scopes", f"choose at least one of {', '.join(Scope.values)}")]
    return [
        Fault(f"scopes[{index}]", f"{scope!r} is not one of {', '.join(Scope.values)}")
        for index, scope in enumerate(scopes)
        if scope not in Scope.values
    ]


def _network_faults(networks: Sequence[str]) -> list[Fault]:
    faults = []
    for index, network in enumerate(networks):
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            faults.append(Fault(f"networks[{index}]", f"{network!r} is not a network such as 10.0.0.0/8 or fd00::/8"))
    return faults
