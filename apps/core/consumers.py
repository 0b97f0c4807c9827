"""The WebSocket of the pages: it only says what changed; the page fetches the part anew."""

from __future__ import annotations

import logging
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from apps.core.events import GROUP

__all__ = ["ChangesConsumer"]

_log = logging.getLogger(__name__)
SIGNED_OUT = 4401
TRY_AGAIN_LATER = 1013


class ChangesConsumer(AsyncJsonWebsocketConsumer):
    """`/ws/`: sends `{"changed": topic}` to signed-in users. Others are closed with 4401, without Redis with 1013."""

    async def connect(self) -> None:
        # Accepted first: a close code reaches the page only on an accepted connection.
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(code=SIGNED_OUT)
            return
        try:
            await self.channel_layer.group_add(GROUP, self.channel_name)
        except Exception as error:
            _log.warning("no live changes, Redis does not answer: %s", error)
            await self.close(code=TRY_AGAIN_LATER)
            return
        await self.send_json({"ready": True})

    async def disconnect(self, code: int) -> None:
        try:
            await self.channel_layer.group_discard(GROUP, self.channel_name)
        except Exception as error:
            _log.debug("leaving without Redis: %s", error)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        """Pages have nothing to say here; what they send is ignored."""

    async def changed(self, event: dict[str, str]) -> None:
        await self.send_json({"changed": event["topic"]})
