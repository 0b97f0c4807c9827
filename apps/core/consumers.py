"""WebSockets that only say what changed: who listens fetches it anew. The one of the pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any

from channels.auth import AuthMiddleware, CookieMiddleware, SessionMiddleware, get_user
from channels.consumer import get_handler_name
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.core.events import GROUP, person_group
from apps.core.reach import is_topic_visible, places_seen

__all__ = [
    "COALESCED_S",
    "SESSION_CHECK_S",
    "TRY_AGAIN_LATER",
    "UNKNOWN",
    "ChangesConsumer",
    "ReadOnlyConsumer",
    "SocketUserMiddleware",
    "in_socket_thread",
]

_log = logging.getLogger(__name__)
UNKNOWN = 4401
TRY_AGAIN_LATER = 1013

# Of the sockets alone: channels gives all of them one thread for the database, and a socket that waits behind hundreds
# of others, or behind what else runs in that thread, does not open in time.
_THREADS = ThreadPoolExecutor(8, thread_name_prefix="socket")


def in_socket_thread(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A function that asks the database, to be awaited by sockets; it runs in a thread of theirs."""
    return database_sync_to_async(function, thread_sensitive=False, executor=_THREADS)


#: The person of a scope with a session, as `channels.auth` reads it.
user_of_scope = in_socket_thread(get_user.func)


@in_socket_thread
def places_of(user: Any) -> frozenset[str] | None:
    """Places of which a person is told (`places_seen`)."""
    return places_seen(user.reach)


class _UserMiddleware(AuthMiddleware):
    async def resolve_scope(self, scope: dict[str, Any]) -> None:
        scope["user"]._wrapped = await user_of_scope(scope)


def SocketUserMiddleware(app: Any) -> Any:  # noqa: N802 - as channels names its own
    """Sets `scope["user"]` by the session's cookie."""
    return CookieMiddleware(SessionMiddleware(_UserMiddleware(app)))


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

    async def dispatch(self, message: dict[str, object]) -> None:
        """Handle a message. The base class first has the one thread that all share close its connections."""
        handler = getattr(self, get_handler_name(message), None)
        if handler is None:
            raise ValueError(f"no handler for messages of type {message['type']}")
        await handler(message)

    async def websocket_disconnect(self, message: dict[str, object]) -> None:
        """The other end has gone; as in the base class, but for that thread."""
        await self.disconnect(message["code"])
        raise StopConsumer

    async def accept(self, *args: Any, **options: Any) -> None:
        """First of all: a close code reaches the other end only on an accepted connection."""
        await super().accept(*args, **options)
        self.accepted = True

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: Any) -> None:
        """Field that is ignored in requests."""


SESSION_CHECK_S = 60.0
COALESCED_S = 1.0  #: a page is told of one topic no more often


class ChangesConsumer(ReadOnlyConsumer):
    """`/ws/`: sends `{"changed": topic}` to signed-in users. Others are closed with 4401, without Redis with 1013.

    It lasts no longer than the session it was opened with: that is asked for when the person signs out, is switched
    off, gets another password or other roles (`announce_session_end`), and each minute, for what nobody announced. Of
    topics that name a cluster it is told those of what the person sees there.
    """

    checking: asyncio.Task[None] | None = None
    group: str | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._told: dict[str, bool] = {}  # topics told within `COALESCED_S`, and whether they changed again since
        self._pauses: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly
        self._places: frozenset[str] | None = frozenset()  # that the person sees; None: all

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

    async def changed(self, event: Mapping[str, Sequence[str]]) -> None:
        for topic in event["topics"]:
            if self._places is None or is_topic_visible(topic, self._places):
                await self._tell(topic)

    async def _tell(self, topic: str) -> None:
        """Tell a topic at once, and what changes of it within `COALESCED_S` once, at the end of that time."""
        if topic in self._told:
            self._told[topic] = True
            return
        self._told[topic] = False
        await self.send_json({"changed": topic})
        pause = asyncio.create_task(self._pause(topic))
        self._pauses.add(pause)
        pause.add_done_callback(self._pauses.discard)

    async def _pause(self, topic: str) -> None:
        await asyncio.sleep(COALESCED_S)
        if self._told.pop(topic) and self.group is not None:
            await self._tell(topic)

    async def session_check(self, event: Mapping[str, str]) -> None:
        """Close the connection if its session has ended, and say nothing more on it from this moment on."""
        if self.group is None:
            return
        store = import_module(settings.SESSION_ENGINE).SessionStore  # read anew: another process may have ended it
        user = await user_of_scope({"session": store(self.scope["session"].session_key)})
        if not user.is_authenticated or person_group(user.pk) != self.group:
            await self._leave()
            await self.close(code=UNKNOWN)
            return
        self._places = await places_of(user)

    async def _leave(self) -> None:
        group, self.group = self.group, None
        for pause in self._pauses:
            pause.cancel()
        if group is not None:
            await self.channel_layer.group_discard(GROUP, self.channel_name)
            await self.channel_layer.group_discard(group, self.channel_name)

    async def _check_again_and_again(self) -> None:
        while self.group is not None:
            await asyncio.sleep(SESSION_CHECK_S)
            with suppress(DatabaseError):  # away for a moment: asked again a minute later
                await self.session_check({})
