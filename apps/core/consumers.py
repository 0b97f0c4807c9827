"""The WebSocket of the pages: it only says what changed; the page fetches the part anew."""

from __future__ import annotations

import logging
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from redis.exceptions import RedisError

from apps.core.events import GROUP

__all__ = ["ChangesConsumer"]

_log = logging.getLogger(__name__)
SIGNED_OUT = 4401
TRY_AGAIN_LATER = 1013


class ChangesConsumer(AsyncJsonWebsocketConsumer):
    """`/ws/`: sends `{"changed": topic}` to signed-in users. Others are closed with 4401, without Redis with 1013."""

    accepted = False

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Channels subscribes before `connect`: without Redis that fails, and the page is told to try later."""
        try:
            await super().__call__(scope, receive, send)
        except (RedisError, OSError) as error:
            _log.warning("no live changes, Redis does not answer: %s", error)
            if not self.accepted:
                await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})

    async def connect(self) -> None:
        # Accepted first: a close code reaches the page only on an accepted connection.
        await self.accept()
        self.accepted = True
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(code=SIGNED_OUT)
            return
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.send_json({"ready": True})

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        """Pages have nothing to say here; what they send is ignored."""

    async def changed(self, event: dict[str, str]) -> None:
        await self.send_json({"changed": event["topic"]})
