"""Fixtures for every test. Servers start when a test first asks for them, so the engine's tests run without any."""

from __future__ import annotations

import os
import shutil
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from launcher.engines.flink_package import find_flink
from launcher.engines.prometheus import find_prometheus
from tests.databases import (
    copy_sqlite_template,
    django_on,
    drop_postgres_template,
    postgres_template,
    scratch_database,
)
from tests.environment import VAR_DIR
from tests.servers import RedisServer

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
POSTGRES_URL = os.environ.get("SLUICE_TEST_POSTGRES_URL", "")
LACKING = {
    "e2e": None if CHROMIUM else "Chromium is not installed: tests in the browser are skipped",
    "postgres": None if POSTGRES_URL else "No PostgreSQL server: tests on PostgreSQL are skipped",
    "prometheus": None if find_prometheus() else "No Prometheus was fetched: tests on a real one are skipped",
    "flink": None if find_flink() else "No Flink was fetched: tests on a real Flink are skipped",
}

# No test hangs on how busy the host is.
settings.register_profile("sluice", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sluice")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, reason in LACKING.items():
        if reason is None or item.get_closest_marker(mark) is None:
            continue
        if os.environ.get("SLUICE_REQUIRE_ALL") == "1":
            pytest.fail(f"{reason.split(':')[0]}, and SLUICE_REQUIRE_ALL=1 allows no skip", pytrace=False)
        pytest.skip(reason)


def pytest_unconfigure(config: pytest.Config) -> None:
    if POSTGRES_URL and not hasattr(config, "workerinput"):
        drop_postgres_template(POSTGRES_URL)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for reason in filter(None, LACKING.values()):
        if count := sum(reason in text for text in skipped):
            terminalreporter.write_line(
                f"!!! {reason} ({count}). `./sluice doctor` says how to mend it.", yellow=True, bold=True
            )


# -- Secrets of the process


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that other tests of this process signed in with would be taken out of this one's texts, too."""
    if redaction := sys.modules.get("engine.redaction"):
        monkeypatch.setattr(redaction, "_noted", OrderedDict())


# -- Django


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """SQLite in a file: several connections to one in-memory database lock each other out, unlike the real thing."""
    from django.conf import settings

    default = settings.DATABASES["default"]
    if default["ENGINE"].endswith("sqlite3"):
        copy = VAR_DIR / "test.sqlite3"
        copy_sqlite_template(copy)
        default.setdefault("TEST", {})["NAME"] = str(copy)


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """A copy of the migrated template is taken as it is."""
    from django.conf import settings

    return bool(settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"))


@pytest.fixture(autouse=True)
def _redis_beside_database(request: pytest.FixtureRequest) -> None:
    """Code that writes to the database announces it over Redis: whoever has the one has the other."""
    marked = request.node.get_closest_marker("django_db") is not None
    if marked or {"db", "transactional_db", "django_db_reset_sequences", "live_server"} & set(request.fixturenames):
        request.getfixturevalue("redis_url")


# -- Redis


@pytest.fixture(scope="session")
def _redis_client(_redis_server: str) -> Iterator[Any]:
    import redis

    with redis.Redis.from_url(_redis_server) as client:
        yield client


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[str]:
    url = os.environ["REDIS_URL"]
    if os.environ.get("SLUICE_TEST_REDIS_URL"):
        from django.conf import settings

        # channels ignore database numbers: the prefix keeps the workers apart
        settings.CHANNEL_LAYERS["default"]["CONFIG"]["prefix"] = f"sluice-{WORKER}"
        yield url
        return
    server = RedisServer(VAR_DIR / "redis", port=int(url.rsplit(":", 1)[1].split("/")[0]))
    server.start()
    yield url
    server.stop()


@pytest.fixture
def redis_url(_redis_server: str, _redis_client: Any) -> str:
    """URL of an empty Redis database that belongs to this process; it is the one `settings.REDIS_URL` names."""
    _redis_client.flushdb()
    return _redis_server


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A running server of the test's own, which it may stop, kill and start again."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


# -- PostgreSQL


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """URL of an empty PostgreSQL database of the test's own. Mark the test `postgres`."""
    with scratch_database(POSTGRES_URL) as url:
        yield url


@pytest.fixture
def postgres_db(redis_url: str, django_db_blocker: Any) -> Iterator[str]:
    """Django on a migrated PostgreSQL database of the test's own, in all threads; yields its URL for other processes.

    Mark the test `postgres`, and not `django_db`: everything it does is really committed. Threads that a test starts
    close their connections themselves (`django.db.connections.close_all()`).
    """
    with (
        scratch_database(POSTGRES_URL, postgres_template(POSTGRES_URL)) as url,
        django_db_blocker.unblock(),
        django_on(url),
    ):
        yield url


# -- browser


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the Chromium to drive. Mark the test `e2e`."""
    assert CHROMIUM, "mark tests that use the browser with @pytest.mark.e2e"
    return CHROMIUM


CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # a page lives for seconds: what optimises its scripts costs more than it saves
    "--js-flags=--max-lazy --no-opt --no-maglev --no-use-osr --single-threaded-gc",
]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A headless Chromium under Playwright's synchronous interface.

    It ends with the file: while it runs, so does an event loop in the test's own thread, beside which asynchronous
    tests of other files cannot run.
    """
    from playwright.sync_api import sync_playwright

    # its event loop runs in the test's own thread, so Django would take the test for asynchronous code
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
        yield running
        running.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
