"""Known secrets are sent through every way in, to real processes at the lowest level of logs: none is written down."""

from __future__ import annotations

import http.client
import json
import logging
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from engine.redaction import JsonFormatter, RedactingFormatter, note_secret, redact_text
from tests.databases import copy_sqlite_template
from tests.e2e.installation import ROOT, Installation
from tests.servers import RedisServer, wait_until

_PREPARE = """
import json
import sys
import django
django.setup()
from django.conf import settings
from apps.accounts.models import User
from apps.accounts.services import token_create, user_create
from apps.fleet.services import cluster_create
from apps.telemetry.agent_services import agent_enrol, enrolment_create
user = user_create(username="ada", password=sys.argv[1], role="admin")
cluster = cluster_create(slug="lab", name="Lab")
enrolment, token = enrolment_create(cluster=cluster, user=user, uses=5)
joined = agent_enrol(token=token, name="known")
print(json.dumps([token_create(user=user, name="ci", scopes=["admin"])[1], token, joined.secret, str(joined.agent.pk)]))
"""


class _Echo(BaseHTTPRequestHandler):
    """An engine, and a reader of webhooks, that repeats what it was sent as badly as it can."""

    def _answer(self) -> None:
        body = f"no such thing: {self.path} {dict(self.headers)}".encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *args: Any) -> None:
        """Not to the test's output."""


class Console(Installation):
    """Web and worker of an installation, and all that they and their commands write."""

    def start(self) -> None:
        web = ["uvicorn", "console.asgi:application", "--lifespan", "off", "--no-proxy-headers"]
        self.run("web", [*web, "--log-level", "debug", "--port", str(self.port)])
        self.start_worker("-l", "DEBUG")
        wait_until(lambda: self.status("GET", "/healthz") == 200, what="the console")
        wait_until(lambda: " ready." in self.log("worker"), 300, "the worker")

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = dict(headers or {})
        if body is not None and not isinstance(body, (str, bytes)):
            body, sent["Content-Type"] = json.dumps(body), "application/json"
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        except OSError:
            return 0, {}, b""
        finally:
            connection.close()

    def status(self, *asked: Any) -> int:
        return self.request(*asked)[0]

    def written(self) -> Iterator[tuple[Path, bytes]]:
        """Every file below the data folder."""
        for path in self.var_dir.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


@pytest.fixture
def console(tmp_path: Path, redis_server: RedisServer) -> Iterator[Console]:
    copy_sqlite_template(tmp_path / "sluice.sqlite3")
    running = Console(tmp_path, redis_server, SLUICE_LOG_LEVEL="DEBUG", SLUICE_DEBUG="1", SLUICE_WEBHOOK_PRIVATE="1")
    yield running
    running.stop()


