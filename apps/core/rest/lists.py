"""Lists of the REST API: numbers in query parameters, strict filters, an order of the caller's choice, and pages by
cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.core import signing
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import F, Model, Q, QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.extensions import OpenApiFilterExtension
from rest_framework import pagination
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from apps.core.errors import Malformed
from apps.core.filters import ListFilter
from apps.core.rest.serializers import unknown_message

__all__ = ["CursorPagination", "FilterParameters", "StrictFilterBackend", "is_nullable", "parse_whole_number"]


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


@dataclass(frozen=True)
class _SortTerm:
    """One term of an order; rows without a value come last, either way round."""

    path: str
    descends: bool
    nullable: bool

    def expression(self, *, turned: bool) -> Any:
        column, descends = F(self.path), self.descends != turned
        nulls = {"nulls_first" if turned else "nulls_last": True} if self.nullable else {}
        return column.desc(**nulls) if descends else column.asc(**nulls)

    def equal(self, value: Any) -> Q:
        return Q(**{f"{self.path}__isnull": True}) if value is None else Q(**{self.path: value})

    def beyond(self, value: Any, *, turned: bool) -> Q | None:
        """Rows that come after one of this value by this term alone; None where none does."""
        if value is None:
            return Q(**{f"{self.path}__isnull": False}) if turned else None
        further = Q(**{f"{self.path}__{'lt' if self.descends != turned else 'gt'}": value})
        return further | Q(**{f"{self.path}__isnull": True}) if self.nullable and not turned else further


class CursorPagination(pagination.CursorPagination):
    """50 rows a page, `?page_size` up to 200, ordered by `?sort`, else the view's `ordering`, else the model's.

    A cursor holds the values that its row is sorted by, the key last, so that a page begins after them whatever was
    added or removed meanwhile.
    """

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"
    page_size_query_description = "Rows per page, 1 to 200."
    cursor_query_description = "Taken from `next` or `previous` of another page."
    sort_query_param = "sort"

    def get_page_size(self, request: Request) -> int:
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        return parse_whole_number(text, self.page_size_query_param, 1, self.max_page_size)

    def paginate_queryset(self, queryset: QuerySet, request: Request, view: Any = None) -> list[Any]:
        size = self.get_page_size(request)
        self.base_url = request.build_absolute_uri()
        self.terms = self._terms(request, queryset, view)
        # signed, so that its values are of this list's columns: a made-up one could hold anything
        self.signer = signing.Signer(sep=".", salt=f"cursor of {queryset.model._meta.label}")
        turned, position = self._cursor(request)
        ordered = queryset.order_by(*(term.expression(turned=turned) for term in self.terms))
        rows = list(ordered.filter(self._beyond(position, turned))[: size + 1] if position else ordered[: size + 1])
        more, page = len(rows) > size, rows[:size]
        self.page = page[::-1] if turned else page
        self.has_next, self.has_previous = (bool(position), more) if turned else (more, bool(position))
        return self.page

    def get_next_link(self) -> str | None:
        return self._link(self.page[-1], turned=False) if self.has_next and self.page else None

    def get_previous_link(self) -> str | None:
        return self._link(self.page[0], turned=True) if self.has_previous and self.page else None

    def get_paginated_response_schema(self, schema: dict[str, object]) -> dict[str, object]:
        link = {"type": ["string", "null"], "format": "uri"}
        properties = {"next": link, "previous": link, "results": schema}
        return {"type": "object", "required": list(properties), "properties": properties}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        sorts = _sorts(view)
        description = f"Comma-separated, - before a name turns it round: {', '.join(sorts)}."
        sort = {"name": self.sort_query_param, "in": "query", "required": False, "description": description}
        paging = super().get_schema_operation_parameters(view)
        return [*paging, *([{**sort, "schema": {"type": "string"}}] if sorts else [])]

    def _terms(self, request: Request, queryset: QuerySet, view: Any) -> list[_SortTerm]:
        asked = [name for text in request.query_params.getlist(self.sort_query_param) for name in text.split(",")]
        if asked:
            sorts = _sorts(view)
            faults = _sort_faults(asked, list(sorts))
            if faults:
                raise Malformed(f"sort: {faults[0]}.", [("sort", fault) for fault in faults])
            fields = [f"{'-' if name.startswith('-') else ''}{sorts[name.removeprefix('-')]}" for name in asked]
        else:
            default = getattr(view, "ordering", None) or queryset.query.order_by or queryset.model._meta.ordering
            fields = [default] if isinstance(default, str) else list(default)
        if not {"pk", "-pk", "id", "-id"} & set(fields):
            fields.append("pk")
        return [_sort_term(queryset.model, field) for field in fields]

    def _order_name(self) -> str:
        return ",".join(f"{'-' if term.descends else ''}{term.path}" for term in self.terms)

    def _cursor(self, request: Request) -> tuple[bool, list[Any] | None]:
        text = request.query_params.get(self.cursor_query_param)
        if text is None:
            return False, None
        try:
            order, turned, values = self.signer.unsign_object(text)
        except (signing.BadSignature, ValueError):
            raise _not_a_cursor() from None
        if order != self._order_name():
            raise _not_a_cursor()
        return turned, values

    def _beyond(self, position: Sequence[Any], turned: bool) -> Q:
        """Rows after a position: beyond it by a term, and equal by all terms before that."""
        after, equal = Q(pk__in=[]), Q()
        for term, value in zip(self.terms, position, strict=True):
            beyond = term.beyond(value, turned=turned)
            after = after if beyond is None else after | (equal & beyond)
            equal &= term.equal(value)
        return after

    def _link(self, row: Model, *, turned: bool) -> str:
        values = [_plain(_value_of(row, term.path)) for term in self.terms]
        cursor = self.signer.sign_object([self._order_name(), turned, values])
        return replace_query_param(self.base_url, self.cursor_query_param, cursor)


def _sort_term(model: type[Model], field: str) -> _SortTerm:
    path = field.removeprefix("-")
    return _SortTerm(path, field.startswith("-"), is_nullable(model, path, otherwise=True))


def _not_a_cursor() -> Malformed:
    message = "not a cursor of this list in this order; take it from `next` or `previous`"
    return Malformed(f"cursor: {message}.", [("cursor", message)])


def _sorts(view: Any) -> dict[str, str]:
    """Names that the list of a view can be sorted by, with their paths."""
    return dict(getattr(getattr(view, "filterset_class", None), "sorts", {}))


def _sort_faults(asked: list[str], allowed: list[str]) -> list[str]:
    names = [name.removeprefix("-") for name in asked]
    unknown = [f"{name!r}: {unknown_message(name, allowed, 'name')}" for name in names if name not in allowed]
    twice = [f"{name!r} is given twice" for name in sorted({name for name in names if names.count(name) > 1})]
    return unknown + twice


def is_nullable(model: type[Model], path: str, *, otherwise: bool) -> bool:
    """Whether a row may have no value at a path of the ORM; `otherwise` for what is no column."""
    current: Any = model
    for part in path.split("__"):
        if part == "pk":
            continue
        try:
            field = current._meta.get_field(part)
        except FieldDoesNotExist:
            return otherwise
        if getattr(field, "null", True):
            return True
        current = field.related_model or current
    return False


def _value_of(row: Any, path: str) -> Any:
    for part in path.split("__"):
        row = getattr(row, part, None)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID | Decimal) else value


class StrictFilterBackend(DjangoFilterBackend):
    """Filters of lists. A misspelt one is refused, which would otherwise silently select everything.

    A view names further parameters that its list reads in `query_parameters`, and actions that choose rows as the
    list does in `list_actions`.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet, view: Any) -> QuerySet:
        is_list = getattr(view, "action", None) in getattr(view, "list_actions", ("list",))
        return self.filter_list(request, queryset, view) if is_list else queryset

    def filter_list(self, request: Request, queryset: QuerySet, view: Any) -> QuerySet:
        """The rows that pass; for an action whose list is of other rows than the view's own."""
        filterset = self.get_filterset_class(view, queryset)
        faults = _parameter_faults(request.query_params, filterset, getattr(view, "query_parameters", ()))
        if faults:
            raise Malformed(f"{faults[0][0]}: {faults[0][1]}", faults)
        chosen = self.get_filterset(request, queryset, view)
        if chosen is None:
            return queryset
        if not chosen.is_valid():  # the base class formats messages, whose values may hold a %
            raise ValidationError(chosen.errors.as_data())
        return chosen.qs


