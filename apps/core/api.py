"""What every REST view shares, in one place to import from."""

from __future__ import annotations

from rest_framework.routers import SimpleRouter

from apps.core.etags import EtagMixin, etag_of
from apps.core.idempotency import IdempotentMixin
from apps.core.pagination import CursorPagination
from apps.core.parsers import StrictJSONParser
from apps.core.problems import exception_handler
from apps.core.serializers import StrictModelSerializer, StrictSerializer
from apps.core.throttling import TokenRateThrottle
from apps.core.waiting import job_response, prefer_wait

__all__ = [
    "ApiMixin",
    "CursorPagination",
    "EtagMixin",
    "IdempotentMixin",
    "Router",
    "StrictJSONParser",
    "StrictModelSerializer",
    "StrictSerializer",
    "TokenRateThrottle",
    "etag_of",
    "exception_handler",
    "job_response",
    "prefer_wait",
]


class ApiMixin(IdempotentMixin, EtagMixin):
    """First base of every viewset: idempotent POSTs, ETags. `class NodeViewSet(ApiMixin, ModelViewSet)`."""


class Router(SimpleRouter):
    """Addresses without a slash at their end: `/api/v1/jobs/{id}`."""

    def __init__(self) -> None:
        super().__init__(trailing_slash=False)
