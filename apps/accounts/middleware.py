"""Callers before their requests are read: whose bodies are taken at all, and the time zone of what people read."""

from __future__ import annotations

import io
import zoneinfo
from collections.abc import Callable
from importlib import import_module
from typing import Any

from asgiref.typing import HTTPScope
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.urls import resolve
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.permissions import SAFE_METHODS, ScopeRequiredMixin, redirect_to_sign_in
from apps.core.body_sizes import oversize, size_of_view
from apps.core.errors import Forbidden, NotAuthenticated, SluiceError
from apps.core.problem_details import error_response
from apps.core.reach import Caller, caller_entered

__all__ = ["CallerMiddleware", "SenderMiddleware", "TimeZoneMiddleware", "caller_refusal"]


class SenderMiddleware:
    """Before anything reads a body: its declared size, and for forms of pages that somebody signed in sends it.

    What somebody known is answered is nobody else's: no browser and no proxy keeps it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.user.is_authenticated:
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    def process_view(self, request: HttpRequest, view: Any, *arguments: Any) -> HttpResponse | None:
        method, length = request.method or "", request.META.get("CONTENT_LENGTH") or "0"
        if method in SAFE_METHODS:
            return None
        kind = getattr(view, "cls", None) or getattr(view, "view_class", None)
        size = size_of_view(kind, method, getattr(view, "actions", {}).get(method.lower(), ""))
        refusal = oversize(int(length), size.wire_bytes) if length.isdigit() else None
        if refusal is not None:
            return error_response(request, refusal)
        is_page = isinstance(kind, type) and issubclass(kind, ScopeRequiredMixin)
        return redirect_to_sign_in(request) if is_page and not request.user.is_authenticated else None


class CallerMiddleware:
    """Gives each request a caller, and refuses an answer that was not narrowed to what its caller reaches."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with caller_entered(Caller()) as caller:
            response = self.get_response(request)
            if response.status_code < 400:
                try:
                    caller.close()
                except Forbidden as refusal:
                    return error_response(request, refusal)
            return response


class TimeZoneMiddleware:
    """Activates the user's time zone for pages; UTC without one, and for the API, which always speaks UTC."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(_zone(request)):
            return self.get_response(request)


def _zone(request: HttpRequest) -> zoneinfo.ZoneInfo:
    user = getattr(request, "user", None)
    if request.path.startswith("/api/") or user is None or not user.is_authenticated:
        return zoneinfo.ZoneInfo("UTC")
    try:
        return zoneinfo.ZoneInfo(user.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):  # a zone that this machine's tzdata no longer has
        return zoneinfo.ZoneInfo("UTC")


def caller_refusal(scope: HTTPScope) -> SluiceError | None:
    """Why the sender of an ASGI request is not let in, by the credentials that its view takes; None if they are good.

    Whether they suffice for what is asked stays the view's to say.
    """
    request = ASGIRequest(scope, io.BytesIO())
    match = resolve(request.path_info)
    sessions = import_module(settings.SESSION_ENGINE)
    request.session = sessions.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    request.user = get_user(request)
    kind = getattr(match.func, "cls", None)
    if kind is None or not issubclass(kind, APIView):
        return None if request.user.is_authenticated else NotAuthenticated("Sign in first, then send it again.")
    request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined] # their token may stand in the body
    view = kind(**getattr(match.func, "initkwargs", {}))
    asked = Request(request, authenticators=view.get_authenticators(), parser_context={"kwargs": match.kwargs})
    try:
        known = asked.user is not None and asked.user.is_authenticated
    except SluiceError as error:
        return error
    return None if known else NotAuthenticated("Only short bodies are read of those who are not known. Send a token.")
