"""Where a request comes from is the connection's address, unless a proxy that is configured says otherwise."""

from __future__ import annotations

import http.client
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.env import Env, EnvError
from launcher import services
from launcher.places import free_port
from tests.databases import copy_sqlite_template
from tests.e2e.installation import DjangoShell
from tests.servers import RedisServer, wait_until

ROOT = Path(__file__).resolve().parents[2]
_TOKEN = """
import django
django.setup()
from apps.accounts.services import token_create, user_create
user = user_create(username="ada", password="correct horse battery", role="admin")
print(token_create(user=user, name="office", scopes=["read"], networks=["203.0.113.0/24"])[1])
"""


class Web:
    """The process as `up` starts it, and a token that is bound to the network of an office."""

    def __init__(self, env: Mapping[str, str], token: str, proxies: str) -> None:
        self.token, self.port = token, free_port()
        env = {**env, "SLUICE_TRUSTED_PROXIES": proxies}
        command = services.web(self.port, env).command
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=quiet, stderr=quiet)
        wait_until(lambda: services.healthz(self.port), what="the console")

    def status(self, *forwarded: str) -> int:
        """Status of a request with the token and these `X-Forwarded-For` headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest("GET", "/api/v1/clusters")
        connection.putheader("Authorization", f"Bearer {self.token}")
        for addresses in forwarded:
            connection.putheader("X-Forwarded-For", addresses)
        connection.endheaders()
        try:
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], str]]:
    """Environment of an installation, and the secret of its token."""
    var_dir = tmp_path_factory.mktemp("office")
    redis = RedisServer(var_dir / "redis")
    redis.start()
    copy_sqlite_template(var_dir / "sluice.sqlite3")
    settled = {"SLUICE_VAR_DIR": str(var_dir), "REDIS_URL": redis.url, "DATABASE_URL": ""}
    env = os.environ | settled | {"DJANGO_SETTINGS_MODULE": "console.settings"}
    with closing(DjangoShell(env)) as shell:
        token = shell.run(_TOKEN).strip()
    yield env, token
    redis.stop()


@pytest.fixture
def web(office: tuple[dict[str, str], str]) -> Iterator[Callable[[str], Web]]:
    started: list[Web] = []

    def start(proxies: str) -> Web:
        started.append(Web(*office, proxies))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.mark.process
def test_header_of_anybody_on_the_machine_is_not_believed(web: Callable[[str], Web]) -> None:
    alone = web("")
    assert [alone.status(), alone.status("203.0.113.7"), alone.status("203.0.113.7, 127.0.0.1")] == [403, 403, 403]


@pytest.mark.process
def test_configured_proxy_is_believed_for_the_address_that_it_saw_itself(web: Callable[[str], Web]) -> None:
    behind = web("127.0.0.1,10.0.0.0/8")
    assert behind.status("203.0.113.7") == 200
    assert behind.status("203.0.113.7, 10.1.1.1") == 200  # two proxies in a row
    assert behind.status("203.0.113.7, 198.51.100.9") == 403  # the first address is the client's own claim
    assert behind.status("203.0.113.7", "198.51.100.9") == 403  # as two headers
    assert behind.status("nonsense") == 403
    assert behind.status() == 403


@pytest.mark.parametrize("proxies", ["*", "proxy.example", "10.0.0.0/33", "10.0.0.1;10.0.0.2"])
def test_only_addresses_and_networks_are_taken_for_proxies(proxies: str) -> None:
    with pytest.raises(EnvError, match="SLUICE_TRUSTED_PROXIES"):
        Env.read({"SLUICE_TRUSTED_PROXIES": proxies})


def test_no_proxy_is_trusted_unless_one_is_named() -> None:
    assert Env.read({}).trusted_proxies == []
    assert Env.read({"SLUICE_TRUSTED_PROXIES": "127.0.0.1, fd00::/8"}).trusted_proxies == ["127.0.0.1/32", "fd00::/8"]


@pytest.mark.parametrize("path", ["/healthz?live=1", "/api/v1/stream-processor/plan", "/metrics"])
def test_processes_beside_the_console_are_not_sent_to_https(
    path: str, client: Client, settings: Any, redis_url: str
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/login/").status_code == 301
    assert client.get(path).status_code in (200, 401)
