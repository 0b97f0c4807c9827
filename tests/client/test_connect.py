"""`./sluice connect`: a connection is made or found, its jobs imported; the exit status tells how its queries do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.cli import main
from client.console import ConsoleConnection
from engine.connectors.finding_groups import fold_findings
from engine.connectors.picture import Finding
from tests.client.fake_console import FakeConsole, Reply, fake_console

LIST = "GET /api/v1/connections?cluster=prod&name=flink-8081"
JOBS = "GET /api/v1/imported-jobs?cluster=prod&connection=flink-8081&page_size=200"
URL = "http://flink:8081"
FINDING = {"level": "assumed", "code": "sink_selectivity", "subject": "orders", "message": "One result per event."}


def connection(**more: Any) -> dict[str, Any]:
    shown = {"id": 7, "name": "flink-8081", "engine": "flink", "url": URL, "state": "connected"}
    findings = more.pop("findings", [FINDING])
    kinds = [kind.to_dict() for kind in fold_findings([Finding.parse(finding) for finding in findings])]
    return {**shown, "engine_version": "2.3.0", "findings": findings, "finding_kinds": kinds, **more}


def job(state: str, step: str = "", **more: Any) -> dict[str, Any]:
    return {"url": "/api/v1/jobs/j1", "state": state, "step": step, "progress": 0.5, "error": None, **more}


def estimate(state: str) -> dict[str, Any]:
    rows = [{"query": "orders", "state": state, "estimate_s": 1.5}, {"query": "other", "state": "breached"}]
    return {"queries": rows}


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeConsole]:
    monkeypatch.setattr("client.console._POLL_S", 0.01)
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE", "SLUICE_ENGINE_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        done = job("succeeded", result_api_url="/api/v1/connections/7")
        running.replies = {
            LIST: [Reply(200, {"results": []})],
            "POST /api/v1/connections": [Reply(201, connection(state="new"))],
            "POST /api/v1/connections/7/check": [Reply(202, job("queued"))],
            "POST /api/v1/connections/7/import": [Reply(202, job("queued"))],
            "GET /api/v1/jobs/j1": [Reply(200, job("running", "Asking what runs there")), Reply(200, done)],
            "GET /api/v1/connections/7": [Reply(200, connection())],
            JOBS: [Reply(200, {"results": [{"query": "orders"}]})],
            "POST /api/v1/estimates": [Reply(200, estimate("holds"))],
        }
        yield running


def connect(*more: str, url: str | None = URL) -> int:
    return main(["connect", *([url] if url else []), "--cluster", "prod", *more])


@pytest.mark.parametrize(("state", "status"), [("holds", 0), ("breached", 3), ("at_risk", 4)])
def test_exit_status_tells_how_the_imported_queries_do(
    console: FakeConsole, state: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    console.replies["POST /api/v1/estimates"] = [Reply(200, estimate(state))]
    assert connect("--objective", "orders=worst:5", "--job", "orders") == status
    out = capsys.readouterr()
    assert "One result per event." in out.out and "orders" in out.out and "other" not in out.out
    assert "Asking what runs there" in out.err
    asked = {where: body for where, _, body in console.asked}
    assert asked["POST /api/v1/connections"] == {"cluster": "prod", "name": "flink-8081", "engine": "flink", "url": URL}
    objective = {"orders": {"statistic": "worst", "bound_s": 5.0}}
    assert asked["POST /api/v1/connections/7/import"] == {"objectives": objective, "jobs": ["orders"]}


def test_check_imports_nothing(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert connect("--check") == 0
    assert "flink 2.3.0, connected" in capsys.readouterr().out
    assert not any("import" in where for where, _, _ in console.asked)


@pytest.mark.parametrize("is_there", [True, False])
def test_new_cluster_is_made_unless_it_is_there(console: FakeConsole, is_there: bool) -> None:
    missing = {"code": "missing", "title": "Not found", "status": 404, "detail": "There is no cluster 'prod'."}
    console.replies["GET /api/v1/clusters/prod"] = [Reply(200, {"slug": "prod"}) if is_there else Reply(404, missing)]
    console.replies["POST /api/v1/clusters"] = [Reply(201, {"slug": "prod"})]
    assert connect("--check", "--new-cluster") == 0
    made = [body for where, _, body in console.asked if where == "POST /api/v1/clusters"]
    assert made == ([] if is_there else [{"slug": "prod", "name": "prod"}])


def test_cluster_that_is_not_there_is_told_with_those_that_are(
    console: FakeConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [{"path": "cluster", "message": "Object with slug=prod does not exist."}]
    wrong = {"code": "malformed", "title": "Malformed", "status": 400, "detail": "One fault.", "faults": faults}
    console.replies["POST /api/v1/connections"] = [Reply(400, wrong)]
    console.replies["GET /api/v1/clusters?page_size=20"] = [Reply(200, {"results": [{"slug": "eu-1"}]})]
    assert connect("--check") == 1
    assert "no cluster 'prod'; it has: eu-1" in capsys.readouterr().err


def test_connection_that_exists_is_used_again(console: FakeConsole) -> None:
    console.replies[LIST] = [Reply(200, {"results": [connection()]})]
    assert connect("--check") == 0
    assert all(where != "POST /api/v1/connections" for where, _, _ in console.asked)


def test_connection_of_another_engine_is_no_connection_of_this_one(
    console: FakeConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    console.replies[LIST] = [Reply(200, {"results": [connection(engine="spark")]})]
    faults = [{"path": "engine", "message": "engine is 'flink'; allowed: 'spark'"}]
    wrong = {"code": "malformed", "title": "Malformed", "status": 400, "detail": "One fault.", "faults": faults}
    console.replies["PATCH /api/v1/connections/7"] = [Reply(400, wrong)]
    assert connect("--check") == 1
    assert "engine is 'flink'; allowed: 'spark'" in capsys.readouterr().err


def test_new_token_replaces_the_old_one(console: FakeConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    console.replies[LIST] = [Reply(200, {"results": [connection()]})]
    console.replies["PATCH /api/v1/connections/7"] = [Reply(200, connection())]
    assert connect("--check", "--token-file", str(tmp_path / "token")) == 0
    assert next(body["token"] for where, _, body in console.asked if where.startswith("PATCH")) == "t0ken"


def test_engine_that_is_away_is_told_as_an_error(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "engine_away", "detail": "The engine is away: flink does not answer.", "faults": []}
    console.replies["GET /api/v1/jobs/j1"] = [Reply(200, {**job("failed"), "error": error})]
    assert connect("--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_status"] == 1 and answer["error"]["code"] == "engine_away"


def test_nothing_that_runs_there_is_no_success(console: FakeConsole) -> None:
    console.replies[JOBS] = [Reply(200, {"results": []})]
    assert connect() == 1


def test_import_goes_on_without_the_command(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert connect("--no-wait") == 0
    assert "/api/v1/jobs/j1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["connect", "--cluster", "prod"],
        ["connect", URL, "--upload", "x.zip", "--cluster", "prod"],
        ["connect", URL, "--cluster", "prod", "--objective", "orders=soon"],
        ["connect", URL, "--cluster", "prod", "--check", "--objective", "worst:5"],
    ],
)
def test_wrong_usage_is_2(console: FakeConsole, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and console.asked == []


def test_file_is_sent_as_a_form_would_send_it(
    console: FakeConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, str, bytes]] = []
    monkeypatch.setattr(
        ConsoleConnection, "post_file", lambda self, path, name, content: sent.append((path, name, content))
    )
    (tmp_path / "answers.zip").write_bytes(b"PK")
    console.replies["GET /api/v1/connections?cluster=prod&name=shop"] = [Reply(200, {"results": []})]
    assert connect("--check", "--upload", str(tmp_path / "answers.zip"), "--name", "shop", url=None) == 0
    assert sent == [("/api/v1/connections/7/upload", "answers.zip", b"PK")]


def test_findings_of_a_check_are_folded_by_kind_and_what_changes_the_answer_comes_first(
    console: FakeConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [FINDING | {"subject": f"job-{i}"} for i in range(140)]
    findings += [
        {
            "level": "missing",
            "code": "busy_time_missing",
            "subject": f"q{i}/source",
            "message": f"Cost {i} is unknown.",
        }
        for i in range(6)
    ]
    console.replies["GET /api/v1/connections/7"] = [Reply(200, connection(findings=findings))]
    assert connect("--check") == 0
    told = capsys.readouterr().out
    assert told.index("What changes the answer") < told.index("Cost 2 is unknown.") < told.index("The rest, by kind")
    assert "Cost 3 is unknown." not in told and "and 3 alike (busy_time_missing)" in told
    assert "140 ×" in told and "job-0 and 139 more" in told
    assert len(told.splitlines()) < 15
