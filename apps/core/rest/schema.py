"""OpenAPI description: conventions that all operations share, and the index of `/api/v1/`."""

from __future__ import annotations

from typing import Any

from django.urls import NoReverseMatch, get_resolver, reverse
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.problem_details import PROBLEM_JSON
from apps.core.rest.problems import ProblemDetailsSerializer

__all__ = ["ApiIndex", "ApiSchema", "describe_conventions"]


_REFUSED = OpenApiResponse(
    ProblemDetailsSerializer,
    "Refused: 400 malformed, 401, 403, 404, 409 stale or conflicting, 412, 413, 422, 429, 503.",
)


class ApiSchema(AutoSchema):
    """Description of one operation."""

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies = super()._get_response_bodies(direction)
        bodies["default"] = self._get_response_for_code(_REFUSED, "default", [PROBLEM_JSON], direction)
        return bodies


_HEADERS = {
    "post": ("Idempotency-Key", "The same key with the same request replays the first answer, for 24 hours."),
    "put": ("If-Match", "ETag of the state you have read; 412 if it has changed since."),
    "patch": ("If-Match", "ETag of the state you have read; 412 if it has changed since."),
    "delete": ("If-Match", "ETag of the state you have read; 412 if it has changed since."),
}


def describe_conventions(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """drf-spectacular's POSTPROCESSING_HOOKS entry."""
    for operations in result["paths"].values():
        for method, operation in operations.items():
            if method in _HEADERS:
                name, text = _HEADERS[method]
                header = {"name": name, "in": "header", "required": False, "description": text}
                operation.setdefault("parameters", []).append({**header, "schema": {"type": "string"}})
    return result


_ADDRESSES = {"type": "object", "additionalProperties": {"type": "string"}}


class ApiIndex(APIView):
    """The resources of the API with their addresses, its description and its documentation."""

    @extend_schema(operation_id="index", responses={(200, "application/json"): _ADDRESSES})
    def get(self, request: Request) -> Response:
        addresses = {}
        for name in get_resolver().reverse_dict:
            if not isinstance(name, str) or not name.endswith("-list"):
                continue
            try:
                path = reverse(name)
            except NoReverseMatch:  # below a resource, such as a query's versions
                continue
            addresses[path.removeprefix("/api/v1/")] = path
        return Response({**dict(sorted(addresses.items())), "schema": "/api/schema/", "docs": "/api/docs/"})
