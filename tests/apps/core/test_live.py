"""Changes reach open pages; health says what is gone; nothing fails because Redis is."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import connections, transaction
from django.test import Client

from apps.accounts.grants import grant_give, grant_take
from apps.accounts.models import User
from apps.accounts.services import password_set, user_update
from apps.accounts.teams import team_named
from apps.core import consumers, events
from apps.core.events import announce
from apps.core.health import worker_beat
from apps.core.logs import line_formatter
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.signin.models import Session
from tests.apps.core.sockets import Socket
from tests.apps.people import person
from tests.apps.small_cluster import small_cluster
from tests.servers import PATIENCE_S, RedisServer

GONE = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _speaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is to be made up for at the beginning, nor by the tests that follow."""
    monkeypatch.setattr(events, "_resend_pending", None)
    yield
    if events._resend_pending is not None:
        events._resend_pending.cancel()


def socket(cookie: str = "", origin: str = "http://localhost") -> Socket:
    from console.asgi import application

    headers = [(b"origin", origin.encode()), (b"host", b"localhost"), (b"cookie", cookie.encode())]
    return Socket(application, "/ws/", headers)


@pytest.fixture
def signed_in(transactional_db: None) -> str:
    return cookie_of(person("ada"))


def cookie_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return f"{django_settings.SESSION_COOKIE_NAME}={client.cookies[django_settings.SESSION_COOKIE_NAME].value}"


@pytest.fixture
async def _closing() -> AsyncIterator[None]:
    """Close the database connection of the thread in which asynchronous code runs what is not."""
    yield
    await sync_to_async(connections.close_all)()


@pytest.mark.usefixtures("_closing")
async def test_open_pages_are_notified_of_committed_changes_once(signed_in: str) -> None:
    page = socket(signed_in)
    assert await page.connect()
    assert await page.hear() == {"ready": True}

    def change() -> None:
        with transaction.atomic():
            announce("cluster:a")
            announce("cluster:a")
            announce("jobs")
        with transaction.atomic():
            announce("rolled back")
            transaction.set_rollback(True)

    await sync_to_async(change)()
    assert await page.hear() == {"changed": "cluster:a"}
    assert await page.hear() == {"changed": "jobs"}
    assert await page.receive_nothing()
    await page.disconnect()


@pytest.mark.usefixtures("_closing")
async def test_page_of_a_team_is_told_of_what_it_owns_until_its_role_is_another(transactional_db: None) -> None:
    """Queries of others are not named on the socket, neither in the same cluster nor in another."""

    def build() -> tuple[User, str]:
        here, _ = small_cluster("here"), small_cluster("there")
        team = team_named("bids")
        for name, owner in (("own", team), ("zqcanaryzqzq", None)):
            Query.objects.create(cluster=here, name=name, team=owner)
        user = User.objects.create_user("ada")
        grant_give(user=user, role="author", team=team)
        return user, cookie_of(user)

    def change() -> None:
        for topic in ("query:here/zqcanaryzqzq", "cluster:there", "query:there/own", "query:here/own", "cluster:here"):
            announce(topic)

    user, cookie = await sync_to_async(build)()
    page = socket(cookie)
    assert await page.connect()
    assert await page.hear() == {"ready": True}
    await sync_to_async(change)()
    assert [await page.hear(), await page.hear()] == [{"changed": "query:here/own"}, {"changed": "cluster:here"}]
    assert await page.receive_nothing()

    def move() -> None:
        grant_give(user=user, role="viewer", cluster=Cluster.objects.get(slug="there"))
        grant_take(grant=user.grants.get(cluster=None))
        announce("query:here/own")
        announce("query:there/other")

    await sync_to_async(move)()
    assert await page.hear() == {"changed": "query:there/other"}
    await page.disconnect()


@pytest.mark.usefixtures("_closing")
async def test_page_is_told_of_a_topic_at_once_and_of_what_follows_once(
    signed_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "COALESCED_S", 0.4)
    page = socket(signed_in)
    assert await page.connect()
    assert await page.hear() == {"ready": True}
    for _ in range(20):
        await sync_to_async(announce)("cluster:a")
    await sync_to_async(announce)("jobs")
    assert [await page.hear() for _ in range(3)] == [
        {"changed": "cluster:a"},
        {"changed": "jobs"},
        {"changed": "cluster:a"},
    ]
    assert await page.receive_nothing(timeout=1.0)
    await page.disconnect()


