"""Reads of people and tokens."""

from __future__ import annotations

from django.db.models import Case, CharField, QuerySet, Value, When
from django.utils import timezone

from apps.accounts.choices import TokenState
from apps.accounts.models import Token, User

__all__ = ["tokens_of"]


def tokens_of(user: User) -> QuerySet[Token]:
    """A person's tokens, newest first, each with its `state`: active, expired or revoked."""
    state = Case(
        When(revoked_at__isnull=False, then=Value(TokenState.REVOKED)),
        When(expires_at__lte=timezone.now(), then=Value(TokenState.EXPIRED)),
        default=Value(TokenState.ACTIVE),
        output_field=CharField(),
    )
    return Token.objects.filter(user=user).annotate(state=state).order_by("-created_at", "-pk")
