"""`./sluice policy`: shown, checked, previewed and applied, each with its exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.cli import main
from tests.client.fake_console import FakeConsole, Reply, fake_console

PATH = "/api/v1/clusters/prod/policy"
SHOWN = {"version": 3, "policy": {"margin": 0.1}, "note": "", "created_by": None, "created_at": None, "is_new": True}
CHECKED = {"base": 3, "differences": [{"path": "margin", "before": 0.1, "after": 0.2}]}
ROW = {
    "id": "7",
    "query": "orders",
    "version": 2,
    "decided_at": "2026-03-01T10:00:00Z",
    "then": "admit",
    "now": "reject",
}
PREVIEW = {
    "decisions": 6, "replayed": 5, "otherwise": 1, "left_out": 0, "lacking": ["1 decision: it waited"],
    "listed": [ROW | {"because": "Nothing starts during sale"}],
}  # fmt: skip


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConsole]:
    replies = {
        f"GET {PATH}": [Reply(200, SHOWN)],
        f"POST {PATH}/check": [Reply(200, CHECKED)],
        f"POST {PATH}/preview": [Reply(200, PREVIEW)],
        f"PUT {PATH}": [Reply(200, SHOWN)],
    }
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        running.replies = replies
        yield running


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text("margin: 0.2\n")
    return str(path)


@pytest.mark.parametrize(
    ("act", "status", "parts"),
    [
        ("check", 0, ["it differs from version 3 in 1 field"]),
        ("diff", 4, ["margin  0.1       0.2"]),
        ("preview", 4, ["1 of 5 decisions", "Not replayed: 1 decision: it waited.", "orders v2  admit  reject"]),
        ("apply", 0, ["Version 3 is in force."]),
    ],
)
def test_a_file_is_asked_about(
    console: FakeConsole, file: str, act: str, status: int, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", act, file, "--cluster", "prod"]) == status
    text = capsys.readouterr().out
    for part in parts:
        assert part in text


def test_policy_in_force_is_printed_as_a_file(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", "--cluster", "prod"]) == 0
    shown: Any = json.loads(capsys.readouterr().out)
    assert shown == {"margin": 0.1}


def test_every_fault_of_a_file_is_told(console: FakeConsole, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    faults = [{"path": "margin", "message": "margin is 3"}, {"path": "teams[0].team", "message": "team is 'x'"}]
    console.replies[f"PUT {PATH}"] = [Reply(400, {"code": "malformed", "detail": "2 faults", "faults": faults})]
    assert main(["policy", "apply", file, "--cluster", "prod"]) == 1
    told = capsys.readouterr().err
    assert "margin is 3" in told and "team is 'x'" in told
