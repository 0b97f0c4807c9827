"""systemd and nginx read the files of hosts, and requests arrive as the console believes them."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.env import variable_of
from launcher.children import end_family, spawn
from launcher.places import free_port, is_port_free
from tests.apps.connections.engine_server import EngineServer, Reply, own_certificate, serve_engine
from tests.servers import wait_until

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
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
def proxy(web: EngineServer, tmp_path: Path) -> Iterator[int]:
    """nginx with the file of deploy/, on free ports, before that server and one that is away; its port of TLS."""
    secure, plain, away = free_port(), free_port(), free_port()
    text = (ROOT / "deploy" / "nginx" / "sluice.conf").read_text()
    text = re.sub(r"listen \[::\].*;\n", "", text).replace("443", f"127.0.0.1:{secure}")
    text = text.replace("listen 80", f"listen 127.0.0.1:{plain}").replace("127.0.0.1:8001", f"127.0.0.1:{away}")
    text = text.replace("127.0.0.1:8002", web.url.removeprefix("http://"))
    text = re.sub(r"/etc/ssl/sluice/\w+\.pem", str(own_certificate(tmp_path)), text)
    kept = " ".join(f"{name}_temp_path {tmp_path};" for name in ("proxy", "fastcgi", "uwsgi", "scgi", "client_body"))
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log {tmp_path}/access.log; {kept}\n{text}\n}}\n"
    )
    command = [str(NGINX), "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    process = spawn(command, tied=True)
    wait_until(lambda: not is_port_free(secure), what="nginx")
    yield secure
    end_family(process)


@pytest.mark.skipif(NGINX is None, reason="nginx reads its file; it is not here")
def test_request_arrives_with_the_address_and_scheme_that_the_proxy_saw(
    proxy: int, web: EngineServer, tmp_path: Path
) -> None:
    trusting = ssl.create_default_context(cafile=str(tmp_path / "engine.pem"))
    for path in ("/", "/api/v1/queries", "/webhooks/kubernetes/admission/prod/slu_secret"):
        connection = http.client.HTTPSConnection("127.0.0.1", proxy, context=trusting)
        claims = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http", "Host": "sluice.example.org"}
        connection.request("GET", path, headers=claims)
        assert connection.getresponse().status == 200  # though one of the two web processes is away
        connection.close()
        arrived = {name.lower(): value for name, value in web.headers[-1].items()}
        assert (arrived["x-forwarded-for"], arrived["x-forwarded-proto"]) == ("127.0.0.1", "https")
        assert arrived["host"] == "sluice.example.org"
    assert "slu_secret" not in (tmp_path / "access.log").read_text()