def _parameter_faults(
    given: Sequence[str], filterset: type[ListFilter] | None, further: Sequence[str]
) -> list[tuple[str, str]]:
    known = set(filterset.base_filters) if filterset else set()
    fields = list(filterset.declared_filters) if filterset else []
    paging = [CursorPagination.cursor_query_param, CursorPagination.page_size_query_param]
    sort = [CursorPagination.sort_query_param] if filterset and filterset.sorts else []
    allowed = [*fields, *further, *sort, *paging]
    faults = []
    for name in given:
        field, _, operator = name.partition("__")
        if name in known or name in allowed:
            continue
        if operator and field in fields and filterset:
            operators = ", ".join(f"{field}__{known}" for known in filterset.declared_filters[field].operators)
            faults.append((name, f"unknown operator; allowed are {field}{', ' if operators else ''}{operators}"))
        else:
            faults.append((name, unknown_message(name, allowed, "parameter")))
    return faults


class FilterParameters(OpenApiFilterExtension):
    """Filters of a list in the API's description."""

    target_class = StrictFilterBackend
    priority = 1

    def get_schema_operation_parameters(self, auto_schema: Any, *args: Any, **kwargs: Any) -> list[dict[str, object]]:
        filterset = getattr(auto_schema.view, "filterset_class", None)
        if filterset is None:
            return []
        return [_parameter(name, row) for name, row in filterset.base_filters.items()]


def _parameter(name: str, row: Any) -> dict[str, Any]:
    schema = {"type": "array", "items": row.schema} if row.many else row.schema
    description = {"description": row.label} if row.label else {}
    return {"name": name, "in": "query", "required": False, "schema": schema, **description}