@pytest.mark.usefixtures("_closing")
async def test_transaction_of_very_many_topics_is_one_message(signed_in: str) -> None:
    page = socket(signed_in)
    assert await page.connect()
    assert await page.hear() == {"ready": True}

    def change() -> None:
        with transaction.atomic():
            for i in range(events.MAX_TOPICS + 1):
                announce(f"query:a/{i}")

    await sync_to_async(change)()
    assert await page.hear() == {"changed": "*"}
    assert await page.receive_nothing()
    await page.disconnect()


@pytest.mark.usefixtures("_closing")
async def test_websocket_without_login_is_closed_with_4401(transactional_db: None) -> None:
    page = socket()
    assert await page.connect()
    assert (await page.hear())["code"] == 4401


def _sign_out(cookie: str) -> None:
    client = Client()
    client.cookies.load(cookie)
    assert client.post("/logout/").status_code == 302


def _change_own_password(cookie: str) -> None:
    """In another browser of the same person."""
    user = User.objects.get(username="ada")
    user.set_password("a long password")
    user.save()
    other = Client()
    other.force_login(user)
    asked = {"current": "a long password", "password": "correct horse battery", "again": "correct horse battery"}
    assert other.post("/settings/password/", asked).status_code == 302
    assert other.get("/settings/").status_code == 200  # this session goes on


def _reset_by_an_administrator(cookie: str) -> None:
    admin, ada = person("root", "admin"), User.objects.get(username="ada")
    password_set(user=ada, password="correct horse battery", by=admin)


def _switch_off(cookie: str) -> None:
    admin, ada = person("root", "admin"), User.objects.get(username="ada")
    user_update(user=ada, by=admin, is_active=False)


@pytest.mark.parametrize("end", [_sign_out, _change_own_password, _reset_by_an_administrator, _switch_off])
@pytest.mark.usefixtures("_closing")
async def test_open_page_hears_nothing_more_when_its_session_ends(signed_in: str, end: Any) -> None:
    page = socket(signed_in)
    assert await page.connect()
    assert await page.hear() == {"ready": True}
    await sync_to_async(end)(signed_in)
    assert (await page.hear())["code"] == 4401
    await sync_to_async(announce)("jobs")
    assert await page.receive_nothing()


@pytest.mark.usefixtures("_closing")
async def test_open_page_of_another_session_goes_on_when_one_signs_out(signed_in: str) -> None:
    page = socket(signed_in)
    assert await page.connect()
    assert await page.hear() == {"ready": True}

    def sign_out_elsewhere() -> None:
        other = Client()
        other.force_login(User.objects.get(username="ada"))
        other.post("/logout/")
        announce("jobs")

    await sync_to_async(sign_out_elsewhere)()
    assert await page.hear() == {"changed": "jobs"}
    await page.disconnect()


@pytest.mark.usefixtures("_closing")
async def test_session_that_ended_without_a_word_closes_the_page_by_itself(
    signed_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "SESSION_CHECK_S", 0.05)
    page = socket(signed_in)
    assert await page.connect()
    assert await page.hear() == {"ready": True}
    await sync_to_async(Session.objects.all().delete)()
    assert (await page.hear())["code"] == 4401


@pytest.mark.usefixtures("_closing")
async def test_other_origins_are_refused(signed_in: str) -> None:
    assert not await socket(signed_in, "http://evil.example").connect()


@pytest.mark.usefixtures("_closing")
async def test_without_redis_pages_are_told_to_try_later(signed_in: str, settings: Any) -> None:
    settings.CHANNEL_LAYERS = _layers(GONE)
    page = socket(signed_in)
    assert await page.connect()
    assert (await page.hear())["code"] == 1013


def _layers(url: str) -> dict[str, Any]:
    return {"default": {**django_settings.CHANNEL_LAYERS["default"], "CONFIG": {"hosts": [url], "prefix": "gone"}}}


