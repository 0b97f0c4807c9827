"""Agents say who they are by a secret of their own, which no person's token replaces."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.permissions import ScopePermission
from apps.accounts.services import token_digest
from apps.core.errors import Forbidden, NotAuthenticated
from apps.telemetry.directory import AgentFacts, agent_by_digest

__all__ = ["SECRET_PREFIX", "AgentAuthentication", "AgentOrScope", "AgentPermission"]

SECRET_PREFIX = "sla_"


class AgentAuthentication(BaseAuthentication):
    """`Authorization: Bearer sla_…`, the secret that an agent got when it was enrolled."""

    def authenticate(self, request: Request) -> tuple[AgentFacts, AgentFacts] | None:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret.startswith(SECRET_PREFIX):
            return None
        agent = agent_by_digest(token_digest(secret))
        if agent is None:
            raise NotAuthenticated("No agent has this secret. Enrol it again with a token.", code="agent_unknown")
        return agent, agent

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="sluice"'


class AgentPermission(BasePermission):
    """For agents alone, each for itself."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, AgentFacts) and _is_itself(request.auth, view)


class AgentOrScope(BasePermission):
    """An agent for itself, or a person or token with the view's scope."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if isinstance(request.auth, AgentFacts):
            return _is_itself(request.auth, view)
        return ScopePermission().has_permission(request, view)


def _is_itself(agent: AgentFacts, view: Any) -> bool:
    asked = view.kwargs.get("pk")
    if asked is not None and asked != agent.id:
        message = f"This secret belongs to the agent {agent.name!r} ({agent.id}), not to {asked}."
        raise Forbidden(message, code="another_agent")
    return True


class AgentScheme(OpenApiAuthenticationExtension):
    target_class = AgentAuthentication
    name = "agent"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "sla_…"}
