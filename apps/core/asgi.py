"""Refuse a request that is too large before its body has been received."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from apps.core.errors import TooLarge
from apps.core.middleware import oversize

__all__ = ["BodyLimit"]

type_app = Callable[[dict[str, Any], Callable[..., Awaitable[Any]], Callable[..., Awaitable[None]]], Awaitable[None]]


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
            await _refuse(send, refusal)
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
            await _refuse(send, refusal)


async def _refuse(send: Any, error: TooLarge) -> None:
    request_id = uuid.uuid4().hex[:16]
    body = json.dumps({**error.as_dict(), "request_id": request_id}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