@pytest.fixture
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _upgrade(token: str) -> dict[str, str]:
    """Headers that open a WebSocket."""
    handshake = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    return {**handshake, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Authorization": f"Bearer {token}"}


@pytest.mark.process
@pytest.mark.slow
def test_no_secret_is_written_by_any_process(console: Console, echo: str) -> None:
    made_up = {name: f"{name}-{secrets.token_urlsafe(18)}" for name in (
        "password", "wrong", "changed", "query", "engine", "hook", "enrolment", "header", "cookie", "nothing", "cli",
    )}  # fmt: skip
    token, enrolment, agent, agent_id = json.loads(console.script(_PREPARE, made_up["password"]))
    console.start()
    bearer = {"Authorization": f"Bearer {token}"}
    send = console.request

    # -- headers, good and bad; queries; paths that are and are not there
    assert console.status("GET", "/api/v1/clusters", None, bearer) == 200
    for headers in (
        {"Authorization": f"Bearer {made_up['header']}"},
        {"Authorization": f"Basic {made_up['header']}"},
        {"Authorization": made_up["header"]},
        {"Cookie": f"sessionid={made_up['cookie']}; csrftoken={made_up['cookie']}", "X-Api-Key": made_up["header"]},
        {"Host": "evil.example", **bearer},
    ):
        send("GET", "/api/v1/clusters", None, headers)
    for query in (f"token={token}", f"x={made_up['query']}", f"q={made_up['query']}&cursor={made_up['query']}"):
        send("GET", f"/api/v1/clusters?{query}", None, bearer)
        send("GET", f"/nothing?{query}")
        send("GET", f"/login/?next=/{made_up['query']}/&{query}")
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}
    for path in (f"lab/{token}", f"lab/{token}/more", f"nowhere/{token}?timeout=5s", f"lab/{made_up['nothing']}"):
        send("POST", f"/webhooks/kubernetes/admission/{path}", review)

    # -- forms: sign in wrongly and rightly, change the password
    _, headers, page = send("GET", "/login/")
    csrf = page.split(b'name="csrfmiddlewaretoken" value="')[1].split(b'"')[0].decode()
    form = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": headers["set-cookie"].split(";")[0]}
    for password in (made_up["wrong"], made_up["password"]):
        asked = {"csrfmiddlewaretoken": csrf, "username": "ada", "password": password}
        status, headers, _ = send("POST", "/login/", urlencode(asked), form)
    assert status == 302
    console.script(
        "import sys\nfrom apps.accounts.models import User\nfrom apps.accounts.services import password_change\n"
        "password_change(user=User.objects.get(username='ada'), current=sys.argv[1], password=sys.argv[2])",
        made_up["password"],
        made_up["changed"],
    )

    # -- bodies: an engine's token, addresses of webhooks, enrolment; each right, and each wrong in another field
    engine = {"cluster": "lab", "name": "flink", "engine": "flink", "url": f"{echo}/jm", "token": made_up["engine"]}
    status, _, body = send("POST", "/api/v1/connections", engine, bearer)
    assert status == 201, body
    connection = json.loads(body)["id"]
    send("POST", "/api/v1/connections", {**engine, "engine": "none"}, bearer)
    assert console.status("POST", f"/api/v1/connections/{connection}/check", {}, {**bearer, "Prefer": "wait=20"}) < 500
    hook = {"cluster": "lab", "name": "hook", "url": f"{echo}/services/{made_up['hook']}?key={made_up['hook']}"}
    status, _, body = send("POST", "/api/v1/webhooks", hook, bearer)
    assert status == 201, body
    made_up["signing"] = json.loads(body)["secret"]
    send("POST", "/api/v1/webhooks", {**hook, "cluster": "none", "colour": "red"}, bearer)
    for joining in (
        {"token": enrolment, "name": "new"},
        {"token": enrolment, "name": "known"},
        {"token": made_up["enrolment"], "name": "x", "old_secret": agent},
        {"token": made_up["enrolment"], "name": "No such name!", "password": made_up["enrolment"]},
    ):
        send("POST", "/api/v1/agents/enrol", joining)
    send("POST", "/api/v1/agents/enrol", '{"token": "' + made_up["enrolment"])
    send("POST", f"/api/v1/agents/{agent_id}/heartbeat", {"life": "a"}, {"Authorization": f"Bearer {agent}"})
    send("GET", "/ws/agents/", None, _upgrade(agent))
    send("GET", f"/ws/?token={token}", None, _upgrade(token) | {"Cookie": f"sessionid={made_up['cookie']}"})

    # -- commands
    cli = ["agent", "enrol", "--url", f"http://user:{made_up['cli']}@127.0.0.1:{console.port}", "--name", "cli"]
    command = [*cli, "--token", made_up["cli"], "--state-dir", str(console.var_dir / "cli")]
    assert console.run("cli", command).wait(60)
    command = [sys.executable, "manage.py", "create_admin", "--username", "first", "--password-to"]
    first = console.var_dir / "first.password"
    done = subprocess.run([*command, str(first)], cwd=ROOT, env=console.env, capture_output=True, check=True)
    assert first.stat().st_mode & 0o077 == 0
    assert first.read_bytes() not in done.stdout + done.stderr
    first.unlink()

    kept = {"hook": "sluice.sqlite3"}  # where a message is sent to has to be known again
    known = {**made_up, "token": token, "enrolment-token": enrolment, "agent": agent}
    files = dict(console.written())
    assert b"POST /api/v1/webhooks" in files[console.var_dir / "web.log"], "it logs requests at all"
    assert any(b"/webhooks/kubernetes/admission/lab/" in text for text in files.values())
    found = [
        f"{name} in {path.name}: {text[max(0, text.index(secret.encode()) - 200) :][:300]!r}"
        for path, text in files.items()
        for name, secret in known.items()
        if secret.encode() in text and not path.name.startswith(kept.get(name, "-"))
    ]
    assert not found


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("POST https://hooks.example/services/T0/B0/{} failed", "https://hooks.example/…"),
        ("postgres://sluice:{}@db:5432/sluice is away", "postgres://…@db:5432/sluice is away"),
        ("redis://:{}@cache:6379/0", "redis://…@cache:6379/0"),
        ("""{{"username": "ada", "password": "{}"}}""", '"username": "ada"'),
        ("{{'old_secret': '{}', 'name': 'a'}}", "'name': 'a'"),
        ("[(b'authorization', b'Bearer {}'), (b'host', b'x')]", "(b'host', b'x')"),
        ("> Cookie: sessionid={}; csrftoken={}", "> Cookie"),
        ("GET /api/v1/nodes?api_key={}&page=2 HTTP/1.1 200", "HTTP/1.1 200"),
        ("ValueError: password={} is weak", "is weak"),
        ("the token slu_{} expired", "the token slu_"),
        ("sle_{}, sla_{}", "sle_"),
    ],
)
def test_line_keeps_its_sense_without_its_secret(line: str, kept: str) -> None:
    secret = secrets.token_urlsafe(24)
    shown = redact_text(line.format(*[secret] * line.count("{}")))
    assert secret not in shown
    assert kept in shown


