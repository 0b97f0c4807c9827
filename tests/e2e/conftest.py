"""One running console per process, and the trace that its arrivals come from."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.e2e.installation import Api, Installation
from tests.servers import PATIENCE_S

_WAIT_MS = PATIENCE_S * 1000
expect.set_options(timeout=_WAIT_MS)

_SIGN_IN = """
import django
django.setup()
from django.test import Client
from apps.accounts.models import User
client = Client()
client.force_login(User.objects.get(username="admin"))
print(client.cookies["sessionid"].value)
"""
_BUILD_WORLD = """
import django, json, time
django.setup()
from apps.jobs.models import Job, JobState
from tests.apps.contracts.world import build_world

def wait_for_workers():
    while Job.objects.filter(state__in=[JobState.QUEUED, JobState.RUNNING]).exists():
        time.sleep(0.2)

print(json.dumps(build_world("contracts", wait_for_workers), default=str))
"""


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The console with everything it needs, ended with the test process."""
    installation = Installation(tmp_path_factory.mktemp("console"))
    try:
        installation.start()
        yield installation
    finally:
        installation.stop()


@pytest.fixture(scope="session")
def api(console: Installation) -> Api:
    """REST with an administrator's token."""
    return Api(console.url, console.token)


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests per second, as many as in the busiest hour of the World Cup 1998 trace."""
    made = tmp_path_factory.mktemp("trace") / "requests_per_second.csv"
    begin = datetime(1998, 6, 30, 20, tzinfo=UTC)
    with made.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["period", "count"])
        for second in range(5400):
            rate_eps = 3200 + 390 * math.sin(2 * math.pi * second / 4500)
            rows.writerow([f"{begin + timedelta(seconds=second):%Y-%m-%d %H:%M:%S}", round(rate_eps)])
    return made


@pytest.fixture(scope="session")
def signed_in(console: Installation) -> dict[str, Any]:
    """Options of a browser's context in which the administrator has signed in."""
    cookie = {"name": "sessionid", "value": console.script(_SIGN_IN).split()[-1], "domain": "127.0.0.1", "path": "/"}
    return {"base_url": console.url, "storage_state": {"cookies": [cookie], "origins": []}}


@pytest.fixture
def page(browser: Browser, signed_in: dict[str, Any]) -> Iterator[Page]:
    """Signed in as the administrator. The test fails if the browser's console had anything to complain about."""
    context = browser.new_context(**signed_in, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(_WAIT_MS)
    page = context.new_page()
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        # leaving a page ends what it was still fetching; htmx calls that an error
        is_abort = "htmx:sendAbort" in message.text or "htmx:afterRequest" in message.text
        if message.type in {"error", "warning"} and not is_abort:
            complaints.append(f"{page.url}: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    yield page
    context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def world(console: Installation) -> dict[str, Any]:
    """Rows of every kind in the console (`tests.apps.contracts.world`), by name."""
    return dict(json.loads(console.script(_BUILD_WORLD).splitlines()[-1]))
