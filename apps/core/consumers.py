"""WebSockets that only say what changed: who listens fetches it anew. The one of the pages."""

from __future__ import annotations

import logging
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from redis.exceptions import RedisError

from apps.core.events import GROUP

__all__ = ["TRY_AGAIN_LATER", "UNKNOWN", "ChangesConsumer", "ReadOnlyConsumer"]

_log = logging.getLogger(__name__)
UNKNOWN = 4401
TRY_AGAIN_LATER = 1013


class ReadOnlyConsumer(AsyncJsonWebsocketConsumer):
    """One that has nothing to hear from the other end, and is closed with 1013 while Redis does not answer."""

    accepted = False

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Channels subscribes before `connect`: without Redis that fails, and the other end is told to try later."""
        try:
            await super().__call__(scope, receive, send)
        except (RedisError, OSError) as error:
            _log.warning("no live changes, Redis does not answer: %s", error)
            if not self.accepted:
                await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})

    async def accept(self, *args: Any, **options: Any) -> None:
        """First of all: a close code reaches the other end only on an accepted connection."""
        await super().accept(*args, **options)
        self.accepted = True

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: Any) -> None:
        """Field that is ignored in requests."""


class ChangesConsumer(ReadOnlyConsumer):
    """`/ws/`: sends `{"changed": topic}` to signed-in users. Others are closed with 4401, without Redis with 1013."""

    async def connect(self) -> None:
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(code=UNKNOWN)
            return
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.send_json({"ready": True})

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def changed(self, event: dict[str, str]) -> None:
        await self.send_json({"changed": event["topic"]})
