"""Styles, scripts and pictures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import IO, Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest
from whitenoise.middleware import WhiteNoiseMiddleware

__all__ = ["StaticFilesMiddleware"]

_PIECE_BYTES = 1 << 18


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise for ASGI, too: there Django would read each file whole before it sends any of it, and warn of that."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> FileResponse:
        response = WhiteNoiseMiddleware.serve(static_file, request)
        if isinstance(request, ASGIRequest):
            response.streaming_content = _pieces(response.file_to_stream)
        return response


async def _pieces(file: IO[bytes] | None) -> AsyncIterator[bytes]:
    """Pieces of a file; nothing where an answer has no body (304, HEAD). The response closes it."""
    while file is not None and (piece := await sync_to_async(file.read, thread_sensitive=False)(_PIECE_BYTES)):
        yield piece
