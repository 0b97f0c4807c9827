"""The console's access log: one line of key=value pairs per request, made to be read by a live query."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse

__all__ = ["AccessLogMiddleware"]

_log = logging.getLogger("sluice.access")
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
        _log.info(
            "time=%s method=%s route=%s path=%s status=%d ms=%.2f bytes=%s",
            datetime.now(UTC).isoformat(timespec="microseconds"),
            request.method,
            quote(match.view_name, safe=_UNQUOTED) if match else "-",
            quote(request.path, safe=_UNQUOTED),
            response.status_code,
            took_ms,
            "-" if response.streaming else len(response.content),
        )
        return response