@pytest.mark.parametrize(
    "line",
    [
        "Send a token as `Authorization: Bearer slu_…`. Settings, Tokens makes one.",
        "The token ci (slu_abcdef…) was revoked.",
        "Task workers.estimate_cluster[6c0c7a3e-57f4-4fd8-8c62-1e6c1a0a7f5b] succeeded in 0.25s: None",
        "Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)",
        "time=2026-11-24T10:00:00 method=GET route=pages:home path=/c/lab/ status=200 ms=3.20 bytes=120",
        "password: This password is too short. It must contain at least 10 characters.",
    ],
)
def test_line_without_a_secret_stays_as_it_is(line: str) -> None:
    assert redact_text(line) == line


def test_secret_of_a_traceback_is_not_shown() -> None:
    note_secret("swordfish-in-the-sea")
    lines = RedactingFormatter(logging.Formatter("%(message)s"))
    try:
        raise ValueError("cannot use swordfish-in-the-sea")
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, __file__, 1, "failed: %s", ("swordfish-in-the-sea",), sys.exc_info()
        )
    text = lines.format(record)
    assert "Traceback" in text
    assert "swordfish" not in text


def test_line_of_json_stays_json_without_its_secrets() -> None:
    lines = JsonFormatter(lambda record: {"request_id": "r1", "asked": "/x?token=hunter-two-22"})
    try:
        raise ValueError('{"password": "hunter-two-22"}\nand more')
    except ValueError as error:
        made = {"msg": "%s sent %s", "args": ("ada", '{"api_key": "hunter-two-22", "n": 1}'), "name": "a.b"}
        record = logging.makeLogRecord({**made, "levelno": 30, "levelname": "WARNING", "created": 0.0})
        record.exc_info, record.facts = (type(error), error, error.__traceback__), {"status": 503}
    text = lines.format(record)
    assert "hunter-two-22" not in text and "\n" not in text
    line = json.loads(text)
    assert line.pop("exception").startswith("Traceback")
    assert line == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "warning",
        "logger": "a.b",
        "message": 'ada sent {"api_key": …, "n": 1}',
        "request_id": "r1",
        "asked": "/x?…",
        "status": 503,
    }


@pytest.mark.parametrize("noted", ["password", "passwords", "ada-secret", "username"])
def test_secret_that_is_a_word_hides_no_name_before_another(noted: str) -> None:
    note_secret(noted)
    for line in (
        '{"username": "ada", "password": "hunter-two-22"}',
        "ada-secret=hunter-two-22",
        "/x?token=hunter-two-22",
    ):
        assert "hunter-two-22" not in redact_text(line)


def test_secrets_within_each_other_go_whole() -> None:
    note_secret("four-words")
    note_secret("four-words-and-more")
    note_secret('a"b,c=d&e')
    assert redact_text("it was four-words-and-more, four-words") == "it was …, …"
    assert redact_text('password="a"b,c=d&e"') == 'password=…"'
    assert redact_text("four-words-and-morefour-words") == "…"


def test_short_words_are_no_secrets() -> None:
    note_secret("admin")
    assert redact_text("admin signed in") == "admin signed in"


def test_every_handler_of_the_settings_hides_secrets(settings: Any) -> None:
    formatters: dict[str, Callable[..., Any] | str] = {
        name: entry["()"] for name, entry in settings.LOGGING["formatters"].items()
    }
    assert set(formatters.values()) == {"apps.core.logs.line_formatter", "apps.core.logs.bare_formatter"}


@pytest.mark.parametrize(
    "name", ["django", "django.request", "django.server", "uvicorn", "uvicorn.access", "sluice.access"]
)
def test_library_brings_no_handler_that_shows_secrets(name: str) -> None:
    handlers = [row for row in logging.getLogger(name).handlers if not type(row).__module__.startswith("_pytest")]
    assert all(isinstance(handler.formatter, RedactingFormatter) for handler in handlers), handlers
