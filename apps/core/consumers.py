"""WebSockets that only say what changed: who listens fetches it anew. The one of the pages."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from importlib import import_module
from typing import Any

from channels.auth import get_user
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.core.events import GROUP, person_group

__all__ = ["SESSION_CHECK_S", "TRY_AGAIN_LATER", "UNKNOWN", "ChangesConsumer", "ReadOnlyConsumer"]

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


SESSION_CHECK_S = 60.0


class ChangesConsumer(ReadOnlyConsumer):
    """`/ws/`: sends `{"changed": topic}` to signed-in users. Others are closed with 4401, without Redis with 1013.

    It lasts no longer than the session it was opened with: that is asked for when the person signs out, is switched
    off or gets another password (`announce_session_end`), and each minute, for what nobody announced.
    """

    checking: asyncio.Task[None] | None = None
    group: str | None = None

    async def connect(self) -> None:
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(code=UNKNOWN)
            return
        self.group = person_group(user.pk)
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.session_check({})  # it may have ended while the handshake was under way
        if self.group is None:
            return
        self.checking = asyncio.create_task(self._check_again_and_again())
        await self.send_json({"ready": True})

    async def disconnect(self, code: int) -> None:
        if self.checking is not None:
            self.checking.cancel()
        await self._leave()

    async def changed(self, event: dict[str, str]) -> None:
        await self.send_json({"changed": event["topic"]})

    async def session_check(self, event: dict[str, Any]) -> None:
        """Close the connection if its session has ended, and say nothing more on it from this moment on."""
        if self.group is None:
            return
        store = import_module(settings.SESSION_ENGINE).SessionStore  # read anew: another process may have ended it
        user = await get_user({"session": store(self.scope["session"].session_key)})
        if not user.is_authenticated or person_group(user.pk) != self.group:
            await self._leave()
            await self.close(code=UNKNOWN)

    async def _leave(self) -> None:
        group, self.group = self.group, None
        if group is not None:
            await self.channel_layer.group_discard(GROUP, self.channel_name)
            await self.channel_layer.group_discard(group, self.channel_name)

    async def _check_again_and_again(self) -> None:
        while self.group is not None:
            await asyncio.sleep(SESSION_CHECK_S)
            with suppress(DatabaseError):  # away for a moment: asked again a minute later
                await self.session_check({})
