"""Lists of the REST API: numbers in query parameters, pages by cursor, strict filters."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import pagination
from rest_framework.exceptions import NotFound
from rest_framework.request import Request

from apps.core.errors import Malformed
from apps.core.rest.serializers import unknown_message

__all__ = ["CursorPagination", "StrictFilterBackend", "parse_whole_number"]


def parse_whole_number(text: str, name: str, least: int, most: int) -> int:
    """The number that a parameter's text says; `²` and digits of other scripts are none.

    Raises
    ------
    Malformed
        It is no whole number from `least` to `most` (below 10^9).
    """
    if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    message = f"{text[:40]!r} is not a whole number from {least} to {most}"
    raise Malformed(f"{name}: {message}.", [(name, message)])


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
        return parse_whole_number(text, self.page_size_query_param, 1, self.max_page_size)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
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

    def _get_position_from_instance(self, instance: Any, ordering: Sequence[str]) -> str:
        value = instance
        for part in ordering[0].lstrip("-").split("__"):
            value = getattr(value, part)
        return str(value)


_PAGING = ("cursor", "page_size")
_RANGE_ENDS = ("_min", "_max", "_after", "_before")


class StrictFilterBackend(DjangoFilterBackend):
    """django-filter's backend that refuses a misspelt filter, which would otherwise silently select everything.

    A view whose list reads further parameters names them in `query_parameters`.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet, view: Any) -> QuerySet:
        if getattr(view, "action", None) == "list":
            allowed = [*self._filters(queryset, view), *getattr(view, "query_parameters", ()), *_PAGING]
            faults = [
                (name, unknown_message(name, allowed, "parameter"))
                for name in request.query_params
                if name not in allowed and not (name.endswith(_RANGE_ENDS) and name.rpartition("_")[0] in allowed)
            ]
            if faults:
                raise Malformed(f"{faults[0][0]}: {faults[0][1]}", faults)
        return super().filter_queryset(request, queryset, view)

    def _filters(self, queryset: QuerySet, view: Any) -> list[str]:
        filterset = self.get_filterset_class(view, queryset)
        return list(filterset.get_filters()) if filterset else []
