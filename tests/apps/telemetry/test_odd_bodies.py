"""Any body of telemetry is accepted or refused by its fields."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.core.counters import TokenRateThrottle
from apps.telemetry.agent_services import enrolment_create
from tests.apps.telemetry.world import SOURCE, enrolled, live_at, probing, running
from tests.apps.test_malformed_bodies import odd_bodies

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_odd_body_never_returns_500(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(TokenRateThrottle, "allow_request", lambda *_: True)
    live, (joined,) = live_at(probing(), "a1")
    cluster = live.query.cluster
    running(cluster, name="second")
    enrolled(cluster, "a2")
    _, token = enrolment_create(cluster=cluster, user=None, uses=1000)
    of = {"cluster": "eu-1"}
    part = {"agent": "a1", "settings": {"method": "fixed", "load_factors": [1, 1, 0.5]}, "weight": 1.5, "enabled": True}
    rows = {"columns": {"ip": "string", "n": "int64"}, "order": ["ip", "n"], "rows": [["a", 1]]}
    changes = {"budget_cores": 0.3, "node": "n1", "source_options": {"probes": {"interval_s": 2.0}}, "listen": ""}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "enrolment-tokens", {**of, "uses": 2, "note": "x", "networks": ["10.0.0.0/8"]}),
        ("POST", "agents/enrol", {"token": token, "name": "a9", "host": "h", "cores": 2, "capacity_cps": 1e9}),
        ("PATCH", f"agents/{joined.agent.pk}", changes),
        ("POST", "telemetry-sources", {**of, "source_id": "more", **SOURCE}),
        ("POST", "static-tables", {**of, "name": "t", **rows}),
        ("PATCH", f"live-queries/{live.pk}", {"retain_s": 60, "idle_after_s": 30, "assignments": [part]}),
        (
            "POST",
            "live-queries",
            {**of, "query": "second", "agents": ["a2"], "settings": {"margin": 0.9}},
        ),
    ]
    bad, refused = [], 0
    for method, path, right in requests:
        for body in odd_bodies(right):
            answer = api.generic(method, f"/api/v1/{path}", json.dumps(body), content_type="application/json")
            refused += answer.status_code == 400
            if answer.status_code >= 500:
                bad.append((method, path, body, answer.status_code))
    assert not bad
    assert refused > 100
