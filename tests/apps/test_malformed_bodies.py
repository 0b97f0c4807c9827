"""Malformed bodies are taken or refused by their fields: never an error of the server."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.core.counters import TokenRateThrottle
from apps.planning.placement_search import PLACEMENT
from apps.planning.scenarios import scenario_create
from apps.reports.services import definition_create, schedule_set, webhook_create
from tests.apps.small_cluster import run_jobs, small_cluster, start_query, user

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

ODD = [None, -1, 1e308, "a\nb", [{}]]
RULE = {"every": "week", "days": ["mon"], "at": "07:00"}
CHANGES = [{"scale_source": "*", "by": 1.6}, {"add_nodes": 1, "like": "a"}, {"resize_pool": "pool", "nodes": 4}]
TYPE = {"name": "t", "capacity_cps": 1000.0, "cores": 1, "price_per_hour": 1.0, "max": 4}


@pytest.fixture
def requests() -> list[tuple[str, str, dict[str, Any]]]:
    """One right body for each address that takes one."""
    cluster = small_cluster(nodes=("a", "b", "c"))
    query = start_query(cluster, "first", 0.7, "a")
    start_query(cluster, "second", 0.6, "a")
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.2)
    run_jobs()
    hook = webhook_create(cluster=cluster, name="hook", url="https://example.org/x")
    definition = definition_create(cluster=cluster, kind="provisioning", name="Weekly")
    schedule = schedule_set(definition=definition, rule=RULE, time_zone="UTC")
    scenario = scenario_create(cluster=cluster, name="More", user=None, changes=CHANGES)

    of = {"cluster": "little"}
    limits = {"pin": {"first/work": "a"}, "forbid": {"second/work": ["a"]}, "max_moves": 2, "may_split": ["first/work"]}
    report = {
        **of,
        "kind": "provisioning",
        "name": "Other",
        "parameters": {"sections": ["fleet"], "horizon_days": 7, "growth": 0.5},
        "formats": ["pdf"],
        "emails": ["a@example.org"],
        "webhooks": [str(hook.pk)],
    }
    rules = {"admission": "mace", "at_risk": "admit", "assumed": "review", "headroom": 0.1, "placement": "greedy"}
    now = timezone.now()
    period = {"since": (now - timedelta(days=3)).isoformat(), "until": now.isoformat()}
    sweep = {"factor": 1.2, "sources": {"clicks": 1.1}, "pool": "pool", "sizes": [2], "bound_s": 4.0, "lose_one": True}
    mix = {"types": [TYPE], "lose_one": True, "headroom_s": 0.1}
    asked = {**of, "changes": CHANGES, "find": "compare", "options": {"seed": 1, "flow": True}}
    kept = {**of, "name": "Mine", "changes": CHANGES, "place": "fill"}
    load = {"peak_rate_eps": 900, "weeks": 2}
    return [
        ("POST", "placements", {**of, "algorithm": "search", "budget_s": 1.0, "seed": 0, "constraints": limits}),
        ("POST", f"placements/{run.pk}/apply", {"pace": 1.0, "batch_size": 5}),
        ("POST", f"queries/{query.pk}/plans", {"versions": [1], "capacity_cps": 1000.0, "hop_cycles": 0.0}),
        ("POST", f"queries/{query.pk}/plans/adopt", {"plan": "v1", "comparison": str(run.pk)}),
        ("POST", "report-definitions", report),
        ("PATCH", f"report-definitions/{definition.pk}", {"name": "Weekly", "formats": ["csv"], "enabled": True}),
        ("POST", "report-schedules", {"definition": definition.pk, "rule": RULE, "time_zone": "UTC"}),
        ("PATCH", f"report-schedules/{schedule.pk}", {"rule": RULE, "time_zone": "UTC"}),
        ("POST", "webhooks", {**of, "name": "other", "url": "https://example.org/x"}),
        ("PATCH", f"webhooks/{hook.pk}", {"name": "hook", "url": "https://example.org/y"}),
        ("POST", "scenarios", kept),
        ("PATCH", f"scenarios/{scenario.pk}", kept),
        ("POST", "what-ifs", asked),
        ("POST", "what-ifs", {**of, "scenarios": [scenario.pk, {"name": "x", "changes": CHANGES, "place": "keep"}]}),
        ("POST", "what-ifs", {**of, "find": "cheapest_mix", "options": mix}),
        ("POST", "what-ifs/sweep", {**of, "options": sweep}),
        ("POST", "load-histories", {**of, "source_id": "clicks", "bucket_s": 3600, "replace": True, "generator": load}),
        ("POST", "forecasts", {**of, "horizon_days": 7, "seed": 0}),
        ("POST", "backtests", {**of, **period, "policy": {**rules, "max_moves": 2}, "ask": "start"}),
        ("POST", f"node-pools/{cluster.pools.get().pk}/plan", {"count": 1}),
    ]


def test_no_odd_body_is_an_error_of_the_server(
    requests: list[tuple[str, str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "django.request")
    monkeypatch.setattr(TokenRateThrottle, "allow_request", lambda *_: True)
    api = APIClient(raise_request_exception=False)
    api.force_authenticate(user(Role.ADMIN))
    bad, refused = [], 0
    for method, path, right in requests:
        for body in (right, *odd_bodies(right)):
            answer = api.generic(method, f"/api/v1/{path}", json.dumps(body), content_type="application/json")
            refused += answer.status_code == 400
            if answer.status_code >= 500:
                bad.append((method, path, body, answer.status_code))
    assert not bad
    assert refused > 250


def odd_bodies(right: dict[str, Any]) -> Iterator[Any]:
    """The body with one part at a time replaced, left out, or joined by one that nobody knows."""
    for path in places(right):
        for value in ODD:
            yield changed(right, path, value)
        if path:
            yield changed(right, path)
    yield {**right, "unheard_of": 1}


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
        yield from places(part[key], (*path, key))


def changed(whole: Any, path: tuple[Any, ...], *value: Any) -> Any:
    """A copy with the part at `path` replaced by `value`, or left out without one."""
    if not path:
        return value[0]
    found = copy.deepcopy(whole)
    part = found
    for key in path[:-1]:
        part = part[key]
    if value:
        part[path[-1]] = value[0]
    else:
        del part[path[-1]]
    return found
