"""systemd and nginx read the files of hosts, and requests arrive as the console believes them."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.core.problem_details import PROBLEM_TITLES
from console.env import variable_of
from launcher.places import free_port
from tests.apps.connections.engine_server import EngineServer, Reply, serve_engine
from tests.deploy.proxies import NGINX, Proxy, serve_proxy

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
PROCESSES = {"web@", "worker", "background", "beat", "stream", "migrate"}

pytestmark = pytest.mark.process


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze reads the units; it is not here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        name = unit.name.replace("@.", "@8001.")
        (tmp_path / name).write_text(unit.read_text().replace("/opt/sluice", str(ROOT)))
    command = ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_every_process_has_a_unit_that_is_locked_down() -> None:
    texts = {unit.stem.removeprefix("sluice-"): unit.read_text() for unit in UNITS if unit.suffix == ".service"}
    assert set(texts) == PROCESSES
    for text in texts.values():
        assert {"User=sluice", "NoNewPrivileges=yes", "ProtectSystem=strict"} <= set(text.splitlines())
        assert variable_of("var_dir") in text


def test_web_processes_share_no_access_log() -> None:
    text = (ROOT / "deploy" / "systemd" / "sluice-web@.service").read_text()
    assert "BindPaths=/var/lib/sluice/log-%i:/var/lib/sluice/log\n" in text


@pytest.fixture
def web() -> Iterator[EngineServer]:
    """A server in place of one web process."""
    with serve_engine() as server:
        server.default = Reply({"served": True})
        yield server


@pytest.fixture
def proxy(web: EngineServer, tmp_path: Path) -> Iterator[Proxy]:
    """nginx before that server and one that is away."""
    with serve_proxy(tmp_path, free_port(), int(web.url.rpartition(":")[2])) as served:
        yield served


@pytest.mark.skipif(NGINX is None, reason="nginx reads its file; it is not here")
def test_request_arrives_with_the_address_and_scheme_that_the_proxy_saw(proxy: Proxy, web: EngineServer) -> None:
    trusting = ssl.create_default_context(cafile=str(proxy.certificate))
    for path in ("/", "/api/v1/queries", "/webhooks/kubernetes/admission/prod/slu_secret"):
        connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=trusting)
        claims = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http", "Host": "sluice.example.org"}
        connection.request("GET", path, headers=claims)
        assert connection.getresponse().status == 200  # though one of the two web processes is away
        connection.close()
        arrived = {name.lower(): value for name, value in web.headers[-1].items()}
        assert (arrived["x-forwarded-for"], arrived["x-forwarded-proto"]) == ("127.0.0.1", "https")
        assert arrived["host"] == "sluice.example.org"
    assert "slu_secret" not in proxy.access_log.read_text()


@pytest.mark.skipif(NGINX is None, reason="nginx reads its file; it is not here")
def test_proxy_says_when_to_come_back_while_no_web_process_serves(tmp_path: Path) -> None:
    with serve_proxy(tmp_path) as served:
        trusting = ssl.create_default_context(cafile=str(served.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", served.port, context=trusting)
        connection.request("POST", "/api/v1/estimates", body="{}")
        answer = connection.getresponse()
        problem = json.loads(answer.read())
        connection.close()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert {"code": problem["code"], "title": problem["title"]} == {
        "code": "unavailable",
        "title": PROBLEM_TITLES["unavailable"],
    }
