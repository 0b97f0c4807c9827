"""`./sluice admit` and `./sluice estimate`: questions, answers, exit statuses, and every way not to get an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.cli import main
from client.errors import ClientError
from client.settings import read_settings, settings_path
from engine.admission.decision import command as decide
from engine.command_options import AdmitOptions
from engine.words import seconds_words, state_words
from tests.client.fake_console import FakeConsole, Reply, fake_console

ROOT = Path(__file__).resolve().parents[2]
QUERY = ROOT / "docs" / "examples" / "live-heatmap.json"
ADMISSIONS = "POST /api/v1/admissions"
JOB = {"id": "j1", "url": "/api/v1/jobs/j1", "result_api_url": "/api/v1/admissions/a1", "error": None}


def admission(verdict: str = "admit", state: str = "preview", **more: Any) -> dict[str, Any]:
    return {"id": "a1", "cluster": "prod", "query": "heat", "state": state, "verdict": verdict, "decision": {}, **more}


def problem(status: int, code: str, detail: str, faults: Any = ()) -> Reply:
    body = {"type": f"/help/docs/errors#{code}", "status": status, "code": code, "detail": detail}
    return Reply(status, {**body, "faults": list(faults)}, {"Content-Type": "application/problem+json"})


def _time(seconds: float) -> list[str]:
    return seconds_words(seconds)[0].split()


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeConsole]:
    with fake_console() as running:
        for name in ("HTTP_PROXY", "http_proxy", "SLUICE_CA_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLUICE_SERVER", running.url)
        monkeypatch.setenv("SLUICE_TOKEN", "slu_secret")
        monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "client.toml"))
        running.replies[ADMISSIONS] = [Reply(200, admission())]
        yield running


def ask(*more: str, file: Path | str | None = QUERY) -> int:
    return main(["admit", *([str(file)] if file else []), "--cluster", "prod", "--query", "heat", *more])


@pytest.mark.parametrize(
    ("verdict", "options", "state", "status"),
    [
        ("admit", [], "preview", 0),
        ("admit", ["--apply"], "applied", 0),
        ("admit", ["--apply"], "preview", 4),
        ("reject", [], "preview", 3),
        ("reject", ["--accept-changes"], "preview", 3),
        ("admit_with_changes", [], "preview", 3),
        ("admit_with_changes", ["--accept-changes"], "preview", 0),
        ("queue", [], "preview", 4),
        ("queue", ["--apply"], "queued", 4),
        ("review", [], "preview", 4),
        ("review", ["--apply"], "awaiting", 4),
        ("perhaps", [], "preview", 1),
        ("", [], "failed", 1),
    ],
)
def test_exit_status_is_the_verdict(
    console: FakeConsole, verdict: str, options: list[str], state: str, status: int
) -> None:
    console.replies[ADMISSIONS] = [Reply(200, admission(verdict, state))]
    assert ask(*options) == status
    assert console.asked[0][2]["mode"] == ("apply" if "--apply" in options else "preview")


def test_question_carries_the_query_and_the_token(console: FakeConsole) -> None:
    assert ask("--objective", "q0.99:0.5", "--may-wait", "60", "--reason", "merge request 7") == 0
    _, headers, body = console.asked[0]
    assert headers["Authorization"] == "Bearer slu_secret"
    assert headers["Prefer"] == "wait=30" and headers["Idempotency-Key"]
    assert body["document"]["query"] == "heat" and len(body["document"]["operators"]) == 7
    assert body["objective"] == {"statistic": "q0.99", "bound_s": 0.5}
    assert (body["cluster"], body["may_wait_s"], body["reason"]) == ("prod", 60.0, "merge request 7")


def test_registered_query_needs_no_file(console: FakeConsole) -> None:
    assert ask("--query-version", "3", file=None) == 0
    assert console.asked[0][2] == {"cluster": "prod", "mode": "preview", "query": "heat", "version": 3}


def test_job_that_takes_longer_is_waited_for(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client.console._POLL_S", 0.01)
    console.replies[ADMISSIONS] = [Reply(202, {**JOB, "state": "queued"})]
    console.replies["GET /api/v1/jobs/j1"] = [Reply(200, {**JOB, "state": state}) for state in ("running", "succeeded")]
    console.replies["GET /api/v1/admissions/a1"] = [Reply(200, admission("reject"))]
    assert ask() == 3


def test_time_that_is_up_names_the_job(
    console: FakeConsole, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client.console._POLL_S", 0.3)
    console.replies[ADMISSIONS] = [Reply(202, {**JOB, "state": "running"})]
    console.replies["GET /api/v1/jobs/j1"] = [Reply(200, {**JOB, "state": "running"})]
    assert ask("--timeout", "1", "--json") == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["job"]) == ("timeout", "/api/v1/jobs/j1")
    assert f"{console.url}/api/v1/jobs/j1" in error["detail"]


def test_parts_that_follow_the_verdict_are_waited_for(
    console: FakeConsole, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client.console._POLL_S", 0.01)
    first, last = admission("reject"), admission("reject")
    first["parts"] = {"alternatives": {"state": "pending", "message": ""}}
    last["parts"] = {"alternatives": {"state": "out_of_budget", "message": "It was cut after 5 s."}}
    console.replies[ADMISSIONS] = [Reply(200, first)]
    console.replies["GET /api/v1/admissions/a1"] = [Reply(200, first), Reply(200, last)]
    assert ask() == 3
    assert "out of budget: It was cut after 5 s." in capsys.readouterr().out
    assert console.asked[-1][1]["Prefer"].startswith("wait=")
    waited = len(console.asked)
    assert ask("--no-parts") == 3
    assert len(console.asked) == waited + 1
    assert "still being computed" in capsys.readouterr().out


def test_parts_that_cannot_be_read_cost_no_verdict(console: FakeConsole) -> None:
    first = admission("admit")
    first["parts"] = {"robustness": {"state": "running", "message": ""}}
    console.replies[ADMISSIONS] = [Reply(200, first)]
    console.replies["GET /api/v1/admissions/a1"] = [Reply(500, text="gone")]
    assert ask() == 0


def test_failed_job_says_why(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"code": "infeasible", "detail": "No room.", "faults": [{"path": "nodes", "message": "are full"}]}
    console.replies[ADMISSIONS] = [Reply(202, {**JOB, "state": "failed", "error": failed})]
    assert ask() == 1
    assert capsys.readouterr().err == "sluice: No room.\n  nodes: are full\n"


def test_decision_is_told_in_words(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((ROOT / "docs" / "examples" / "admit.json").read_text())
    decision = decide(document, AdmitOptions()).to_dict()
    shown = admission("reject", query="fraud", decision=decision, valid_until="2026-03-01T08:00:00Z")
    console.replies[ADMISSIONS] = [Reply(200, shown)]
    assert ask() == 3
    told = capsys.readouterr().out
    assert told.startswith("REJECT  fraud\n")
    assert "top-pages would miss its objective" in told and "(on n2, 4 s after the start)" in told
    neighbour = next(line for line in told.splitlines() if line.startswith("  top-pages"))
    effect = next(row for row in decision["effects"] if row["query"] == "top-pages")
    assert neighbour.split()[1:5] == [*_time(effect["before_s"]), *_time(effect["after_s"])]
    assert neighbour.split()[-5:] == ["2", "s", "expected", "late", "n2"]
    first = decision["choices"][0]
    assert f"  {first['id']}: {first['title']} (admit with changes)" in told
    assert f"{console.url}/c/prod/admission/a1/" in told
    assert "\u00a0" not in told


def test_json_is_one_object_with_the_request(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    console.replies[ADMISSIONS] = [Reply(200, admission("review"))]
    assert ask("--json") == 4
    told = json.loads(capsys.readouterr().out)
    assert told == {"exit_status": 4, "url": f"{console.url}/c/prod/admission/a1/", "admission": admission("review")}


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (problem(401, "token_expired", "The token ci expired."), "token_expired", "SLUICE_TOKEN"),
        (problem(403, "scope_missing", "It needs the role Admitter."), "scope_missing", "role Admitter"),
        (problem(429, "too_many", "Slow down."), "too_many", "Slow down"),
        (problem(503, "unavailable", "Redis does not answer."), "unavailable", "Redis"),
        (Reply(502, text="<html>Bad Gateway</html>"), "not_a_console", "502"),
        (Reply(200, text="<html>Welcome</html>"), "not_a_console", "no form of Sluice"),
        (Reply(301, {}, {"Location": "https://sluice.example.org/"}), "not_a_console", "https://sluice.example.org/"),
    ],
)
def test_refusal_is_told_in_both_forms(
    console: FakeConsole, capsys: pytest.CaptureFixture[str], reply: Reply, code: str, words: str
) -> None:
    console.replies[ADMISSIONS] = [reply]
    assert ask() == 1
    out, err = capsys.readouterr()
    assert out == "" and words in err and "slu_secret" not in err
    assert ask("--json") == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert err == "" and told["exit_status"] == 1
    assert told["error"]["code"] == code and words in told["error"]["detail"]


def test_every_fault_is_told(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    faults = [{"path": "operators[0]", "message": "a is b"}, {"path": "operators[1]", "message": "c is d"}]
    console.replies[ADMISSIONS] = [problem(400, "malformed", "The query has 2 faults.", faults)]
    assert ask() == 1
    assert capsys.readouterr().err.splitlines()[1:] == ["  operators[0]: a is b", "  operators[1]: c is d"]


def test_unknown_cluster_is_refused_with_those_that_there_are(
    console: FakeConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"path": "cluster", "message": "'prod' is not the slug of a cluster"}
    console.replies[ADMISSIONS] = [problem(404, "missing", "There is no cluster 'prod'.", [fault])]
    console.replies["GET /api/v1/clusters?page_size=20"] = [
        Reply(200, {"results": [{"slug": "demo"}, {"slug": "lab"}]})
    ]
    assert ask() == 1
    assert capsys.readouterr().err == f"sluice: {console.url} has no cluster 'prod'; it has: demo, lab.\n"


def test_nobody_listens(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert ask("--server", f"http://127.0.0.1:{port}") == 1
    assert "nothing listens there" in capsys.readouterr().err


def test_plain_http_behind_an_https_address(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("--server", console.url.replace("http:", "https:"), "--timeout", "5") == 1
    assert "is it an http:// address?" in capsys.readouterr().err


def test_silent_server_is_left_after_the_timeout(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert ask("--server", f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "1") == 1
    assert "does not answer within 1 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("[1]", "holds a list; allowed: an object"),
        ('{"query": "a"}', "operators is missing"),
        ('{"nodes": [], "operators": []}', "sluice engine admit"),
    ],
)
def test_file_that_describes_no_query_is_not_sent(
    console: FakeConsole, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, words: str
) -> None:
    file = tmp_path / "query.json"
    file.write_text(content)
    assert ask(file=file) == 1
    assert words in capsys.readouterr().err
    assert console.asked == []


def test_query_needs_a_name(console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admit", str(QUERY), "--cluster", "prod"]) == 1
    assert "--query NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["admit", "--cluster", "prod"], "FILE is missing"),
        (["admit", "q.json"], "--cluster"),
        (["admit", "q.json", "--cluster", "a", "--objective", "fast"], "allowed is worst, mean or q0.99"),
        (["admit", "q.json", "--cluster", "a", "--timeout", "0"], "at least 1 second"),
        (["admit", "q.json", "--cluster", "a", "--query-version", "2"], "always a new version"),
        (["admit", "q.json", "--cluster", "a", "--token", "slu_x"], "unrecognized"),
        (["estimate"], "exactly one of FILE and --cluster"),
    ],
)
def test_wrong_usage_is_status_2_in_both_forms(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--json"])
    assert caught.value.code == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["exit_status"], told["error"]["code"]) == (2, "usage") and words in told["error"]["detail"]


@pytest.mark.parametrize(
    ("states", "status"), [(["holds"], 0), (["holds", "at_risk"], 4), (["breached", "at_risk"], 3)]
)
def test_estimate_of_a_cluster(
    console: FakeConsole, capsys: pytest.CaptureFixture[str], states: list[str], status: int
) -> None:
    rows = [
        {"query": f"q{number}", "estimate_s": 1.5, "low_s": 1.0, "high_s": 2.0, "statistic": "worst", "bound_s": 2.5}
        | {"state": state, "result": {"bottleneck": {"server": "n1#0"}}}
        for number, state in enumerate(states)
    ]
    console.replies["POST /api/v1/estimates"] = [Reply(200, {"id": 3, "queries": rows})]
    assert main(["estimate", "--cluster", "prod"]) == status
    first = capsys.readouterr().out.splitlines()[1]
    assert first.split() == f"q0 1.5 s 1 s to 2 s worst 2.5 s {state_words(states[0], is_measured=False)} n1#0".split()
    assert console.asked[0][2] == {"cluster": "prod"}


class TestSettings:
    def test_option_comes_before_environment_before_file(self, tmp_path: Path) -> None:
        file = tmp_path / "client.toml"
        file.write_text('server = "https://file.example.org"\ntoken = "slu_file"\n')
        file.chmod(0o600)
        environment = {"SLUICE_CONFIG": str(file)}
        assert read_settings(environment).server == "https://file.example.org"
        assert read_settings(environment).token_from == str(file)
        environment |= {"SLUICE_SERVER": "https://env.example.org/", "SLUICE_TOKEN": "slu_env"}
        settings = read_settings(environment)
        assert (settings.server, settings.token) == ("https://env.example.org", "slu_env")
        assert read_settings(environment, server="http://option:1").server == "http://option:1"

    def test_file_with_a_token_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        file = tmp_path / "client.toml"
        file.write_text('token = "slu_file"\n')
        file.chmod(0o640)
        with pytest.raises(ClientError, match=r"mode 640.*chmod 600"):
            read_settings({"SLUICE_CONFIG": str(file)})

    @pytest.mark.parametrize(
        ("content", "words"),
        [("token = 7", "must be text"), ("toke = 'x'", "toke unknown; allowed: server"), ("token =", "cannot be read")],
    )
    def test_file_that_is_wrong_says_how(self, tmp_path: Path, content: str, words: str) -> None:
        file = tmp_path / "client.toml"
        file.write_text(content)
        file.chmod(0o600)
        with pytest.raises(ClientError, match=words):
            read_settings({"SLUICE_CONFIG": str(file)})

    def test_no_token_says_where_it_comes_from(self, tmp_path: Path) -> None:
        with pytest.raises(ClientError, match="set SLUICE_TOKEN"):
            read_settings({"XDG_CONFIG_HOME": str(tmp_path)})
        assert settings_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "sluice" / "client.toml"

    @pytest.mark.parametrize("server", ["sluice.example.org", "ftp://x", "http://", "http://x:99999"])
    def test_server_that_is_no_address(self, server: str) -> None:
        with pytest.raises(ClientError, match="allowed: an address"):
            read_settings({"SLUICE_TOKEN": "slu_x"}, server=server)

    def test_authority_that_cannot_be_read(self, console: FakeConsole, capsys: pytest.CaptureFixture[str]) -> None:
        assert ask("--server", "https://localhost:1", "--ca-file", "/nowhere.pem") == 1
        assert "ca_file is '/nowhere.pem'" in capsys.readouterr().err


def test_several_queries_are_asked_for_together(
    console: FakeConsole, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    document = tmp_path / "heat.json"
    document.write_text(json.dumps({**json.loads(QUERY.read_text()), "query": "heat"}))
    member = {"query": "heat", "beside": "admit", "together": "reject", "alone": "admit", "is_fitting": True}
    other = {"query": "bids", "beside": "reject", "together": "reject", "alone": "admit", "is_fitting": False}
    answer = {"headline": "bids would miss its objective", "members": [member, other]}
    group = {"id": "g1", "cluster": "prod", "state": "preview", "verdict": "reject", "names": ["heat v1", "bids v2"]}
    console.replies["POST /api/v1/admissions/groups"] = [Reply(200, {**group, "answer": answer})]
    asked = ["admit", str(document), "--query", "bids", "--together", "--cluster", "prod", "--may-wait", "60"]
    assert main(asked) == 3
    ((_, _, question),) = console.asked
    assert [sorted(row) for row in question["members"]] == [["document"], ["query"]]
    assert (question["may_wait_s"], question["mode"]) == (60.0, "preview")
    told = capsys.readouterr().out
    assert "/c/prod/admission/groups/g1/" in told
    assert "Fit together, by an estimate  heat" in told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--query", "a", "--query", "b"], "several queries are asked for with --together"),
        (["--query", "a", "--together"], "--together takes two queries or more"),
        (["--query", "a", "--query", "b", "--together", "--objective", "worst:2"], "--objective is of one query"),
    ],
)
def test_wrong_use_of_together_is_told(more: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["admit", "--cluster", "prod", *more])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
