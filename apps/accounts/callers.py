"""Callers of requests whose bodies have not been read: are their credentials good?"""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.urls import resolve
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.core.errors import NotAuthenticated, SluiceError

__all__ = ["caller_refusal"]


def caller_refusal(scope: dict[str, Any]) -> SluiceError | None:
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
