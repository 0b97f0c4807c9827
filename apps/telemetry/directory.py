"""Directory of agents: who may send what, cached for a few seconds, and authentication by an agent's secret."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.models import Q
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.permissions import ScopePermission
from apps.accounts.services import token_digest
from apps.core.errors import Forbidden, NotAuthenticated
from apps.telemetry.models import Agent, AgentKind, KnownPlan

__all__ = [
    "SECRET_PREFIX",
    "AgentAuthentication",
    "AgentFacts",
    "AgentOrScope",
    "AgentPermission",
    "cluster_of",
    "forget_facts",
    "forget_facts_on_commit",
    "plans_of",
]

CACHED_S = 5.0
_MAX_ENTRIES = 20_000
_RETRY_S = 1.0  # after what was not found, the database is asked again no sooner

Value = TypeVar("Value")


@dataclass(frozen=True)
class AgentFacts:
    """Facts of an agent for ingest. Also the caller of a request."""

    id: str
    name: str
    cluster: str
    cluster_id: int
    kind: str
    enabled: bool
    committed: Mapping[str, int] = field(hash=False, compare=False, default_factory=dict)

    is_authenticated = True

    @property
    def pk(self) -> str:
        """Key for throttling and idempotency by caller."""
        return f"agent:{self.id}"

    def __str__(self) -> str:
        return self.name


class _Cache(Generic[Value]):
    """Cache of values that expire after a few seconds."""

    def __init__(self, look_up: Callable[[Any], Value]) -> None:
        self._look_up = look_up
        self._found: dict[Hashable, tuple[float, Value]] = {}

    def get(self, key: Hashable, within_s: float = CACHED_S) -> Value:
        at, now = self._found.get(key), time.monotonic()
        if at is not None and now - at[0] < within_s:
            return at[1]
        value = self._look_up(key)
        if len(self._found) >= _MAX_ENTRIES:
            self._found.clear()
        if value is not None:
            self._found[key] = (now, value)
        return value

    def clear(self) -> None:
        self._found.clear()


def _agent(digest: str) -> AgentFacts | None:
    agent = Agent.objects.filter(secret_hash=digest).select_related("cluster").first() if digest else None
    if agent is None:
        return None
    return AgentFacts(
        id=str(agent.pk),
        name=agent.name,
        cluster=agent.cluster.slug,
        cluster_id=agent.cluster_id,
        kind=agent.kind,
        enabled=agent.enabled,
        committed=dict(agent.committed),
    )


def _plans(agent_id: str) -> dict[str, frozenset[str]]:
    """Plans by query of an agent's assignments, present and past; a relay sends for all agents ever below it.

    These may be gone, or of a time when the cluster had another name.
    """
    relay = Agent.objects.filter(pk=agent_id, kind=AgentKind.RELAY).select_related("cluster").first()
    mine = Q(agents=agent_id)
    if relay is not None:
        mine = Q(query__startswith=f"{relay.cluster.slug}/") | Q(agents__cluster=relay.cluster_id)
    plans: dict[str, set[str]] = {}
    for query, digest in KnownPlan.objects.filter(mine).values_list("query", "digest").distinct():
        plans.setdefault(query, set()).add(digest)
    return {query: frozenset(digests) for query, digests in plans.items()}


def _cluster(agent_id: str) -> int:
    return Agent.objects.filter(pk=agent_id).values_list("cluster_id", flat=True).first() or 0


_agents = _Cache(_agent)
_plans_by_agent = _Cache(_plans)
_clusters = _Cache(_cluster)


def agent_by_digest(digest: str) -> AgentFacts | None:
    """The agent of a secret, by the secret's SHA-256."""
    return _agents.get(digest)


def plans_of(agent_id: str, *, again: bool = False) -> Mapping[str, frozenset[str]]:
    """Digests of the plans an agent may send for, by query; `again` reads them anew after a miss."""
    return _plans_by_agent.get(agent_id, _RETRY_S if again else CACHED_S)


def cluster_of(agent_id: str) -> int:
    """Key of an agent's cluster; 0 if there is no such agent."""
    return _clusters.get(agent_id)


def forget_facts() -> None:
    """Drop everything from the cache."""
    _agents.clear()
    _clusters.clear()
    _plans_by_agent.clear()


def forget_facts_on_commit() -> None:
    """Drop the cache on commit: agents or assignments change."""
    transaction.on_commit(forget_facts)


SECRET_PREFIX = "sla_"


class AgentAuthentication(BaseAuthentication):
    """`Authorization: Bearer sla_…`, the secret of an enrolled agent."""

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
    """Permission for agents only that are enabled, each for itself."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, AgentFacts) and _may_speak(request.auth, view)


class AgentOrScope(BasePermission):
    """Permission for an agent for itself, or a person or token with the view's scope."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if isinstance(request.auth, AgentFacts):
            return _may_speak(request.auth, view)
        return ScopePermission().has_permission(request, view)


def _may_speak(agent: AgentFacts, view: Any) -> bool:
    if not agent.enabled:
        raise Forbidden(f"The agent {agent.name!r} is disabled.", code="agent_disabled")
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
