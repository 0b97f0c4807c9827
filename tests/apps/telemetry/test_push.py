"""The WebSocket of the agents: who may listen, what is told and to whom, with real channels over a real Redis."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import connections, transaction

from apps.telemetry import configs
from apps.telemetry.agent_services import Enrolled, agent_delete, agent_enrol, agent_update, enrolment_create
from apps.telemetry.configs import agent_config, fixed_settings, push
from apps.telemetry.live_services import assignment_set
from apps.telemetry.models import Agent
from tests.apps.core.sockets import Socket
from tests.apps.domain import make_cluster
from tests.apps.telemetry.world import enrolled, live_at, probing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_closing")]

GONE = "redis://127.0.0.1:1/0"


@pytest.fixture
async def _closing() -> AsyncIterator[None]:
    """Close the database connection of the thread in which asynchronous code runs what is not."""
    yield
    await sync_to_async(connections.close_all)()


@pytest.fixture(autouse=True)
def _speaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that one test could not say keeps the next quiet."""
    monkeypatch.setattr(configs, "_not_before", 0.0)


def socket(secret: str | None, host: str = "localhost") -> Socket:
    from console.asgi import application

    headers = [(b"host", host.encode())]
    if secret is not None:
        headers.append((b"authorization", f"Bearer {secret}".encode()))
    return Socket(application, "/ws/agents/", headers)


async def connected(joined: Enrolled) -> tuple[Socket, int]:
    """An agent's connection, and the version that it was told first."""
    made = socket(joined.secret)
    assert await made.connect()
    return made, (await made.hear())["config_version"]


def at_once(function: Callable[[], Any]) -> Any:
    return sync_to_async(function)()


async def test_agent_receives_its_config_version_and_each_change_once() -> None:
    live, (one, two) = await at_once(lambda: live_at(probing(), "a1", "a2"))
    first, version = await connected(one)
    other, _ = await connected(two)
    assert version == (await at_once(lambda: Agent.objects.get(name="a1"))).config_version

    def change() -> None:
        with transaction.atomic():
            assignment_set(live=live, agent=one.agent, settings=fixed_settings([1, 0.5, 0]))
            assignment_set(live=live, agent=one.agent, weight=2.0)
        with transaction.atomic():
            assignment_set(live=live, agent=one.agent, weight=3.0)
            transaction.set_rollback(True)

    await at_once(change)
    assert await first.hear() == {"config_version": version + 2}
    assert await first.receive_nothing()
    assert await other.receive_nothing(), "nothing of it changed"
    await at_once(lambda: agent_config(Agent.objects.get(name="a1")))
    assert await first.receive_nothing(), "who only asks changes nothing"
    await first.disconnect()
    await other.disconnect()


@pytest.mark.parametrize("secret", [None, "", "sla_guessed", "slu_a-token-of-a-person"])
async def test_connection_without_a_secret_closes_with_4401(secret: str | None) -> None:
    stranger = socket(secret)
    assert await stranger.connect()
    assert (await stranger.hear())["code"] == 4401


async def test_connection_to_another_host_name_is_refused() -> None:
    joined = await at_once(lambda: enrolled(make_cluster()))
    assert not await socket(joined.secret, "evil.example").connect()


async def test_disabled_agent_is_disconnected_and_refused() -> None:
    joined = await at_once(lambda: enrolled(make_cluster()))
    agent, _ = await connected(joined)
    await at_once(lambda: agent_update(agent=joined.agent, enabled=False))
    assert (await agent.hear())["code"] == 4403
    again = socket(joined.secret)
    assert await again.connect()
    assert (await again.hear())["code"] == 4403
    await at_once(lambda: agent_update(agent=joined.agent, enabled=True))
    welcome, _ = await connected(joined)
    await welcome.disconnect()


def _enrol_again(joined: Enrolled) -> None:
    _, token = enrolment_create(cluster=joined.agent.cluster, user=None)
    agent_enrol(token=token, name=joined.agent.name, old_secret=joined.secret)


@pytest.mark.parametrize(
    "end",
    [
        lambda joined: agent_delete(agent=joined.agent),
        lambda joined: Agent.objects.all().delete(),
        _enrol_again,
    ],
    ids=["deleted", "deleted with others", "enrolled again"],
)
async def test_agent_with_a_replaced_secret_is_disconnected(end: Callable[[Enrolled], Any]) -> None:
    joined = await at_once(lambda: enrolled(make_cluster()))
    agent, _ = await connected(joined)
    await at_once(lambda: end(joined))
    assert (await agent.hear())["code"] == 4401


async def test_newest_connection_replaces_the_older_one() -> None:
    joined = await at_once(lambda: enrolled(make_cluster()))
    first, _ = await connected(joined)
    second, version = await connected(joined)
    assert (await first.hear())["code"] == 4409
    await at_once(lambda: agent_update(agent=joined.agent, budget_cores=0.5))
    assert await second.hear() == {"config_version": version + 1}
    await second.disconnect()


async def test_messages_from_agents_are_ignored() -> None:
    joined = await at_once(lambda: enrolled(make_cluster()))
    agent, version = await connected(joined)
    await agent.send_input({"type": "websocket.receive", "text": "{"})
    await agent.send_input({"type": "websocket.receive", "bytes": b"\x00"})
    await at_once(lambda: agent_update(agent=joined.agent, budget_cores=0.5))
    assert await agent.hear() == {"config_version": version + 1}
    await agent.disconnect()


def _layers(url: str) -> dict[str, Any]:
    return {"default": {**django_settings.CHANNEL_LAYERS["default"], "CONFIG": {"hosts": [url], "prefix": "gone"}}}


async def test_connection_without_redis_is_closed_to_retry_later(settings: Any) -> None:
    joined = await at_once(lambda: enrolled(make_cluster()))
    settings.CHANNEL_LAYERS = _layers(GONE)
    agent = socket(joined.secret)
    assert await agent.connect()
    assert (await agent.hear())["code"] == 1013


def test_change_is_saved_without_redis(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    joined = enrolled(make_cluster())
    settings.CHANNEL_LAYERS = _layers(GONE)
    agent_update(agent=joined.agent, budget_cores=0.5)
    joined.agent.refresh_from_db()
    assert (joined.agent.budget_cores, agent_config(joined.agent)["budget_cores"]) == (0.5, 0.5)
    push([joined.agent.pk])
    warnings = [record for record in caplog.records if record.name == "apps.telemetry.configs"]
    assert len(warnings) == 1, "the second was not even tried"
    assert configs._not_before > time.monotonic()
