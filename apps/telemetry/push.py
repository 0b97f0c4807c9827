"""Push to agents: the WebSocket they listen on, and the message that their configuration has changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import transaction
from django.http.request import split_domain_port, validate_host

from apps.accounts.services import token_digest
from apps.core.clock import shared_now
from apps.core.consumers import UNKNOWN, ReadOnlyConsumer, in_socket_thread
from apps.telemetry.agents.directory import SECRET_PREFIX
from apps.telemetry.models import Agent

__all__ = ["AgentConsumer", "group_of", "push"]


_TIMEOUT_S = 1.0
_EACH_S = 0.001
_PAUSE_S = 5.0

_log = logging.getLogger(__name__)
_not_before = 0.0  # on the monotonic clock, after Redis did not answer


def group_of(agent: Any) -> str:
    """The group of an agent's connection."""
    return f"agent.{agent}"


def push(agents: Iterable[Any]) -> None:
    """Notify the connections of these agents once the present transaction is committed.

    Agents of several calls in one transaction are told together, each once. It never fails: while Redis does not
    answer, nobody is told.
    """
    ids = set(agents)
    if not ids:
        return
    pending = transaction.get_connection().run_on_commit
    waiting = next((entry[1] for entry in reversed(pending) if isinstance(entry[1], _Push)), None)
    if waiting is not None:
        waiting.agents |= ids
    else:
        transaction.on_commit(_Push(ids), robust=True)


class _Push:
    def __init__(self, agents: set[Any]) -> None:
        self.agents = agents

    def __call__(self) -> None:
        global _not_before
        if time.monotonic() < _not_before:
            return
        try:
            async_to_sync(_send)(self.agents)
        except Exception as error:
            _log.warning("agents get no push for %g s: %s", _PAUSE_S, error or type(error).__name__)
            _not_before = time.monotonic() + _PAUSE_S


async def _send(agents: set[Any]) -> None:
    layer = get_channel_layer()
    async with asyncio.timeout(_TIMEOUT_S + _EACH_S * len(agents)):
        for agent in agents:
            await layer.group_send(group_of(agent), {"type": "look"})


DISABLED = 4403
REPLACED = 4409


class AgentConsumer(ReadOnlyConsumer):
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
        self.digest = _token_digest(headers.get(b"authorization", b"").decode("latin-1"))
        agent = await self._agent()
        if agent is None:
            await self.close(code=UNKNOWN)
            return
        self.group, self.since = group_of(agent.pk), (await in_socket_thread(shared_now)()).timestamp()
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.channel_layer.group_send(self.group, {"type": "connected", "since": self.since})
        await self.look({})

    async def disconnect(self, code: int) -> None:
        if self.group is not None:
            await self.channel_layer.group_discard(self.group, self.channel_name)

    async def look(self, event: dict[str, Any]) -> None:
        """Check after a change that the agent may stay connected, and send the version of its configuration."""
        agent = await self._agent()
        if agent is None or not agent.enabled:
            await self.close(code=UNKNOWN if agent is None else DISABLED)
        elif agent.config_version != self.version:
            self.version = agent.config_version
            await self.send_json({"config_version": self.version})

    async def connected(self, event: dict[str, Any]) -> None:
        """Close this connection: the agent has a newer one."""
        if event["since"] > self.since:
            await self.close(code=REPLACED)

    @in_socket_thread
    def _agent(self) -> Agent | None:
        """The agent, read anew: another process may just have changed it."""
        if not self.digest:
            return None
        return Agent.objects.filter(secret_hash=self.digest).only("enabled", "config_version").first()


def _host_allowed(host: str) -> bool:
    """As Django judges requests. Behind a proxy the host is the proxy's to pass on, as for them."""
    return validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)


def _token_digest(authorization: str) -> str:
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    return token_digest(secret) if scheme.lower() == "bearer" and secret.startswith(SECRET_PREFIX) else ""
