"""Middleware of requests of people: who may send a form at all, and the time zone of what they read."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.accounts.permissions import SAFE_METHODS, ScopeRequiredMixin, redirect_to_sign_in
from apps.core.body_sizes import oversize, size_of_view
from apps.core.pages import error_response

__all__ = ["SenderMiddleware", "TimeZoneMiddleware"]


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
