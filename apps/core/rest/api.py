"""Bases of every REST view: ETags, idempotent POSTs, rows whose writes are services, and the router."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils.http import parse_etags
from rest_framework import mixins, serializers, viewsets
from rest_framework.permissions import SAFE_METHODS
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from apps.core.errors import PreconditionFailed
from apps.core.reach import AskedOn, caller_now, visible
from apps.core.rest.idempotency import IdempotentMixin, PromisedResponse
from apps.core.rest.serializers import StrictModelSerializer, StrictSerializer, show_row

__all__ = [
    "ApiMixin",
    "EtagMixin",
    "PromisedResponse",
    "ReadViewSet",
    "Router",
    "ServiceViewSet",
    "StrictModelSerializer",
    "StrictSerializer",
    "etag_of",
]


_UNSAFE = frozenset({"PUT", "PATCH", "DELETE"})


def etag_of(representation: Any) -> str:
    """A strong ETag: the hash of what a GET of the resource shows."""
    return f'"{hashlib.sha256(JSONRenderer().render(representation)).hexdigest()[:32]}"'


class EtagMixin:
    """Generic viewsets whose single resources carry an ETag.

    GET answers 304 to a matching `If-None-Match`. PUT, PATCH and DELETE honour `If-Match` where it is sent (412 when
    the resource has moved); the comparison and the change are one transaction with the row locked. A PATCH is always
    one with its answer, so that a row which its caller would no longer see after it stays as it was (`show_row`).

    A view with another address that shows something and changes it adds those actions to `etag_actions` and says in
    `shown_for_etag` what a GET there shows.
    """

    action: Any
    request: Any
    etag_actions = frozenset({"retrieve", "update", "partial_update"})

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        name = (request.method or "").lower()
        if hasattr(self, name) and (request.method == "PATCH" or self._is_guarded(request)):
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
    """First base of every view: idempotent POSTs, ETags. `class NodeViewSet(ApiMixin, ModelViewSet)`.

    A view without rows of its own says by `asked_on` where it asks for its scope.
    """

    asked_on: str = AskedOn.CONSOLE

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Rows that the caller sees; of a list that takes more than reading, those where the caller holds that."""
        rows: QuerySet[Any] = super().filter_queryset(queryset)  # type: ignore[misc]
        is_list = not getattr(self, "detail", True) and self.request.method in SAFE_METHODS
        return visible(rows, caller_now().needed) if is_list else visible(rows)


class ReadViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """A list of resources, and each of them."""

    asked_on = AskedOn.NARROWED


class ServiceViewSet(ReadViewSet):
    """Create, read, change (PATCH) and delete by services; each answers with the resource as a GET shows it.

    A viewset names `service_create`, `service_update` and `service_delete`, the keyword by which the latter two take
    the row, the one by which the first takes the person, where it does, and a `create_class` that reads what is created
    where it is not read as it is shown. PUT is not offered: a field left out of it would have to mean its default.
    """

    create_class: type[serializers.Serializer] | None = None
    row_keyword: str
    creator_keyword = ""
    service_create: Callable[..., Model]
    service_update: Callable[..., Model]
    service_delete: Callable[..., None]

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        read = self.create_class or self.get_serializer_class()
        serializer = read(data=request.data, context=self.get_serializer_context())
        serializer.is_valid(raise_exception=True)
        caller_now().check_everything()  # unless it is of a cluster, which was checked as it was read
        row = self.create_row(**serializer.validated_data)
        key = getattr(row, self.lookup_field)
        location = f"{request.path.rstrip('/')}/{key}"
        return Response(self._shown(row), status=201, headers={"Location": location})

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        row = self.get_object()
        serializer = self.get_serializer(row, data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        type(self).service_update(**{self.row_keyword: row}, **serializer.validated_data)
        return Response(self._shown(row))

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        type(self).service_delete(**{self.row_keyword: self.get_object()})
        return Response(status=204)

    def create_row(self, **values: Any) -> Model:
        """Call the service that creates the row."""
        creator = {self.creator_keyword: self.request.user} if self.creator_keyword else {}
        return type(self).service_create(**values, **creator)

    def _shown(self, row: Model) -> Any:
        return show_row(row, self.get_queryset(), self.get_serializer)


class Router(SimpleRouter):
    """Addresses without a slash at their end: `/api/v1/jobs/{id}`."""

    def __init__(self) -> None:
        super().__init__(trailing_slash=False)
