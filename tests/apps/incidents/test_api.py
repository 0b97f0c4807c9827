"""Incidents over REST: lists, one with its timeline, acknowledging, routing, retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.incidents.models import Incident
from apps.incidents.refresh import CLEAR_S
from apps.incidents.services import incident_routing_update, incidents_purge
from apps.reports.models import Webhook
from tests.apps.incidents.states import BEGIN, STARVED, STREAM, after, late, well

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


def test_incidents_are_listed_and_filtered(cluster: Cluster, api: APIClient) -> None:
    late(cluster, "one", STREAM)
    late(cluster, "two", STREAM)
    late(cluster, "three", STARVED, "at_risk")
    after(cluster, 0)
    rows = api.get(f"/api/v1/incidents?cluster={cluster.slug}&severity=critical").json()["results"]
    assert [(row["title"], row["query_count"], row["late_count"]) for row in rows] == [
        ("The stream processor is behind", 2, 2)
    ]
    assert rows[0]["cause"]["words"].startswith("The stream processor is 71")
    for question, count in (("query=two", 1), ("cause=agent_starved&subject=agent-3", 1), ("acknowledged=true", 0),
                            ("state=resolved", 0), (f"opened_at__gte={BEGIN:%Y-%m-%dT%H:%M:%SZ}", 2)):  # fmt: skip
        assert len(api.get(f"/api/v1/incidents?{question}").json()["results"]) == count, question


def test_one_is_shown_with_its_timeline_and_acknowledged(cluster: Cluster, api: APIClient) -> None:
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    answer = api.post(f"/api/v1/incidents/{incident.pk}/acknowledge", {"note": "restarting it"}, format="json").json()
    assert answer["note"] == "restarting it" and answer["acknowledged_at"]
    assert [event["kind"] for event in answer["events"]] == ["opened", "joined", "acknowledged"]
    assert api.get(f"/api/v1/incidents/{incident.pk}").json()["deliveries"] == []


def test_routing_is_read_and_replaced(cluster: Cluster, api: APIClient) -> None:
    address = f"/api/v1/clusters/{cluster.slug}/incident-routing"
    assert api.get(address).json() == {"emails": [], "webhooks": [], "severity": "critical", "keep_days": 90}
    webhook = Webhook.objects.create(cluster=cluster, name="pager", url="https://a.example/", salt="s")
    said: dict[str, Any] = {
        "emails": ["ops@example.org"], "webhooks": [str(webhook.pk)], "severity": "warning", "keep_days": 7,
    }  # fmt: skip
    assert api.put(address, said, format="json").json() == said
    assert api.get(address).json() == said
    refused = api.put(address, {"emails": ["nobody"]}, format="json")
    assert refused.status_code == 400 and refused.json()["faults"][0]["path"] == "emails[0]"


def test_resolved_incidents_are_purged_by_their_clusters_setting(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    late(cluster, "two", STARVED)
    after(cluster, 0)
    well(cluster, "one")
    after(cluster, CLEAR_S)
    assert incidents_purge(BEGIN + timedelta(days=89)) == 0
    incident_routing_update(cluster=cluster, keep_days=7)
    assert incidents_purge(BEGIN + timedelta(days=8)) == 1
    assert Incident.objects.get().is_open, "an open one is never purged"
