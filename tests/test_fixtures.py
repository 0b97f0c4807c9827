"""The fixtures give what they promise."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from hypothesis.internal.conjecture import providers

from tests.environment import VAR_DIR
from tests.servers import RedisServer


@pytest.mark.django_db
def test_database_and_redis_belong_to_this_process() -> None:
    import redis
    from django.conf import settings
    from django.db import connection

    assert str(connection.settings_dict["NAME"]).startswith((str(VAR_DIR), "test_"))
    assert os.environ["REDIS_URL"] == settings.REDIS_URL
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        assert client.ping()


def test_a_killed_redis_comes_back_with_its_data(redis_server: RedisServer) -> None:
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("appendfsync", "always")
        client.set("kept", "yes")
        redis_server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        redis_server.start()
        assert client.get("kept") == b"yes"


@pytest.mark.postgres
def test_django_runs_on_postgresql_in_all_threads(postgres_db: str) -> None:
    from django.db import connection, connections

    vendors: list[str] = []

    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM django_migrations")
            vendors.append(f"{connection.vendor} {cursor.fetchone()[0] > 0}")
        connections.close_all()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    look()
    assert vendors == ["postgresql True", "postgresql True"]


@pytest.mark.e2e
def test_chromium_opens_a_page(browser: Any) -> None:
    page = browser.new_page()
    page.goto("data:text/html,<h1>Sluice</h1>")
    assert page.inner_text("h1") == "Sluice"
    page.close()


def test_group_of_a_test_reaches_the_processes(request: pytest.FixtureRequest) -> None:
    """Else each test goes to any process, and what the tests of a file share is made in each."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("one process, or a choice of the caller's")
    assert request.node.nodeid.endswith("@test_fixtures")


def test_hypothesis_parses_no_module_for_constants() -> None:
    assert len(providers._get_local_constants()) == 0
