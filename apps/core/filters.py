"""Query parameters of lists: known ones filter, unknown ones are an error."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.request import Request

from apps.core.errors import Malformed
from apps.core.serializers import unknown_message

__all__ = ["StrictFilterBackend"]

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
