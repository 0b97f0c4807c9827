"""Plans are known as long as something of them may come, and no longer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agent.wire import broker, generations
from apps.telemetry import directory
from apps.telemetry.agent_services import agent_delete
from apps.telemetry.live_services import live_delete, live_stop
from apps.telemetry.models import KnownPlan
from apps.telemetry.streams import PLANS_KEPT, generations_purge, plans_purge, stream_client
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


def test_plan_without_a_query_is_purged_after_a_month() -> None:
    live, _ = live_at(probing(), "a1")
    known(live, "a")
    known(live, "b", PLANS_KEPT - timedelta(hours=1))
    KnownPlan.objects.filter(digest=live.plan).update(used_at=timezone.now() - LONG)
    assert plans_purge() == 1
    assert set(KnownPlan.objects.values_list("digest", flat=True)) == {"b" * 64, live.plan}
    assert plans_purge(timezone.now() + timedelta(hours=2)) == 1
    assert KnownPlan.objects.get().digest == live.plan


def test_retention_of_a_plan_counts_from_its_last_use() -> None:
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


def test_plan_is_kept_for_agents_silent_since() -> None:
    live, (joined,) = live_at(probing(), "a1")
    old = known(live, "a")
    old.agents.add(joined.agent)
    for seen, gone in ((LONG, 0), (LONG - timedelta(hours=23), 0), (timedelta(0), 1)):
        joined.agent.last_seen = timezone.now() - seen
        joined.agent.save(update_fields=["last_seen"])
        assert plans_purge() == gone, seen


def test_agent_silent_before_the_plan_does_not_keep_it() -> None:
    live, (joined,) = live_at(probing(), "a1")
    known(live, "a").agents.add(joined.agent)
    joined.agent.last_seen = timezone.now() - LONG - timedelta(days=2)
    joined.agent.save(update_fields=["last_seen"])
    assert plans_purge() == 1


def test_housekeeping_purges_plans() -> None:
    app.loader.import_default_modules()
    live, _ = live_at(probing(), "a1")
    known(live, "a")
    assert app.tasks["workers.purge"].apply(throw=True).result >= 1  # generations are aged by the clock of Redis
    assert KnownPlan.objects.get().digest == live.plan


def test_generations_of_deleted_agents_are_named_to_the_stream_processor() -> None:
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
