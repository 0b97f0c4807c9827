"""`./sluice remedies` and `./sluice evacuate`: what helps, what emptying nodes takes, and what a pipeline stops at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.cli import main
from tests.client.fake_console import FakeConsole, Reply, fake_console

FOUND = "GET /api/v1/queries?cluster=prod&name=orders"
REMEDIES, EVACUATIONS = "POST /api/v1/queries/7/remedies", "POST /api/v1/evacuations"
MOVE: dict[str, Any] = {
    "id": "move-1", "kind": "move", "title": "Move orders/count to core 0 of n2", "estimate_s": 0.4, "low_s": 0.2,
    "high_s": 0.9, "state": "holds", "won_s": None, "ready_s": None, "cost": "Nothing to buy.",
    "risk": "orders pauses for a moment.", "breaks": [],
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "state": "breached", "words": "One remedy keeps the objective of orders.", "unknown": [], "remedies": [MOVE],
    "tried": [{"kind": "add_node", "why": "none is needed."}],
}  # fmt: skip
STEP: dict[str, Any] = {
    "nodes": ["n9"], "refusal": None, "unknown": ["orders/count"],
    "moves": [{"operator": "orders/count", "from": [{"node": "n9", "core": 0}], "to": [{"node": "n2", "core": 1}],
               "duration_s": 0.0}],
    "queries": [{"query": "orders", "after_s": None, "after_state": "breached"}],
    "delays": [{"query": "shares", "bound_s": 2.0, "late_s": None}],
    "losses": [{"node": "n3", "breaks": ["shares"], "risks": []}],
}  # fmt: skip
RUN: dict[str, Any] = {
    "id": "e1", "cluster": "prod", "nodes": ["n9"], "obstacle": "", "load": "At the present load.",
    "facts": {"possible": True, "moves": 1, "needed_s": 20.0, "breaks": [], "risks": [], "late": []},
    "steps": [{"number": 1, "nodes": ["n9"], "state": "waiting"}], "plan": {"steps": [STEP]},
}  # fmt: skip


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeConsole]:
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        running.replies = {FOUND: [Reply(200, {"results": [{"id": 7}]})]}
        yield running


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 0),
        ({"state": "holds", "remedies": []}, 0),
        ({"remedies": [MOVE | {"breaks": ["shares"]}]}, 3),
        ({"remedies": [MOVE | {"state": "at_risk"}]}, 3),
        ({"unknown": ["The cost of count is not known."]}, 4),
        ({"state": "unknown", "remedies": []}, 4),
    ],
)
def test_remedies_pass_where_one_is_enough_or_none_is_needed(
    console: FakeConsole, changes: dict[str, Any], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    console.replies[REMEDIES] = [Reply(200, {"answer": ANSWER | changes, "at_load": None, "is_stale": False})] * 2
    assert main(["remedies", "orders", "--cluster", "prod", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["exit_status"] == status
    main(["remedies", "orders", "--cluster", "prod"])
    text = capsys.readouterr().out
    assert ANSWER["words"] in text and "Add node: none is needed." in text


def test_remedy_is_previewed_at_its_page(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    console.replies[f"{REMEDIES}/preview"] = [Reply(200, {"page": "/c/prod/placement/p1/", "address": "/api/v1/x"})]
    assert main(["remedies", "orders", "--cluster", "prod", "--preview", "move-1"]) == 0
    assert f"{console.url}/c/prod/placement/p1/" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "arguments", "status"),
    [
        ({}, [], 0),
        ({"obstacle": "The time is too short."}, ["--accept-late"], 3),
        ({"facts": RUN["facts"] | {"possible": False}}, ["--accept-late"], 3),
        ({"facts": RUN["facts"] | {"breaks": ["orders"]}}, [], 3),
        ({"facts": RUN["facts"] | {"late": ["orders"]}}, [], 4),
        ({"facts": RUN["facts"] | {"risks": ["orders"]}}, [], 4),
        ({"facts": RUN["facts"] | {"breaks": ["orders"]}}, ["--accept-late"], 0),
    ],
)
def test_evacuation_passes_where_nobody_is_late_and_only_then_is_confirmed(
    console: FakeConsole, changes: dict[str, Any], arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    console.replies[EVACUATIONS] = [Reply(200, RUN | changes)]
    console.replies[f"{EVACUATIONS}/e1/confirm"] = [Reply(200, RUN | changes | {"state": "scheduled"})]
    asked = ["evacuate", "n9", "--cluster", "prod", "--from", "2026-03-01T22:00+01:00", "--confirm", *arguments]
    assert main([*asked, "--json"]) == status
    answer = json.loads(capsys.readouterr().out)
    assert (answer["evacuation"].get("state") == "scheduled") is (status == 0)
    assert console.url in answer["url"]


def test_evacuation_says_what_moves_and_what_is_not_known(
    console: FakeConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    late = {"facts": RUN["facts"] | {"breaks": ["orders"], "late": ["shares"]}}
    console.replies[EVACUATIONS] = [Reply(200, RUN | late)]
    assert main(["evacuate", "n9", "--cluster", "prod"]) == 3
    text = capsys.readouterr().out
    for part in (
        "orders and shares would or may be late",
        "at least 20\u00a0s, an estimate",
        "n9#0  n2#1  not known",
        "shares is late while operators move: not known how long",
        "orders expected late with the nodes away: never catches up",
        "losing n3 as well: breaks shares",
    ):
        assert part in text


@pytest.mark.parametrize("arguments", [["--from", "tonight"], ["--order", "domain"], ["--domain", "rack"]])
def test_wrong_usage_is_refused(console: FakeConsole, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["evacuate", "n9", "--cluster", "prod", *arguments])
    assert refused.value.code == 2
