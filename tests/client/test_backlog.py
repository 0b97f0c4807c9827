"""`./sluice backlog`: what waits for a query is shown, stated, and taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.cli import main
from tests.client.fake_console import FakeConsole, Reply, fake_console

FOUND = "GET /api/v1/queries?cluster=prod&name=orders"
PATH = "/api/v1/queries/7/backlogs"
SHOWN = {"operator": "", "from": "clicks", "events": None, "behind_s": 1200.0, "origin": "stated", "age_s": 4.0}


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeConsole]:
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        running.replies = {
            FOUND: [Reply(200, {"results": [{"id": 7}]})],
            f"GET {PATH}": [Reply(200, {"backlogs": [{**SHOWN, "is_stale": True}]})],
            f"PUT {PATH}": [Reply(200, {"backlogs": [{**SHOWN, "is_stale": False}]})],
        }
        yield running


def test_backlog_is_shown_with_its_age(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backlog", "orders", "--cluster", "prod"]) == 0
    text = capsys.readouterr().out
    assert "clicks" in text and "20 min" in text and "too old: not used" in text


def test_backlog_is_stated(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["backlog", "orders", "--cluster", "prod", "--source", "clicks", "--behind", "1200", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["backlogs"][0]["behind_s"] == 1200.0
    assert console.asked[-1][2] == {"backlogs": [{"from": "clicks", "behind_s": 1200.0}]}


def test_nothing_waits_takes_all_back(console: FakeConsole) -> None:
    assert main(["backlog", "orders", "--cluster", "prod", "--none"]) == 0
    assert console.asked[-1][2] == {"backlogs": []}


@pytest.mark.parametrize(
    "words", [["--behind", "5"], ["--none", "--source", "clicks", "--events", "5"], ["--behind", "soon"]]
)
def test_wrong_usage_asks_nothing(console: FakeConsole, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["backlog", "orders", "--cluster", "prod", *words])
    assert ended.value.code == 2
    assert console.asked == []


def test_unknown_query_is_told(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    console.replies[FOUND] = [Reply(200, {"results": []})]
    assert main(["backlog", "orders", "--cluster", "prod"]) == 1
    assert "no query 'orders'" in capsys.readouterr().err
