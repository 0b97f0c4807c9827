"""Bearer tokens for the REST API, and their entry in the OpenAPI description."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from apps.accounts.choices import SCOPE_TEXTS
from apps.accounts.models import Token, User
from apps.accounts.permissions import needed_scope
from apps.accounts.services import token_digest, token_used
from apps.core.addresses import is_within
from apps.core.errors import Forbidden, NotAuthenticated

__all__ = ["PathTokenAuthentication", "TokenAuthentication", "TokenScheme"]


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer slu_…`.

    The token is found by its digest, so that comparing takes the same time for every guess.
    """

    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != "bearer" or not secret.strip():
            raise NotAuthenticated("Authorization: only `Bearer slu_…` is understood.")
        return self.owner_of(request, secret)

    def owner_of(self, request: Request, secret: str) -> tuple[User, Token]:
        """The token of a secret and whose it is; refused where it is not known or may not be used here."""
        token = Token.objects.select_related("user").filter(digest=token_digest(secret.strip())).first()
        if token is None or not token.user.is_active:
            raise NotAuthenticated("The token is not known.")
        self._check(request, token)
        token_used(token=token)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="sluice"'

    def _check(self, request: Request, token: Token) -> None:
        if token.revoked_at is not None:
            raise NotAuthenticated(f"The token {token} was revoked.", code="token_revoked")
        if token.expires_at is not None and token.expires_at <= timezone.now():
            message = f"The token {token} expired at {token.expires_at:%Y-%m-%d %H:%M} UTC."
            raise NotAuthenticated(message, code="token_expired")
        address = request.META.get("REMOTE_ADDR", "")
        if token.networks and not is_within(address, token.networks):
            message = f"The token {token} cannot be used from {address or 'an unknown address'}."
            raise Forbidden(message, code="token_network")


class PathTokenAuthentication(TokenAuthentication):
    """A token as a part of the address, for callers such as Kubernetes that send no header; the header goes first."""

    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        secret = (request.parser_context or {}).get("kwargs", {}).get("token", "")
        return super().authenticate(request) or (self.owner_of(request, secret) if secret else None)


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        scopes = "; ".join(f"`{scope}`: {text}" for scope, text in SCOPE_TEXTS.items())
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "slu_…",
            "description": f"A token of Settings, Tokens. Each operation names the scope it needs. {scopes}.",
        }

    def get_security_requirement(self, auto_schema: Any) -> dict[str, list[str]]:
        """The scope stands as the role that the operation requires (OpenAPI 3.1)."""
        return {"token": [str(needed_scope(auto_schema.method, auto_schema.view))]}
