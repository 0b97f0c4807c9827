"""Viewset whose writes are services: create, change and delete, each answered as a GET shows the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Model
from rest_framework import mixins, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.rest.api import ApiMixin

__all__ = ["ServiceViewSet"]


class ServiceViewSet(
    ApiMixin,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    mixins.ListModelMixin,
    viewsets.GenericViewSet,
):
    """Create, read, change (PATCH) and delete by services; each answers with the resource as a GET shows it.

    A viewset names `service_create`, `service_update` and `service_delete`, the keyword by which the latter two take
    the row, and the one by which the first takes the person, where it does. PUT is not offered: a field left out of it
    would have to mean its default.
    """

    row_keyword: str
    creator_keyword = ""
    service_create: Callable[..., Model]
    service_update: Callable[..., Model]
    service_delete: Callable[..., None]

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
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
        """Read again: lists and single resources carry counts that a saved row does not."""
        return self.get_serializer(self.get_queryset().get(pk=row.pk)).data
