"""Bodies of requests, at the edge: counted as they come, however they are framed, and read only as far as is allowed.

Django stores the whole body before any view runs. Here it is cut off at the endpoint's size, and already at
`MAX_UNKNOWN_BYTES` where the credentials of the request are not good.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import IO, Any
from urllib.parse import unquote_to_bytes

from asgiref.typing import HTTPScope
from channels.db import database_sync_to_async
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.template.loader import render_to_string

from apps.core.body_sizes import oversize, size_of_path
from apps.core.errors import Malformed, SluiceError, Unavailable
from apps.core.limits import MAX_UNKNOWN_BYTES
from apps.core.problem_details import PROBLEM_JSON, problem_details
from apps.core.rest.problems import DISK_FULL, NO_ROOM

__all__ = ["BodyLimit", "CountedHandler"]

type_app = Callable[[HTTPScope, Callable[..., Awaitable[Any]], Callable[..., Awaitable[None]]], Awaitable[None]]

# A client that is still sending does not read the answer: closing on it shows up there as a broken connection.
_SWALLOW_S = 20.0
# For credentials of long bodies: few at a time, however many come.
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="sender")
# What a quoted cookie writes a zero character as; Django reads it as such.
_ZERO_IN_COOKIE = re.compile(rb"\\000")


class _CountedRequest(ASGIRequest):
    """A request whose CONTENT_LENGTH says what came. Chunked ones bring none, and count as empty without it."""

    def __init__(self, scope: HTTPScope, body_file: IO[bytes]) -> None:
        super().__init__(scope, body_file)
        self.META["CONTENT_LENGTH"] = str(body_file.seek(0, os.SEEK_END))
        body_file.seek(0)


class CountedHandler(ASGIHandler):
    """Django's handler, with bodies that count however they are framed."""

    request_class = _CountedRequest


class BodyLimit:
    """ASGI wrapper that refuses a request before Django keeps its body.

    Refused are bodies over the size of their endpoint (413), larger ones than `MAX_UNKNOWN_BYTES` of senders whose
    credentials are not good (401), and addresses or cookies with what is no text (400). `Content-Length` is believed
    when it says too much; every body is counted as it comes.

    Parameters
    ----------
    refuse_stranger
        Of a scope, why its sender is not let in; None for those who are. It may ask the database.
    """

    def __init__(self, app: type_app, refuse_stranger: Callable[[HTTPScope], SluiceError | None]) -> None:
        self.app = app
        self._refuse_stranger = database_sync_to_async(refuse_stranger, thread_sensitive=False, executor=_THREADS)

    async def __call__(self, scope: HTTPScope, receive: Any, send: Any) -> None:
        body = _Body(scope, receive, self._refuse_stranger)
        refusal = _odd_text(scope) or await body.refusal_of(body.declared)
        if refusal is None:
            try:
                await self.app(scope, body.receive, send)
            except OSError as error:  # Django keeps long bodies in a file
                if error.errno not in NO_ROOM or body.is_answered:
                    raise
                body.refusal = Unavailable(DISK_FULL, retry_after_s=60)
            refusal = body.refusal
        if refusal is not None:
            await _answer(scope, await body.swallow() or refusal, send)


class _Body:
    """A body as far as it came, and whether more of it is taken."""

    def __init__(
        self, scope: HTTPScope, receive: Any, refuse_stranger: Callable[[HTTPScope], Awaitable[SluiceError | None]]
    ) -> None:
        headers = dict(scope.get("headers", ()))
        length = headers.get(b"content-length", b"")
        self.declared = int(length) if length.isdigit() and len(length) < 19 else 0
        self._waits_to_send = headers.get(b"expect", b"").lower() == b"100-continue"
        self.refusal: SluiceError | None = None
        self._scope, self._receive, self._refuse_stranger = scope, receive, refuse_stranger
        self._received = 0
        self._ended = False
        self.is_answered = False  # a moment earlier Django still writes the body down
        self._limit = MAX_UNKNOWN_BYTES  # until it is known who sends, and how much is taken of them

    async def receive(self) -> Any:
        self.is_answered = self._ended
        message = await self._next()
        self.refusal = await self.refusal_of(self._received)
        # Told that the client has gone, Django throws away what it has kept and answers nothing.
        return {"type": "http.disconnect"} if self.refusal else message

    async def refusal_of(self, length: int) -> SluiceError | None:
        """Why a body of this length is not taken; looked into once it is more than everybody may send."""
        if length <= self._limit:
            return None
        endpoint_limit = self._endpoint_limit()
        refusal: SluiceError | None = oversize(length, endpoint_limit)
        if refusal is None and self._limit == MAX_UNKNOWN_BYTES:
            refusal = await self._refuse_stranger(self._scope)
        self._limit = endpoint_limit
        return refusal

    async def swallow(self) -> SluiceError | None:
        """Take the rest and keep nothing of it; the refusal of what turns out too large for anybody."""
        if self._received or not self._waits_to_send:  # who waits for a word to send gets the answer instead
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SWALLOW_S):
                    while not self._ended:
                        await self._next()
        return oversize(max(self._received, self.declared), self._endpoint_limit())

    async def _next(self) -> Any:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self._ended = message["type"] == "http.disconnect" or not message.get("more_body")
        return message

    def _endpoint_limit(self) -> int:
        return size_of_path(self._scope["path"], self._scope["method"]).wire_bytes


def _odd_text(scope: HTTPScope) -> Malformed | None:
    """The refusal of zero characters, which no database stores as a text, and of bytes that are no UTF-8."""
    query = unquote_to_bytes(scope.get("query_string", b""))
    cookies = b"".join(value for name, value in scope.get("headers", ()) if name == b"cookie")
    places = [
        *(["the path"] if "\0" in scope["path"] else []),
        *(["the query"] if b"\0" in query else []),
        *(["a cookie"] if _ZERO_IN_COOKIE.search(cookies) or b"\0" in cookies else []),
    ]
    if places:
        return Malformed(f"A zero character stands in {places[0]}.", [("", f"{place} has one") for place in places])
    try:
        scope.get("query_string", b"").decode()
    except UnicodeDecodeError:
        return Malformed("The query is not UTF-8.")
    return None


async def _answer(scope: HTTPScope, error: SluiceError, send: Any) -> None:
    request_id = uuid.uuid4().hex[:16]
    kind, body = _error_body(scope, error, request_id)
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        *((name.lower().encode(), value.encode()) for name, value in error.headers.items()),
        *([(b"www-authenticate", b'Bearer realm="sluice"')] if error.status == HTTPStatus.UNAUTHORIZED else []),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _error_body(scope: HTTPScope, error: SluiceError, request_id: str) -> tuple[bytes, bytes]:
    if scope["path"].startswith("/api/"):
        body = problem_details(error, instance=scope["path"], request_id=request_id)
        return PROBLEM_JSON.encode(), json.dumps(body).encode()
    fragment = b"hx-request" in dict(scope["headers"])
    title = HTTPStatus(error.status).phrase.capitalize()
    context = {"status": error.status, "title": title, "message": error.message, "request_id": request_id}
    page = render_to_string("core/error_plain.html", {**context, "fragment": fragment})
    return b"text/html; charset=utf-8", page.encode()
