"""Sources and static tables: judged by the rules that agents and pipelines judge them by."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.apps.domain import make_cluster
from tests.apps.telemetry.world import COLUMNS, SOURCE

pytestmark = pytest.mark.django_db

PRODUCED = {"kind": "producer", "time": "ts", "columns": {"ts": "timestamp", "n": "int64"}}
TABLE = {
    "cluster": "eu-1",
    "name": "tor_of",
    "columns": {"tor": "string", "ip": "string"},
    "rows": [["t1", "10.0.0.1"]],
}


def test_sources_are_created_listed_changed_and_deleted(api: APIClient) -> None:
    make_cluster()
    made = api.post("/api/v1/telemetry-sources", {"cluster": "eu-1", "source_id": "probes", **SOURCE}, format="json")
    assert made.status_code == 201, made.json()
    path, seen = made["Location"], api.get(made["Location"])
    changed = api.patch(path, {"lateness_s": 2.5}, format="json", headers={"If-Match": seen["ETag"]})
    assert (changed.status_code, changed.json()["lateness_s"]) == (200, 2.5)
    assert changed.json()["options"] == SOURCE["options"]
    assert api.patch(path, {"lateness_s": 3}, format="json", headers={"If-Match": seen["ETag"]}).status_code == 412
    assert api.patch(path, {"source_id": "other"}, format="json").status_code == 400
    again = api.post("/api/v1/telemetry-sources", {"cluster": "eu-1", "source_id": "probes", **SOURCE}, format="json")
    assert again.status_code == 409
    assert [row["source_id"] for row in api.get("/api/v1/telemetry-sources?cluster=eu-1").json()["results"]] == [
        "probes"
    ]
    assert api.delete(path).status_code == 204


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"kind": "carrier_pigeon"}, "kind"),
        ({"options": {"interval": 1}}, "options.interval"),
        ({"options": {"interval_s": 0}}, "options.interval_s"),
        ({"options": {"peers": [{"address": "nowhere"}]}}, "options.peers[0].address"),
        ({"options": []}, "options"),
        ({"time": "when"}, "time"),
        ({"time": "rtt_us"}, "time"),
        ({"columns": {}}, "columns"),
        ({"columns": [1]}, "columns"),
        ({"columns": {**COLUMNS, "more": "string"}}, "columns.more"),
        ({"columns": {**COLUMNS, "rtt_us": "int128"}}, "columns.rtt_us"),
        ({"columns": {**COLUMNS, "rtt us": "int64"}}, "columns.rtt us"),
        ({"lateness_s": -1}, "lateness_s"),
        ({"source_id": "a b"}, "source_id"),
        ({**PRODUCED, "options": {"x": 1}}, "options"),
        ({**PRODUCED, "options": {}, "time": "n"}, "time"),
    ],
)
def test_faults_of_a_source_name_their_field(api: APIClient, change: dict[str, Any], path: str) -> None:
    make_cluster()
    wanted = {"cluster": "eu-1", "source_id": "probes", **SOURCE, **change}
    answer = api.post("/api/v1/telemetry-sources", wanted, format="json")
    assert answer.status_code == 400, answer.json()
    assert path in {fault["path"] for fault in answer.json()["faults"]}, answer.json()["faults"]


def test_source_of_a_producer_has_any_columns(api: APIClient) -> None:
    make_cluster()
    wanted = {"cluster": "eu-1", "source_id": "clicks", **PRODUCED}
    assert api.post("/api/v1/telemetry-sources", wanted, format="json").status_code == 201


def test_static_tables_are_created_changed_and_deleted(api: APIClient) -> None:
    make_cluster()
    made = api.post("/api/v1/static-tables", TABLE, format="json")
    assert made.status_code == 201, made.json()
    assert made.json()["order"] == ["tor", "ip"]
    path = made["Location"]
    changed = api.patch(path, {"rows": [["t1", "10.0.0.1"], ["t2", None]]}, format="json")
    assert (changed.status_code, len(changed.json()["rows"])) == (200, 2)
    assert changed.json()["digest"] != made.json()["digest"]
    turned = api.patch(path, {"order": ["ip", "tor"], "rows": [["10.0.0.1", "t1"]]}, format="json")
    assert turned.json()["order"] == ["ip", "tor"]
    assert api.post("/api/v1/static-tables", TABLE, format="json").status_code == 409
    assert api.delete(path).status_code == 204


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"rows": [["t1"]]}, "rows[0]"),
        ({"rows": [["t1", "x"], ["t2", 5]]}, "rows[1]"),
        ({"rows": "x"}, "rows"),
        ({"rows": [1]}, "rows[0]"),
        ({"columns": {"tor": "text", "ip": "string"}}, "columns.tor"),
        ({"columns": []}, "columns"),
        ({"order": ["tor"]}, "order"),
        ({"order": ["tor", "tor"]}, "order"),
        ({"columns": {"n": "int64"}, "rows": [[True]]}, "rows[0]"),
        ({"columns": {"n": "int64"}, "rows": [[2**63]]}, "rows[0]"),
        ({"columns": {"n": "timestamp"}, "rows": [["yesterday"]]}, "rows[0]"),
        ({"name": "A B"}, "name"),
    ],
)
def test_faults_of_a_static_table_name_their_row(api: APIClient, change: dict[str, Any], path: str) -> None:
    make_cluster()
    answer = api.post("/api/v1/static-tables", {**TABLE, **change}, format="json")
    assert answer.status_code == 400, answer.json()
    assert any(fault["path"].startswith(path) for fault in answer.json()["faults"]), answer.json()["faults"]
