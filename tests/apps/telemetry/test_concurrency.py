"""The same agent, query or configuration from several sides at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from agent.wire import broker
from apps.telemetry.configs import agent_config, fixed_settings, stream_plan
from apps.telemetry.live_services import assignment_set, live_start
from apps.telemetry.models import Agent, LiveQuery
from apps.telemetry.streams import stream_client
from tests.apps.concurrency import run_concurrently
from tests.apps.telemetry.world import client_of, enrolled, frame, heartbeat, live_at, post, probing


def _posts() -> None:
    """One agent sends overlapping stretches on four connections, and reports meanwhile."""
    live, (joined,) = live_at(probing(), "a1")
    frames = [frame(live, joined, seq) for seq in range(1, 41)]

    def send(first: int) -> None:
        client = client_of(joined)
        for begin in range(first, 40, 4):
            answer = post(client, *frames[begin : begin + 8])
            assert answer.status_code in {200, 409}, answer.json()
        while (accepted := broker.generation_progress(stream_client(), str(joined.agent.pk), "l1").accepted_seq) < 40:
            assert post(client, *frames[accepted : accepted + 8]).status_code in {200, 409}

    def report() -> None:
        for _ in range(5):
            assert heartbeat(client_of(joined), joined).status_code == 200

    assert run_concurrently([partial(send, first) for first in range(4)] + [report]) == {"done": 5}
    entries = broker.read_entries(stream_client(), broker.partition_of(str(joined.agent.pk)), count=1000)
    assert [entry.seq for entry in entries] == list(range(1, 41))


def _starts() -> None:
    """Of several who start a query one does."""
    query = probing()
    agent = enrolled(query.cluster).agent
    outcomes = run_concurrently([partial(live_start, query=query, agents=[agent]) for _ in range(3)])
    assert outcomes == {"done": 1, "conflict": 2}
    assert LiveQuery.objects.get().assignments.count() == 1


def _reads() -> None:
    """Versions count changes, however many look at the same moment."""
    live, (joined,) = live_at(probing(), "a1")
    before, planned = agent_config(Agent.objects.get())["version"], stream_plan()["version"]
    assignment_set(live=live, agent=joined.agent, settings=fixed_settings([0.5, 0.5, 0.5]))
    Agent.objects.update(config_digest="", config_version=before)  # as if nobody had looked yet
    reads: list[Callable[[], Any]] = [lambda: agent_config(Agent.objects.get())] * 3
    assert run_concurrently([*reads, stream_plan, stream_plan]) == {"done": 5}
    assert agent_config(Agent.objects.get())["version"] == before + 1
    assert stream_plan()["version"] == planned


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("story", [_posts, _starts, _reads])
def test_concurrent_changes_on_sqlite(story: Callable[[], None]) -> None:
    story()


@pytest.mark.postgres
@pytest.mark.parametrize("story", [_posts, _starts, _reads])
def test_concurrent_changes_on_postgres(postgres_db: str, story: Callable[[], None]) -> None:
    story()