@pytest.mark.django_db(transaction=True)
def test_announcing_without_redis_changes_nothing_for_the_caller(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.CHANNEL_LAYERS = _layers(GONE)
    announce("jobs")
    announce("cluster:a")
    warnings = [record for record in caplog.records if record.name == "apps.core.events"]
    assert len(warnings) == 1  # the second was not even tried


@pytest.mark.usefixtures("_closing")
async def test_missed_announcements_are_sent_later(
    signed_in: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_PAUSE_S", 0.2)
    page = socket(signed_in)
    assert await page.connect()
    assert await page.hear() == {"ready": True}
    here = settings.CHANNEL_LAYERS
    settings.CHANNEL_LAYERS = _layers(GONE)
    await sync_to_async(announce)("jobs")
    settings.CHANNEL_LAYERS = here
    assert await page.hear() == {"changed": "*"}
    await sync_to_async(announce)("jobs")
    assert await page.hear() == {"changed": "jobs"}
    await page.disconnect()


@pytest.mark.django_db
def test_health_names_the_unreachable_parts(client: Client, settings: Any) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "degraded",
        "database": "ok",
        "redis": "ok",
        "worker": "gone",
        "background": "gone",
        "migrations": "ok",
        "down": ["background", "worker"],
    }
    assert client.get("/healthz?full=1").status_code == 503
    worker_beat(["background"])
    assert client.get("/healthz").json()["down"] == ["worker"], "a worker serves its own queue alone"
    worker_beat(["interactive"])
    assert client.get("/healthz?full=1").json()["status"] == "ok"

    settings.REDIS_URL = GONE
    assert client.get("/healthz").status_code == 200
    answer = client.get("/healthz?full=1")
    assert (answer.status_code, answer.json()["redis"]) == (503, "gone")


def test_a_process_lives_whatever_is_away(client: Client) -> None:
    answer = client.get("/healthz?live=1")  # the test has no database, and any look at it would fail
    assert (answer.status_code, answer.json()) == (200, {"status": "live"})


@pytest.mark.django_db
@pytest.mark.process
def test_redis_that_takes_no_writes_is_not_well(client: Client, redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_URL = redis_server.url
    worker_beat(["interactive", "background"])
    with redis.Redis.from_url(redis_server.url) as server:
        server.config_set("maxmemory", 1)
        answer = client.get("/healthz?full=1")
        assert (answer.status_code, answer.json()["redis"], answer.json()["down"]) == (503, "full", ["redis"])
        server.config_set("maxmemory", 0)
        server.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert client.get("/healthz").json()["redis"] == "readonly"
        server.execute_command("REPLICAOF", "NO", "ONE")
        assert client.get("/healthz?full=1").json()["redis"] == "ok"


@pytest.mark.usefixtures("_closing")
async def test_sockets_open_while_the_thread_that_all_share_is_busy(signed_in: str) -> None:
    release = threading.Event()
    busy = asyncio.create_task(sync_to_async(release.wait)(PATIENCE_S))
    await asyncio.sleep(0)
    pages = [socket(signed_in) for _ in range(20)]
    try:
        opened = await asyncio.gather(*(page.connect() for page in pages))
        said = [await page.hear() for page in pages]
    finally:
        release.set()
        await busy
        for page in pages:
            await page.disconnect()
    assert all(opened) and said == [{"ready": True}] * 20


@pytest.mark.parametrize(("path", "word"), [("/api/v1/jobs", b"too_large"), ("/c/x/arrivals/", b"<h1>413")])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_not_kept(declared: bool, path: str, word: bytes, settings: Any) -> None:
    from console.asgi import application

    settings.UPLOAD_MAX_BYTES = 1000
    sent: list[dict[str, Any]] = []
    chunks = 0

    async def receive() -> dict[str, Any]:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b"x" * 500_000, "more_body": chunks < 100}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), *([(b"content-length", b"50000000")] if declared else [])]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    await application(scope, receive, send)
    assert sent[0]["status"] == 413
    assert word in sent[1]["body"]
    assert chunks == 100  # all of it is taken, so that the client comes to reading the answer, and nothing kept


@pytest.mark.django_db
def test_the_index_lists_what_there_is(api: Any) -> None:
    index = api.get("/api/v1/").json()
    assert index["jobs"] == "/api/v1/jobs"
    assert index["tokens"] == "/api/v1/tokens"


def test_log_lines_carry_the_request() -> None:
    line = line_formatter().format(
        logging.makeLogRecord(
            {"name": "django.request", "levelno": logging.WARNING, "levelname": "WARNING", "msg": "Conflict: /x"}
            | {"request": SimpleNamespace(request_id="abc-1")}
        )
    )
    assert "Conflict: /x" in line
    assert "request_id=abc-1" in line
