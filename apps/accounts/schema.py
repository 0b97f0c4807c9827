"""How the OpenAPI description shows bearer tokens."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiAuthenticationExtension

from apps.accounts.authentication import TokenAuthentication

__all__ = ["TokenScheme"]


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "slu_…"}
