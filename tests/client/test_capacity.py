"""`./sluice capacity`: what a query and a cluster sustain, as text, as JSON and as an exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.cli import main
from tests.client.fake_console import FakeConsole, Reply, fake_console

FOUND = "GET /api/v1/queries?cluster=prod&name=orders"
QUERY, CLUSTER = "GET /api/v1/queries/7/capacity", "GET /api/v1/clusters/prod/capacity"
KNOWN: dict[str, Any] = {
    "state": "known",
    "now_per_s": 100.0,
    "rate_per_s": 150.0,
    "low_per_s": 147.0,
    "high_per_s": 153.0,
    "at_most_per_s": None,
    "factor": 1.5,
    "headroom_per_s": 50.0,
    "headroom_share": 0.5,
    "limit": {"server": "a", "operator": "orders/work"},
    "objectives_known": True,
    "objective": {"query": "orders", "factor": 1.4, "rate_per_s": 140.0, "words": "Keeps the worst case."},
    "busiest_share_per_s": 200.0,
    "words": "Sustains 150/s.",
}
UNKNOWN = KNOWN | {
    "state": "unknown", "rate_per_s": None, "factor": None, "headroom_per_s": None, "headroom_share": None,
    "at_most_per_s": 900.0, "objective": None, "low_per_s": None, "high_per_s": None, "words": "Not known.",
}  # fmt: skip


def answer(capacity: dict[str, Any]) -> dict[str, Any]:
    facts = {"cluster": "prod", "query": "orders", "estimated_at": "2026-01-01T10:00:05.123456Z", "is_stale": True}
    return facts | {"capacity": capacity, "saturation": "Saturates in 17 days."}


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeConsole]:
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        running.replies = {FOUND: [Reply(200, {"results": [{"id": 7}]})], QUERY: [Reply(200, answer(KNOWN))]}
        yield running


def test_capacity_of_a_query_is_told_in_full(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "orders", "--cluster", "prod"]) == 0
    text = capsys.readouterr().out
    for part in ("Sustains 150/s.", "50/s (+50 %)", "Keeps the worst case.", "200/s by the busiest", "changed since"):
        assert part in text
    assert "Saturates in 17 days." in text
    assert "2026-01-01 10:00:05 UTC; the" in text


@pytest.mark.parametrize(
    ("capacity", "status"),
    [
        (KNOWN | {"factor": 0.9, "headroom_per_s": -10.0, "headroom_share": -0.1}, 3),
        (KNOWN | {"objective": {"query": "orders", "factor": None, "words": "No rate"}}, 3),
        (UNKNOWN, 4),
        (KNOWN | {"objective": None, "unknown_objectives": [{"query": "orders", "words": "Not known."}]}, 4),
        (KNOWN | {"measured_s": 15.0}, 4),
        (KNOWN | {"objective": None, "objectives_known": False}, 4),
        (KNOWN | {"state": "nothing_arrives", "factor": None}, 4),
    ],
)
def test_exit_status_tells_headroom_from_none_and_unknown(
    console: FakeConsole, capacity: dict[str, Any], status: int
) -> None:
    console.replies[QUERY] = [Reply(200, answer(capacity))]
    assert main(["capacity", "orders", "--cluster", "prod", "--json"]) == status


def test_look_has_objectives_looked_at_now(console: FakeConsole) -> None:
    console.replies[QUERY.replace("GET", "POST")] = [Reply(200, answer(KNOWN))]
    assert main(["capacity", "orders", "--cluster", "prod", "--look"]) == 0
    with pytest.raises(SystemExit, match="2"):
        main(["capacity", "--cluster", "prod", "--look"])


def test_cluster_is_told_with_its_queries(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    queries = [
        {"query": "orders", "query_id": 7, "capacity": KNOWN},
        {"query": "new", "query_id": 8, "capacity": UNKNOWN},
    ]
    console.replies[CLUSTER] = [Reply(200, answer(KNOWN) | {"queries": queries, "more": 3})]
    assert main(["capacity", "--cluster", "prod"]) == 4
    text = capsys.readouterr().out
    assert "147/s to 153/s" in text and "unknown, at most 900/s" in text and "3 more" in text


def test_query_that_is_not_there_is_named(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    console.replies[FOUND] = [Reply(200, {"results": []})]
    assert main(["capacity", "orders", "--cluster", "prod", "--json"]) == 1
    assert "no query 'orders'" in json.loads(capsys.readouterr().out)["error"]["detail"]
