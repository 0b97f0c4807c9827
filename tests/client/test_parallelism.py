"""`./sluice parallelism`: parallelisms side by side, an export, and beside a backlog when a query is back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.cli import main
from tests.client.fake_console import FakeConsole, Reply, fake_console

FOUND = "GET /api/v1/queries?cluster=prod&name=orders"
PLAN, BACKLOGS = "/api/v1/queries/7/parallelism", "GET /api/v1/queries/7/backlogs"
RESTART = {"low_s": 5.0, "high_s": 60.0, "basis": "assumed", "events": 4e3, "events_high": 9e3}
ONE: dict[str, Any] = {
    "parallelism": 1, "is_now": True, "state": "known", "rate_per_s": 500.0, "low_per_s": 480.0, "high_per_s": 520.0,
    "gain": 1.0, "gain_low": 1.0, "gain_high": 1.0, "slots": 1, "slots_short": 0, "skew": "not_keyed",
    "latency_state": "breached", "estimate_s": None, "breaks": [], "notes": [], "operators": {"orders/count": 1},
    "restart": {**RESTART, "low_s": 0.0, "high_s": 0.0, "back_s": None, "back_low_s": None, "back_high_s": None},
}  # fmt: skip
TWO: dict[str, Any] = ONE | {
    "parallelism": 2, "is_now": False, "rate_per_s": 1000.0, "low_per_s": 480.0, "gain": 2.0, "gain_high": 2.0,
    "skew": "assumed_even", "slots": 2, "latency_state": "at_risk", "estimate_s": 0.2, "breaks": ["payments"],
    "restart": {**RESTART, "back_s": 90.0, "back_low_s": 60.0, "back_high_s": None},
}  # fmt: skip
NINE = ONE | {"parallelism": 9, "is_now": False, "state": "no_slots", "rate_per_s": None, "gain": None, "slots": 9}
ANSWER: dict[str, Any] = {
    "query": "orders",
    "query_id": 7,
    "answered_at": "2026-01-01T10:00:00Z",
    "plan": {
        "words": "Parallelism 2 does if keys are even.",
        "recommended": 2,
        "is_if_even": True,
        "backlog": 1000.0,
        "choices": [ONE, TWO, NINE | {"slots_short": 5, "restart": None}],
        "autoscaler": None,
        "operators": [
            {"operator": "count", "parallelism": 1, "most": 128, "busy": 0.8, "autoscaler": 2, "feed": "keyed"}
        ],
        "notes": ["Key groups are as many as by default."],
    },
}


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeConsole]:
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        running.replies = {FOUND: [Reply(200, {"results": [{"id": 7}]})], f"POST {PLAN}": [Reply(200, ANSWER)]}
        yield running


def test_parallelisms_stand_side_by_side(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parallelism", "orders", "--cluster", "prod"]) == 4
    text = capsys.readouterr().out
    for part in (
        "if keys are even",
        "1.00 to 2.00",
        "10:01:30 (10:01:00 to never)",
        "5 slots short",
        "5-60 s, assumed",
    ):
        assert part in text
    assert "breaks payments" in text and "Key groups are as many" in text


@pytest.mark.parametrize(
    ("plan", "status"),
    [({"is_if_even": False}, 0), ({"recommended": None}, 3), ({"recommended": None, "choices": [NINE]}, 4)],
)
def test_exit_status_tells_whether_a_parallelism_does(
    console: FakeConsole, plan: dict[str, Any], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    console.replies[f"POST {PLAN}"] = [Reply(200, ANSWER | {"plan": ANSWER["plan"] | plan})]
    assert main(["parallelism", "orders", "--cluster", "prod", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["exit_status"] == status


def test_export_of_a_parallelism_is_printed_as_the_engine_takes_it(
    console: FakeConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    console.replies[f"GET {PLAN}/export?parallelism=2&format=json&part=patch"] = [Reply(200, {"spec": {}})]
    assert main(["parallelism", "orders", "--cluster", "prod", "--export", "2", "--part", "patch"]) == 0
    assert json.loads(capsys.readouterr().out) == {"spec": {}}


@pytest.mark.parametrize(
    "arguments",
    [["--partitions", "read"], ["--partitions", "read=0"], ["--parallelism", "0"], ["--export", "2", "--restart", "3"]],
)
def test_wrong_usage_is_refused(console: FakeConsole, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["parallelism", "orders", "--cluster", "prod", *arguments])
    assert refused.value.code == 2


def test_backlog_says_when_the_query_is_back_by_parallelism(
    console: FakeConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = {
        "from": "clicks",
        "operator": "read",
        "events": 1000.0,
        "behind_s": 10.0,
        "origin": "stated",
        "age_s": 1.0,
    }
    console.replies |= {BACKLOGS: [Reply(200, {"backlogs": [waiting]})], f"GET {PLAN}": [Reply(200, ANSWER)]}
    assert main(["backlog", "orders", "--cluster", "prod"]) == 0
    text = capsys.readouterr().out
    assert "As it is, it is never back, or nobody knows when." in text
    assert "Back at 10:01:30 (10:01:00 to never) with parallelism 2, if keys are even." in text
