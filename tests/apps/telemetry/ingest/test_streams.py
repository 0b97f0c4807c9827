"""Plans are known as long as something of them may come, and no longer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agent.wire import broker, generations
from apps.telemetry.agents import directory
from apps.telemetry.ingest.streams import PLANS_KEPT, generations_purge, plans_purge, stream_client
from apps.telemetry.models import KnownPlan
from apps.telemetry.services import agent_delete, live_delete, live_stop
from console.celery import app
from tests.apps.telemetry.world import client_of, frame, live_at, post, probing

pytestmark = pytest.mark.django_db

LONG = PLANS_KEPT + timedelta(seconds=1)


def known(live: Any, letter: str, age: timedelta = LONG) -> KnownPlan:
    """A plan that the query had for a day, until so long ago."""
    ended = timezone.now() - age
    plan = KnownPlan.objects.create(
        query=live.key, digest=letter * 64, pipeline=live.pipeline, live=live, created_at=ended - timedelta(days=1)
    )
    KnownPlan.objects.filter(pk=plan.pk).update(used_at=ended)
    return plan


def test_plans_of_no_query_are_forgotten_after_a_month() -> None:
    live, _ = live_at(probing(), "a1")
    known(live, "a")
    known(live, "b", PLANS_KEPT - timedelta(hours=1))
    KnownPlan.objects.filter(digest=live.plan).update(used_at=timezone.now() - LONG)
    assert plans_purge() == 1
    assert set(KnownPlan.objects.values_list("digest", flat=True)) == {"b" * 64, live.plan}
    assert plans_purge(timezone.now() + timedelta(hours=2)) == 1
    assert KnownPlan.objects.get().digest == live.plan


def test_a_plan_in_use_is_kept_from_when_it_was_last_in_use() -> None:
    live, (joined,) = live_at(probing(), "a1")
    live_stop(live=live)
    now = timezone.now() + 2 * LONG
    assert plans_purge(now) == 0, "a query that is stopped may start again"
    live_delete(live=live)
    assert plans_purge(now + PLANS_KEPT - timedelta(hours=1)) == 0
    assert post(client_of(joined), frame(live, joined, 1)).status_code == 200
    assert plans_purge(now + LONG) == 1
    directory.forget_facts()
    assert post(client_of(joined), frame(live, joined, 2)).status_code == 422


def test_a_plan_waits_for_agents_that_were_not_heard_of_since() -> None:
    live, (joined,) = live_at(probing(), "a1")
    old = known(live, "a")
    old.agents.add(joined.agent)
    for seen, gone in ((LONG, 0), (LONG - timedelta(hours=23), 0), (timedelta(0), 1)):
        joined.agent.last_seen = timezone.now() - seen
        joined.agent.save(update_fields=["last_seen"])
        assert plans_purge() == gone, seen


def test_an_agent_that_was_gone_before_holds_no_plan() -> None:
    live, (joined,) = live_at(probing(), "a1")
    known(live, "a").agents.add(joined.agent)
    joined.agent.last_seen = timezone.now() - LONG - timedelta(days=2)
    joined.agent.save(update_fields=["last_seen"])
    assert plans_purge() == 1


def test_housekeeping_does_it() -> None:
    app.loader.import_default_modules()
    live, _ = live_at(probing(), "a1")
    known(live, "a")
    assert app.tasks["workers.purge"].apply(throw=True).result == 1
    assert KnownPlan.objects.get().digest == live.plan


def test_lives_of_deleted_agents_are_named_to_the_stream_processor() -> None:
    live, (stays, goes) = live_at(probing(), "a1", "a2")
    client = stream_client()
    for joined in (stays, goes):
        assert post(client_of(joined), frame(live, joined, 1)).status_code == 200
        sent = frame(live, joined, 1)
        broker.publish_committed(client, {(sent.agent, sent.life): 1})
    later, gone = timezone.now() + timedelta(seconds=1), str(goes.agent.pk)
    agent_delete(agent=goes.agent)
    assert generations_purge(later) == 0, "its frame is still in the stream"
    broker.trim_streams(client, broker.last_ids(client))
    assert generations_purge(later) == 1
    assert {agent for agent, _ in generations.expired_names(client)} == {gone}
    assert generations_purge(later) == 0
