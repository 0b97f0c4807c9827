"""Pages of lists by cursor: stable while rows come and go."""

from __future__ import annotations

import base64
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from rest_framework import pagination
from rest_framework.exceptions import NotFound
from rest_framework.request import Request

from apps.core.errors import Malformed
from apps.core.parameters import whole_number

__all__ = ["CursorPagination"]


class CursorPagination(pagination.CursorPagination):
    """50 rows a page, `?page_size` up to 200, in the view's `ordering` (else the model's), ties broken by the key."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"
    page_size_query_description = "Rows per page, 1 to 200."
    cursor_query_description = "Taken from `next` or `previous` of another page."

    def get_page_size(self, request: Request) -> int:
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        return whole_number(text, self.page_size_query_param, 1, self.max_page_size)

    def paginate_queryset(self, queryset: QuerySet, request: Request, view: Any = None) -> list[Any] | None:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, ValidationError, ValueError):
            if self.cursor_query_param not in request.query_params:
                raise
            message = "not a cursor of this list; take it from `next` or `previous`"
            raise Malformed(f"cursor: {message}.", [("cursor", message)]) from None

    def get_ordering(self, request: Request, queryset: QuerySet, view: Any) -> tuple[str, ...]:
        ordering = getattr(view, "ordering", None) or queryset.query.order_by or queryset.model._meta.ordering
        fields = (ordering,) if isinstance(ordering, str) else tuple(ordering)
        return fields if {"pk", "-pk", "id", "-id"} & set(fields) else (*fields, "pk")

    def decode_cursor(self, request: Request) -> Any:
        base64.b64decode(request.query_params.get(self.cursor_query_param, ""), validate=True)
        return super().decode_cursor(request)

    def _get_position_from_instance(self, instance: Any, ordering: tuple[str, ...]) -> str:
        value = instance
        for part in ordering[0].lstrip("-").split("__"):
            value = getattr(value, part)
        return str(value)
