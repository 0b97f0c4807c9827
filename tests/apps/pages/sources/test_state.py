"""The stream processor's state on its page, over REST and for Prometheus: the same figures, and empty states."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from agent.wire import broker
from apps.fleet.models import Cluster
from apps.telemetry.streams import stream_client
from apps.ui.numbers import seconds
from tests.apps.pages.html import body
from tests.clock import run_moment

pytestmark = pytest.mark.moment

PAGE = "/c/little/sources/state/"
REST = "/api/v1/stream-processor/state"
OPERATOR: dict[str, Any] = {"rows": 11, "updated_rows": 3, "memory_bytes": 2**20, "disk_bytes": 2**21, "commit_s": 0.25}
OPERATOR |= {"batches_since_snapshot": 4, "output_rows": 8, "commit_s_total": 1.5, "update_s": float("inf")}
SAID: dict[str, Any] = {
    "state": "ready",
    "batch": 7,
    "batch_s": 0.1,
    "trigger_s": 2.0,
    "behind_s": 0.5,
    "lag": {"0": 3, "1": 4},
    "progress": {
        "records": 900,
        "batch_s": 0.5,
        "records_total": 2_000_000,
        "operators": [OPERATOR | {"operator": "flows"}, {"operator": "generations", "rows": 5}],
    },
}
KEY = {"operator": "flows", "variable": "windows", "rows": 2, "bytes": 3_000}
READING: dict[str, Any] = {
    "read_at": run_moment().timestamp(),
    "took_s": 2.5,
    "batch": 6,
    "variables": [
        {"operator": "generations", "variable": "positions", "kind": "value", "keys": 2, "rows": 2, "bytes": 64},
        {"operator": "flows", "variable": "windows", "kind": "map", "keys": 30, "rows": 60, "bytes": 90_000},
    ],
    "keys": [KEY | {"key": f"little/q{i}|{'ab' * 32}|0"} for i in range(30)],
    "complete": True,
}


@pytest.fixture
def said(cluster: Cluster) -> None:
    broker.write_state(stream_client(), SAID, life_s=60)


def test_operators_and_batches_are_shown(browser: Client, said: None) -> None:
    html = body(browser.get(PAGE))
    assert html.index("generations") < html.index("flows"), "in the order of the data's way"
    assert "4 batches ago" in html
    assert "Not read yet" in html
    assert "If the checkpoint is lost" in html
    card = body(browser.get("/c/little/sources/")).split('id="t-stream"')[1].replace("\u00a0", " ")
    assert f"7, took {seconds(0.5)} of {seconds(2.0)} for 900 records".replace("\u00a0", " ") in card
    assert "16 rows, 2 MiB" in card
    assert PAGE in card


def test_page_says_when_the_stream_processor_is_away(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(PAGE))
    assert "No figures" in html
    assert "It does not report." in html


def test_reading_is_asked_for_and_shown_page_by_page(browser: Client, api: APIClient, said: None) -> None:
    client = stream_client()
    assert browser.post(f"{PAGE}read/").status_code == 302
    assert [broker.take_keyed_state_request(client) for _ in range(2)] == [True, False]
    assert api.post(REST).status_code == 200
    assert broker.take_keyed_state_request(client)
    assert api.get(REST).json()["reading"] is None
    broker.write_keyed_state(client, READING)
    first = body(browser.get(PAGE))
    assert "little/q0, plan abababab, shard 0" in first
    assert "1 to 20 of 30" in first
    assert "1 to 1 of" not in body(browser.get(f"{PAGE}?q=q29"))
    assert len(browser.get(f"{PAGE}?export=csv").content.decode().splitlines()) == 31
    answer = api.get(REST).json()
    assert answer["reading"]["variables"] == READING["variables"]
    assert answer["figures"]["operators"][1]["commit_s_total"] == 1.5
    assert answer["figures"]["operators"][1]["update_s"] is None
    broker.write_keyed_state(client, READING | {"variables": [], "keys": [], "fault": "the disk is gone"})
    assert "the disk is gone" in body(browser.get(PAGE))


def test_metrics_are_those_of_the_report(api: APIClient, said: None) -> None:
    answer = api.get("/api/v1/stream-processor/metrics", headers={"Accept": "text/plain;version=0.0.4, */*;q=0.1"})
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.content.decode().splitlines()
    assert "sluice_stream_ready 1.0" in lines
    assert "sluice_stream_records_total 2e+06" in lines
    assert "sluice_stream_backlog_frames 7.0" in lines
    assert 'sluice_stream_state_rows{operator="flows"} 11.0' in lines
    assert 'sluice_stream_state_commit_seconds_total{operator="flows"} 1.5' in lines
    assert "# TYPE sluice_stream_state_commit_seconds_total counter" in lines
    assert not any("inf" in line or "None" in line for line in lines)
