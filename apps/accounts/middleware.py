"""Time zone of the signed-in person for every page."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

__all__ = ["TimeZoneMiddleware"]


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
