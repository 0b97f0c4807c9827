"""Error answers outside of REST views: pages, htmx fragments, and problem details for addresses below /api/."""

from __future__ import annotations

import logging
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils.http import url_has_allowed_host_and_scheme

from apps.core.errors import Forbidden, Internal, Malformed, Missing, SluiceError
from apps.core.problem_details import PROBLEM_JSON, problem_details

__all__ = ["bad_request", "csrf_failure", "error_response", "forbidden", "not_found", "server_error"]

_log = logging.getLogger(__name__)


def error_response(request: HttpRequest, error: SluiceError) -> HttpResponse:
    """The answer to a refused request in the form its sender reads.

    Below /api/ it is the problem details of every REST error. Otherwise the template `ui/error.html`, or for htmx
    requests `ui/error_fragment.html`, with the context status, title, message, faults, request_id, retry_after_s, back.
    """
    request_id = getattr(request, "request_id", "")
    if request.path.startswith("/api/"):
        body = problem_details(error, instance=request.path, request_id=request_id)
        return JsonResponse(body, status=error.status, headers=error.headers, content_type=PROBLEM_JSON)
    context = {
        "status": error.status,
        "title": HTTPStatus(error.status).phrase.capitalize(),
        "message": error.message,
        "faults": error.faults,
        "request_id": request_id,
        "retry_after_s": error.retry_after_s,
        "back": _back(request),
    }
    fragment = bool(getattr(request, "htmx", False))
    response = HttpResponse(_render(request, context, fragment), status=error.status, headers=error.headers)
    if fragment:  # it has the page's address: the browser's Back would show it in place of the page
        response.headers["Cache-Control"] = "no-store"
    return response


def _back(request: HttpRequest) -> str:
    """The page whose form was refused, if it is one of ours."""
    came_from = request.META.get("HTTP_REFERER", "")
    ours = url_has_allowed_host_and_scheme(came_from, {request.META.get("HTTP_HOST", "")})
    return came_from if ours and request.method == "POST" else ""


def _render(request: HttpRequest, context: dict[str, object], fragment: bool) -> str:
    """The page with its frame; without the frame (it reads the database) when that fails too."""
    template = "ui/error_fragment.html" if fragment else "ui/error.html"
    try:
        return render_to_string(template, context, request=request)
    except Exception:
        _log.exception("the error page cannot be rendered with its frame")
        return render_to_string("core/error_plain.html", {**context, "fragment": fragment})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400"""
    return error_response(request, Malformed("The request cannot be read."))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403"""
    return error_response(request, Forbidden(str(exception) or "You may not do this."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404"""
    hint = " Addresses of the API do not end in a slash." if _api_slash(request.path) else ""
    return error_response(request, Missing(f"There is nothing at {request.path}.{hint}"))


def _api_slash(path: str) -> bool:
    return path.startswith("/api/v1/") and path.endswith("/")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """CSRF_FAILURE_VIEW"""
    return error_response(request, Forbidden("The form has expired or was sent from another site. Reload the page."))


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500: says that it is our fault and under which id it is in the log, never a stack trace."""
    return error_response(request, Internal("Something went wrong inside Sluice. The log has it by the request id."))
