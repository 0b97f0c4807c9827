"""The layout that docs/operations.md describes for hosts with systemd, while parts of it die, restart and are upgraded.

Its variables, the commands of its units and its proxy, without systemd and without a password of Redis. PostgreSQL,
Redis, nginx and every process of Sluice are real.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from launcher.services import healthz
from tests.apps.core.upgrade.sample import load_postgresql
from tests.conftest import POSTGRES_URL
from tests.databases import postgres_template, scratch_database
from tests.deploy.proxies import NGINX, Proxy, serve_proxy
from tests.e2e.installation import PASSWORD, ROOT, SMALL_QUESTION, Installation
from tests.servers import PATIENCE_S, RedisServer, wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.process,
    pytest.mark.skipif(NGINX is None, reason="nginx is the proxy of this layout; it is not here"),
]
HOST = "sluice.example.org"
_PAGE = (ROOT / "docs" / "operations.md").read_text().split("\n## On hosts with systemd\n")[1].split("\n## ")[0]


def documented_variables(**instead: str) -> dict[str, str]:
    """The file of variables that the page has one write, with these values of this machine."""
    text = re.search(r"sluice\.env <<END\n(.*?)END\n", _PAGE, re.DOTALL)
    assert text is not None
    return dict(line.split("=", 1) for line in text[1].splitlines()) | instead


def commands_of(unit: str, host: str = "", instance: str = "") -> list[list[str]]:
    """Commands that systemd would start of a unit: arguments behind the interpreter."""
    text = (ROOT / "deploy" / "systemd" / f"sluice-{unit}.service").read_text().replace("%%h", host)
    lines = re.findall(r"^ExecStart=/opt/sluice/\.venv/bin/python -P (.*)$", text.replace("%i", instance), re.MULTILINE)
    return [line.split() for line in lines]


class Client:
    """A browser and a program behind the proxy; keeps what it sent and every answer it was given."""

    def __init__(self, proxy: Proxy, token: str = "none-yet", wait_s: int = 0) -> None:
        self._trusting = ssl.create_default_context(cafile=str(proxy.certificate))
        self._trusting.check_hostname = False  # the certificate is of the address, the request for the name
        self._port = proxy.port
        self.http = httpx.Client(
            base_url=f"https://127.0.0.1:{proxy.port}",
            verify=self._trusting,
            headers={"Host": HOST, "Referer": f"https://{HOST}/"},
            timeout=60,
        )
        self.token = token
        self._wait = {"Prefer": f"wait={wait_s}"} if wait_s else {}  # so long a submission may stay in hand
        self.answers: Counter[tuple[str, int, bool]] = Counter()
        self.jobs: dict[str, str] = {}
        self._cookie = ""
        self._is_over = threading.Event()
        self._submitting = threading.Thread(target=self._submit)

    def sign_in(self) -> str:
        """By the form, as a person would; the page that opens."""
        form = self.http.get("/login/").text
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
        assert found is not None
        fields = {"csrfmiddlewaretoken": found[1], "username": "admin", "password": PASSWORD}
        assert self.http.post("/login/", data=fields).status_code == 302
        self._cookie = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.http.cookies.jar)
        return self.http.get("/", follow_redirects=True).raise_for_status().text

    def open_socket(self) -> ClientConnection:
        """A page's WebSocket, subscribed; asked for again where no web process answers at once."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                opened = connect(
                    f"wss://{HOST}/ws/",
                    sock=socket.create_connection(("127.0.0.1", self._port)),
                    ssl=self._trusting,
                    origin=Origin(f"https://{HOST}"),
                    additional_headers={"Cookie": self._cookie},
                    legacy=True,  # a connection that outlives a block
                )
                assert opened.recv(timeout=30) == '{"ready": true}'
                return opened
            except InvalidStatus as refusal:
                if refusal.response.status_code != 503 or time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def ask(self, method: str, path: str, **rest: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", **rest.pop("headers", {})}
        answer = self.http.request(method, f"/api/v1/{path}", headers=headers, **rest)
        self.answers[method, answer.status_code, "Retry-After" in answer.headers] += 1
        return answer

    def start(self) -> None:
        self._submitting.start()

    def stop(self) -> None:
        self._is_over.set()
        self._submitting.join()

    def _submit(self) -> None:
        """One estimate after the other, sent again with its key until it is taken, and the list of them between."""
        while not self._is_over.is_set():
            key = uuid.uuid4().hex
            headers = {"Idempotency-Key": key, **self._wait}
            while (answer := self.ask("POST", "estimates", json=SMALL_QUESTION, headers=headers)).is_error:
                time.sleep(0.2)
            at = answer.headers.get("Location") or answer.headers["Content-Location"]
            self.jobs[key] = at.rpartition("/")[2]  # id of the job, or of its result
            self.ask("GET", "jobs?page_size=5")
            time.sleep(0.1)


def is_open(one: ClientConnection) -> bool:
    """Whether a socket is still there, once what was sent through it is read."""
    try:
        one.ping().wait(10)
        one.recv(timeout=0.5)
    except TimeoutError:
        return True
    except ConnectionClosed:
        return False
    return True


class Layout:
    """Two hosts that share PostgreSQL, Redis and the data folder."""

    def __init__(self, folder: Path, database_url: str, redis: RedisServer) -> None:
        self.installed = Installation(folder, redis)
        given = documented_variables(
            DATABASE_URL=database_url, REDIS_URL=redis.url, SLUICE_SECRET_KEY=uuid.uuid4().hex * 2
        )
        self.installed.env |= given
        self.database_url = database_url

    def migrate(self) -> None:
        """Do as the unit of migrations does, and make the first administrator."""
        admin = ["manage.py", "create_admin", "--password-from-env", "E2E_PASSWORD"]
        for command in [*commands_of("migrate"), admin]:
            done = subprocess.run(
                [sys.executable, "-P", *command], cwd=ROOT, env=self.installed.env, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr

    def run(self, unit: str, host: str, port: int = 0) -> str:
        """Start a unit's process; its name."""
        ((dash_m, *command),) = commands_of(unit, host, str(port))
        assert dash_m == "-m"
        name = f"{unit}{host}{port or ''}"
        self.installed.run(name, command)
        return name

    def has_said(self, name: str, text: str) -> None:
        wait_until(lambda: text in self.installed.log(name), what=f"{text!r} of {name}")

    def make_token(self) -> str:
        """The secret of a program's token."""
        return self.installed.script(
            "import django\ndjango.setup()\nfrom django.core.management import call_command\n"
            "call_command('create_token', name='program', scopes='read,operate,admit')"
        ).split()[-1]

    def restart(self, unit: str, name: str, host: str = "", port: int = 0) -> None:
        """Do as `systemctl restart` does: end it in order, within the time that its unit gives, and start it."""
        text = (ROOT / "deploy" / "systemd" / f"sluice-{unit}.service").read_text()
        stop_s = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        self.installed.end(name, float(stop_s[0]) if stop_s else 90.0)
        self.run(unit, host, port)

    def rows(self, sql: str, *values: Any) -> list[Any]:
        with closing(psycopg.connect(self.database_url)) as connection:
            return connection.execute(sql, values).fetchall()


@pytest.fixture
def layout(tmp_path: Path, redis_server: RedisServer) -> Iterator[Layout]:
    with scratch_database(POSTGRES_URL, postgres_template(POSTGRES_URL)) as url:
        made = Layout(tmp_path, url, redis_server)
        try:
            yield made
        finally:
            made.installed.stop()


def test_nothing_is_lost_while_web_redis_and_beat_are_killed_in_turn(layout: Layout, tmp_path: Path) -> None:
    layout.migrate()
    installed = layout.installed
    with serve_proxy(tmp_path / "nginx") as proxy:
        webs = {port: layout.run("web@", "", port) for port in proxy.upstreams}
        workers = [
            layout.run(unit, host) for unit, host in (("worker", "one"), ("worker", "two"), ("background", "one"))
        ]
        first_beat = layout.run("beat", "one")
        layout.has_said(first_beat, "Sending due task")
        second_beat = layout.run("beat", "two")
        layout.has_said(second_beat, "standing by")
        for name in workers:
            layout.has_said(name, " ready.")
        client = Client(proxy, layout.make_token())

        page = client.sign_in()
        files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
        assert files and {client.http.get(file).status_code for file in files} == {200}

        client.start()
        try:
            sockets = [client.open_socket() for _ in range(4)]
            for port, name in webs.items():  # one after the other; what broke is opened on the one that is left
                installed.kill(name)
                sockets = [one if is_open(one) else client.open_socket() for one in sockets]
                layout.run("web@", "", port)
                wait_until(lambda port=port: healthz(port), what=f"the web process on port {port}")
            served = client.answers.copy()
            assert {status for method, status, _ in served if method == "GET"} == {200}

            layout.installed.redis.stop()
            wait_until(lambda: client.answers["POST", 503, True], what="a refusal while Redis is away")
            layout.installed.redis.start()
            taken = len(client.jobs)
            wait_until(lambda: len(client.jobs) > taken + 2, what="submissions after Redis came back")

            assert "Sending due task" not in installed.log(second_beat)
            installed.kill(first_beat)
            layout.has_said(second_beat, "Sending due task")
        finally:
            client.stop()

        for one in sockets:
            one.close()
        listening = client.open_socket()
        assert client.ask("POST", "clusters", json={"slug": "after", "name": "After"}).status_code == 201
        assert "changed" in listening.recv(timeout=60)
        listening.close()

        assert {(status, may_come_back) for _, status, may_come_back in client.answers if status >= 400} <= {
            (503, True)
        }
        open_jobs = "SELECT count(*) FROM jobs_job WHERE state IN ('queued', 'running')"
        wait_until(lambda: layout.rows(open_jobs) == [(0,)], what="the end of every job")
        states = dict(layout.rows("SELECT id::text, state FROM jobs_job WHERE requested_by_id IS NOT NULL"))
        assert states == dict.fromkeys(client.jobs.values(), "succeeded")
        client.http.close()


@pytest.fixture
def released(tmp_path: Path, redis_server: RedisServer, postgres_url: str) -> Iterator[Layout]:
    """The layout with the database of the first release, not upgraded yet."""
    load_postgresql("0.2.0", postgres_url)
    made = Layout(tmp_path, postgres_url, redis_server)
    made.installed.env["SLUICE_LOG_FORMAT"] = "json"
    try:
        yield made
    finally:
        made.installed.stop()


def test_clients_ask_on_through_an_upgrade_and_a_rolling_restart(released: Layout, tmp_path: Path) -> None:
    with serve_proxy(tmp_path / "nginx") as proxy:
        clients = (Client(proxy), Client(proxy, wait_s=2))
        for client in clients:
            client.start()
        try:
            wait_until(lambda: clients[0].answers["POST", 503, True] > 2, what="being sent away while nothing serves")
            released.migrate()
            clients[0].token = clients[1].token = released.make_token()
            webs = {port: released.run("web@", "", port) for port in proxy.upstreams}
            others = {unit: released.run(unit, "one") for unit in ("worker", "background", "beat")}
            for client in clients:
                wait_until(lambda client=client: len(client.jobs) > 2, what="submissions after the upgrade")
                client.answers.clear()

            for port, name in webs.items():
                released.restart("web@", name, port=port)
                wait_until(lambda port=port: healthz(port), what=f"the web process on port {port}")
            for unit, name in others.items():
                released.restart(unit, name, "one")
            for client in clients:
                taken = len(client.jobs)
                wait_until(lambda client=client, taken=taken: len(client.jobs) > taken + 2, what="submissions go on")
        finally:
            for client in clients:
                client.stop()
                client.http.close()

    answers = clients[0].answers + clients[1].answers
    assert {status for method, status, _ in answers if method == "GET"} == {200}
    refused = Counter({key: count for key, count in answers.items() if key[1] >= 400})
    # what a client sends in the very moment in which a process closes its door may be sent away, and is never lost
    assert set(refused) <= {("POST", 503, True)} and refused.total() <= len(webs) * len(clients), answers
    asked = sorted({made for client in clients for made in client.jobs.values()})
    # by the job's id, or by that of the result that answered at once: /api/v1/estimates/documents/ID
    mine = "FROM jobs_job WHERE id::text = ANY(%s) OR split_part(result_api_url, '/', 6) = ANY(%s)"
    states = f"SELECT state, count(*) {mine} GROUP BY state"
    wait_until(lambda: released.rows(states, asked, asked) == [("succeeded", len(asked))], what="the end of every job")
    lines = [json.loads(line) for line in released.installed.log("workerone").splitlines() if line.startswith("{")]
    done = {line.get("request_id") for line in lines if "workers.estimate_document" in line["message"]}
    assert {request_id for (request_id,) in released.rows(f"SELECT request_id {mine}", asked, asked)} <= done
