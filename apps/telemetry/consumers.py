"""The WebSocket of the agents: it only says which version their configuration has; the agent fetches it."""

from __future__ import annotations

import time
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from apps.accounts.services import token_digest
from apps.core.consumers import UNKNOWN, ListeningConsumer
from apps.telemetry.authentication import SECRET_PREFIX
from apps.telemetry.models import Agent
from apps.telemetry.pushing import group_of

__all__ = ["AgentConsumer"]

DISABLED = 4403
REPLACED = 4409


class AgentConsumer(ListeningConsumer):
    """`/ws/agents/`: sends `{"config_version": n}` to an agent when it connects, and whenever the version changed.

    The agent says who it is with `Authorization: Bearer sla_…`. It is closed with 4401 when no agent has this secret
    (any more), with 4403 while it is disabled, with 4409 when it has connected anew, and without Redis with 1013.
    """

    group: str | None = None
    version: int | None = None  # that was sent last

    async def connect(self) -> None:
        headers = dict(self.scope["headers"])
        if not _host_allowed(headers.get(b"host", b"").decode("latin-1")):
            await self.close()
            return
        await self.accept()
        self.digest = _digest(headers.get(b"authorization", b"").decode("latin-1"))
        found = await self._agent()
        if found is None:
            await self.close(code=UNKNOWN)
            return
        self.group, self.since = group_of(found.pk), time.time()
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.channel_layer.group_send(self.group, {"type": "connected", "since": self.since})
        await self.look({})

    async def disconnect(self, code: int) -> None:
        if self.group is not None:
            await self.channel_layer.group_discard(self.group, self.channel_name)

    async def look(self, event: dict[str, Any]) -> None:
        """Something about the agent changed: may it still be here, and which version is its configuration?"""
        found = await self._agent()
        if found is None or not found.enabled:
            await self.close(code=UNKNOWN if found is None else DISABLED)
        elif found.config_version != self.version:
            self.version = found.config_version
            await self.send_json({"config_version": self.version})

    async def connected(self, event: dict[str, Any]) -> None:
        """An agent has one connection: the newest."""
        if event["since"] > self.since:
            await self.close(code=REPLACED)

    @database_sync_to_async
    def _agent(self) -> Agent | None:
        """Asked anew each time: another process may have changed it a moment ago."""
        if not self.digest:
            return None
        return Agent.objects.filter(secret_hash=self.digest).only("enabled", "config_version").first()


def _host_allowed(host: str) -> bool:
    """As Django judges requests. Behind a proxy the host is the proxy's to pass on, as for them."""
    return validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)


def _digest(authorization: str) -> str:
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    return token_digest(secret) if scheme.lower() == "bearer" and secret.startswith(SECRET_PREFIX) else ""
