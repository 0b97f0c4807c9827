"""Request ids, the size limit of requests, and error pages."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from apps.core.errors import SluiceError, TooLarge
from apps.core.pages import error_response
from apps.core.problems import as_sluice_error

__all__ = ["ErrorPageMiddleware", "RequestIdMiddleware", "oversize"]

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
        given = request.headers.get("X-Request-ID", "")
        request.request_id = given if _ACCEPTABLE_ID.match(given) else uuid.uuid4().hex[:16]
        with structlog.contextvars.bound_contextvars(request_id=request.request_id):
            length = request.META.get("CONTENT_LENGTH") or "0"
            refusal = oversize(int(length)) if length.isdigit() else None
            response = error_response(request, refusal) if refusal else self.get_response(request)
        response["X-Request-ID"] = request.request_id
        return response


class ErrorPageMiddleware:
    """Turns a refusal raised in a page's view into an error page, or a fragment for htmx."""

    def __init__(self, get_response: type_get_response) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        known = as_sluice_error(error)
        if known is None:
            return None
        if not isinstance(error, SluiceError):
            _log.warning("%s: %s", known.message, error)
        return error_response(request, known)
