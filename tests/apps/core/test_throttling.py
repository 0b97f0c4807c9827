"""Who counts as one caller."""

from __future__ import annotations

from django.test import RequestFactory
from rest_framework.request import Request

from apps.core.throttling import TokenRateThrottle


def test_a_header_of_the_caller_makes_no_other_caller() -> None:
    """uvicorn sets REMOTE_ADDR from proxies it trusts; what else a header says is the caller's own invention."""
    requests = [
        Request(RequestFactory().get("/api/v1/", REMOTE_ADDR="10.0.0.9", HTTP_X_FORWARDED_FOR=told))
        for told in ("1.2.3.4", "5.6.7.8, 1.2.3.4")
    ]
    assert len({TokenRateThrottle().get_cache_key(request, None) for request in requests}) == 1
