"""Middleware of Django: the request as the origin of the changes that it makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest, HttpResponse

from apps.ledger.entries import refusal_recorded
from apps.ledger.origin import Origin, changes_from
from apps.ledger.undo import undoable_group

__all__ = ["OriginMiddleware"]


class OriginMiddleware:
    """The sender of a request makes its changes, and is refused what it is refused.

    This stands behind the middleware that knows the sender.

    `request.undoable_group()` names what it has changed so far, for an offer to take it back.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        origin = Origin(request)
        request.undoable_group = partial(undoable_group, origin)  # type: ignore[attr-defined] # open for middleware
        with changes_from(origin):
            response = self.get_response(request)
        refusal_recorded(request, response.status_code)
        return response
