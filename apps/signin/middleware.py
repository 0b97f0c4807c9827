"""Sessions as requests come in: when they were last seen, and the second factor that a role asks for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from apps.core.errors import Forbidden
from apps.core.problem_details import error_response
from apps.signin.models import Session
from apps.signin.second_factor import needs_second_factor
from apps.signin.sessions import SignInWay, session_of_request

__all__ = ["SignInMiddleware"]

_SEEN_EVERY = timedelta(minutes=5)
#: Pages of somebody whose second factor is still to be set up.
_TAKEN = frozenset({"signin:second-factor", "signin:logout", "healthz"})


class SignInMiddleware:
    """Stores when a session was seen, at most every five minutes, and leads to a second factor that is lacking.

    A session that began at the provider has the factors that the provider asked for.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.user.is_authenticated:
            _note_seen(request)
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, *arguments: Any) -> HttpResponse | None:
        user, match = request.user, request.resolver_match
        if not user.is_authenticated or (match is not None and match.view_name in _TAKEN):
            return None
        if session_of_request(request).way in _SAFE_WAYS or not needs_second_factor(user):
            return None
        page = reverse("signin:second-factor")
        if request.path.startswith("/api/"):
            words = f"Your role needs a second factor. Set it up in the console: {page}"
            return error_response(request, Forbidden(words, code="second_factor_missing"))
        if request.headers.get("HX-Request"):  # of the page itself: leading there again would cut off what it sends
            is_there = urlsplit(request.headers.get("HX-Current-URL", "")).path == page
            return HttpResponse(status=204) if is_there else HttpResponse(status=403, headers={"HX-Redirect": page})
        return HttpResponseRedirect(page)


_SAFE_WAYS = frozenset({SignInWay.CODE, SignInWay.PROVIDER})


def _note_seen(request: HttpRequest) -> None:
    seen_at, now = getattr(request.session, "seen_at", None), timezone.now()
    if seen_at is None or now - seen_at < _SEEN_EVERY:
        return
    try:
        Session.objects.filter(session_key=request.session.session_key).update(seen_at=now)
    except OperationalError:
        return  # a read is answered also where the database takes no writes just now
