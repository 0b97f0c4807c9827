"""Middleware of Django and ASGI: access log, static files, request ids, size limit of requests, error pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import IO, Any
from urllib.parse import quote

import structlog
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from whitenoise.middleware import WhiteNoiseMiddleware

from apps.core.errors import SluiceError, TooLarge
from apps.core.pages import error_response
from apps.core.problem_details import PROBLEM_JSON, problem_details
from apps.core.rest.problems import as_sluice_error

__all__ = [
    "AccessLogMiddleware",
    "BodyLimit",
    "ErrorPageMiddleware",
    "RequestIdMiddleware",
    "StaticFilesMiddleware",
    "oversize",
]


_access_log = logging.getLogger("sluice.access")
_UNQUOTED = "/:@._~-"


class AccessLogMiddleware:
    """Writes when, what, how it ended, how long it took and how much was answered. No query strings: they may tell."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        response = self.get_response(request)
        took_ms = (time.perf_counter() - began) * 1e3
        match = request.resolver_match
        _access_log.info(
            "time=%s method=%s route=%s path=%s status=%d ms=%.2f bytes=%s",
            datetime.now(UTC).isoformat(timespec="microseconds"),
            request.method,
            quote(match.view_name, safe=_UNQUOTED) if match else "-",
            quote(_without_token(request), safe=_UNQUOTED),
            response.status_code,
            took_ms,
            "-" if response.streaming else len(response.content),
        )
        return response


def _without_token(request: HttpRequest) -> str:
    """The path; a token that is a part of it, as webhooks have them, stays out of the log."""
    token = request.resolver_match.kwargs.get("token") if request.resolver_match else None
    return request.path.replace(token, "...") if token and isinstance(token, str) else request.path


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


_log = logging.getLogger(__name__)
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
# A multipart request is a little larger than the file in it.
_ENVELOPE_BYTES = 1_000_000

type_get_response = Callable[[HttpRequest], HttpResponse]


def oversize(length: int) -> TooLarge | None:
    """The refusal of a request body of `length` bytes, or None if it is small enough."""
    limit = settings.UPLOAD_MAX_BYTES
    if length <= limit + _ENVELOPE_BYTES:
        return None
    return TooLarge(f"The request has {length / 1e6:.1f} MB; at most {limit / 1e6:g} MB are taken.")


class RequestIdMiddleware:
    """Takes the caller's `X-Request-ID` or makes one; it is in every log line, error and answer."""

    def __init__(self, get_response: type_get_response) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        own_id = request.headers.get("X-Request-ID", "")
        request_id = own_id if _ACCEPTABLE_ID.match(own_id) else uuid.uuid4().hex[:16]
        request.request_id = request_id  # type: ignore[attr-defined] # Django leaves requests open for middleware
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            length = request.META.get("CONTENT_LENGTH") or "0"
            refusal = oversize(int(length)) if length.isdigit() else None
            response = error_response(request, refusal) if refusal else self.get_response(request)
        response["X-Request-ID"] = request_id
        return response


class ErrorPageMiddleware:
    """Turns a refusal raised in a page's view into an error page, or a fragment for htmx."""

    def __init__(self, get_response: type_get_response) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        refusal = as_sluice_error(error)
        if refusal is None:
            return None
        if not isinstance(error, SluiceError):
            _log.warning("%s: %s", refusal.message, error)
        return error_response(request, refusal)


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
        body = problem_details(error, instance=scope["path"], request_id=request_id)
        return PROBLEM_JSON.encode(), json.dumps(body).encode()
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
