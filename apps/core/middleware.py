"""Middleware of Django: access log, static files, request ids, error pages."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import IO, Any
from urllib.parse import quote

import structlog
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware

from agent.wire.heartbeat import REQUEST_ID
from apps.core.durations import duration_note
from apps.core.errors import Malformed, SluiceError
from apps.core.problem_details import error_response
from apps.core.rest.problems import as_sluice_error
from apps.core.traces import request_span

__all__ = [
    "AccessLogMiddleware",
    "ErrorPageMiddleware",
    "RequestIdMiddleware",
    "StaticFilesMiddleware",
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
        if match:
            duration_note(match.view_name, took_ms / 1e3)
        facts: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="microseconds"),
            "method": request.method,
            "route": quote(match.view_name, safe=_UNQUOTED) if match else None,
            "path": quote(_without_token(request), safe=_UNQUOTED),
            "status": response.status_code,
            "ms": round(took_ms, 2),
            "bytes": None if response.streaming else len(response.content),
            "request_id": getattr(request, "request_id", None),
        }
        words = " ".join(f"{name}={'-' if value is None else value}" for name, value in facts.items())
        _access_log.info("%s", words, extra={"facts": facts})
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

type_get_response = Callable[[HttpRequest], HttpResponse]


class RequestIdMiddleware:
    """Takes the caller's `X-Request-ID` or makes one; it is in every log line, error and answer."""

    def __init__(self, get_response: type_get_response) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        own_id = request.headers.get("X-Request-ID", "")
        request_id = own_id if REQUEST_ID.match(own_id) else uuid.uuid4().hex[:16]
        request.request_id = request_id  # type: ignore[attr-defined] # Django leaves requests open for middleware
        with structlog.contextvars.bound_contextvars(request_id=request_id), request_span(request, request_id) as span:
            response = self.get_response(request)
            span.answered(response)
        response["X-Request-ID"] = request_id
        return response


class ErrorPageMiddleware:
    """Turns a refusal raised in a page's view into an error page, or a fragment for htmx.

    A form with a zero character in it is refused before its view: no database stores one in a text.
    """

    def __init__(self, get_response: type_get_response) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, *arguments: Any) -> HttpResponse | None:
        if request.method != "POST" or getattr(view, "csrf_exempt", False):
            return None  # REST reads its bodies itself
        fields = [name for name, values in request.POST.lists() if "\0" in "".join([name, *values])]
        if not fields:
            return None
        faults = [(name.replace("\0", "?"), "holds a zero character") for name in fields]
        return error_response(request, Malformed("The form holds a text with a zero character.", faults))

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        refusal = as_sluice_error(error)
        if refusal is None:
            return None
        if not isinstance(error, SluiceError):
            _log.warning("%s: %s", refusal.message, error)
        return error_response(request, refusal)
