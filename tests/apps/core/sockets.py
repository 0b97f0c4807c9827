"""A page's end of a WebSocket (the one of `channels.testing` needs a second ASGI server installed)."""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator

from tests.servers import PATIENCE_S

__all__ = ["Socket"]


class Socket(ApplicationCommunicator):
    """`await socket.connect()` is whether it was accepted; `await socket.hear()` the next message."""

    def __init__(self, application: Any, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, "subprotocols": []}
        super().__init__(application, scope)

    async def connect(self) -> bool:
        await self.send_input({"type": "websocket.connect"})
        return (await self.receive_output(PATIENCE_S))["type"] == "websocket.accept"

    async def hear(self) -> Any:
        message = await self.receive_output(PATIENCE_S)
        return json.loads(message["text"]) if message["type"] == "websocket.send" else message

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(PATIENCE_S)
