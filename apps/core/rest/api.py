"""Base of every REST view: ETags, answers of jobs, the router, and the other conventions to import from one place."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import transaction
from django.utils.http import parse_etags
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from apps.core.errors import PreconditionFailed
from apps.core.rest.idempotency import IdempotentMixin, PromisedResponse
from apps.core.rest.lists import CursorPagination
from apps.core.rest.parsers import StrictJSONParser
from apps.core.rest.problems import exception_handler
from apps.core.rest.serializers import StrictModelSerializer, StrictSerializer

__all__ = [
    "ApiMixin",
    "CursorPagination",
    "EtagMixin",
    "IdempotentMixin",
    "PromisedResponse",
    "Router",
    "StrictJSONParser",
    "StrictModelSerializer",
    "StrictSerializer",
    "etag_of",
    "exception_handler",
]


_UNSAFE = frozenset({"PUT", "PATCH", "DELETE"})


def etag_of(representation: Any) -> str:
    """A strong ETag: the hash of what a GET of the resource shows."""
    return f'"{hashlib.sha256(JSONRenderer().render(representation)).hexdigest()[:32]}"'


class EtagMixin:
    """Generic viewsets whose single resources carry an ETag.

    GET answers 304 to a matching `If-None-Match`. PUT, PATCH and DELETE honour `If-Match` where it is sent (412 when
    the resource has moved); the comparison and the change are one transaction with the row locked.

    A view with another address that shows something and changes it adds those actions to `etag_actions` and says in
    `shown_for_etag` what a GET there shows.
    """

    action: Any
    request: Any
    etag_actions = frozenset({"retrieve", "update", "partial_update"})

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        if self._is_guarded(request):
            name = (request.method or "").lower()
            setattr(self, name, transaction.atomic(getattr(self, name)))

    def get_object(self) -> Any:
        row = super().get_object()  # type: ignore[misc]
        if self._is_guarded(self.request):
            row.refresh_from_db(from_queryset=type(row)._base_manager.select_for_update(no_key=True))
            etags = parse_etags(self.request.headers["If-Match"])
            if etags != ["*"] and etag_of(self.shown_for_etag(row)) not in etags:
                raise PreconditionFailed("It has been changed since you read it. Read it again and repeat the change.")
        return row

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
        if response.status_code == 200 and getattr(self, "action", None) in self.etag_actions:
            response["ETag"] = etag_of(response.data)
            if request.method in {"GET", "HEAD"} and response["ETag"] in parse_etags(
                request.headers.get("If-None-Match", "")
            ):
                response.status_code, response.data = 304, None
        return response

    def _is_guarded(self, request: Request) -> bool:
        return request.method in _UNSAFE and "If-Match" in request.headers

    def shown_for_etag(self, found: Any) -> Any:
        """Content that a GET of this address would show, with any serializer of the action itself."""
        action, self.action = self.action, "retrieve"
        try:
            return self.get_serializer(found).data  # type: ignore[attr-defined]
        finally:
            self.action = action


class ApiMixin(IdempotentMixin, EtagMixin):
    """First base of every viewset: idempotent POSTs, ETags. `class NodeViewSet(ApiMixin, ModelViewSet)`."""


class Router(SimpleRouter):
    """Addresses without a slash at their end: `/api/v1/jobs/{id}`."""

    def __init__(self) -> None:
        super().__init__(trailing_slash=False)
