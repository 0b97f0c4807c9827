"""Refuse a request that is too large before its body has been received."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from django.template.loader import render_to_string

from apps.core.errors import TooLarge
from apps.core.middleware import oversize

__all__ = ["BodyLimit"]

type_app = Callable[[dict[str, Any], Callable[..., Awaitable[Any]], Callable[..., Awaitable[None]]], Awaitable[None]]

# A client that is still sending does not read the answer: closing on it shows up there as a broken connection.
_SWALLOW_S = 20.0


class BodyLimit:
    """ASGI wrapper. Django stores the whole body before any view runs; here it is cut off at the limit instead.

    `Content-Length` is believed when it says too much; a body without one is counted as it comes.
    """

    def __init__(self, app: type_app) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        length = dict(scope.get("headers", ())).get(b"content-length", b"")
        refusal = oversize(int(length)) if length.isdigit() else None
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        received = 0

        async def counted() -> Any:
            nonlocal received, refusal
            message = await receive()
            received += len(message.get("body", b""))
            refusal = oversize(received)
            # Told that the client has gone, Django throws away what it has kept and answers nothing.
            return {"type": "http.disconnect"} if refusal else message

        await self.app(scope, counted, send)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)


async def _refuse(scope: dict[str, Any], receive: Any, send: Any, error: TooLarge) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_swallow(receive), _SWALLOW_S)
    request_id = uuid.uuid4().hex[:16]
    kind, body = _answer(scope, error, request_id)
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _answer(scope: dict[str, Any], error: TooLarge, request_id: str) -> tuple[bytes, bytes]:
    if scope["path"].startswith("/api/"):
        return b"application/json", json.dumps({**error.as_dict(), "request_id": request_id}).encode()
    fragment = b"hx-request" in dict(scope["headers"])
    context = {"status": error.status, "title": "Too large", "message": error.message, "request_id": request_id}
    page = render_to_string("core/error_plain.html", {**context, "fragment": fragment})
    return b"text/html; charset=utf-8", page.encode()


async def _swallow(receive: Any) -> None:
    """Take the rest of the body and keep nothing of it."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return
