"""`/api/v1/`: what there is."""

from __future__ import annotations

from django.urls import NoReverseMatch, get_resolver, reverse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

__all__ = ["ApiIndex"]

_ADDRESSES = {"type": "object", "additionalProperties": {"type": "string"}}


class ApiIndex(APIView):
    """The resources of the API with their addresses, its description and its documentation."""

    @extend_schema(operation_id="index", responses={(200, "application/json"): _ADDRESSES})
    def get(self, request: Request) -> Response:
        found = {}
        for name in get_resolver().reverse_dict:
            if not isinstance(name, str) or not name.endswith("-list"):
                continue
            try:
                path = reverse(name)
            except NoReverseMatch:  # below a resource, such as a query's versions
                continue
            found[path.removeprefix("/api/v1/")] = path
        return Response({**dict(sorted(found.items())), "schema": "/api/schema/", "docs": "/api/docs/"})
