"""Of several beats one sends; the next one goes on from where it stopped."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

import pytest
import redis
from django.utils.timezone import now
from django_celery_beat.models import PeriodicTask

from console.beat import SoleScheduler
from console.celery import app


@pytest.fixture
def scheduler_pair(transactional_db: None, redis_url: str) -> tuple[SoleScheduler, SoleScheduler]:
    """Two schedulers as two beats start them, with every schedule of the database due."""
    app.conf.broker_url = redis_url
    first, second = SoleScheduler(app=app), SoleScheduler(app=app)
    PeriodicTask.objects.update(last_run_at=now() - timedelta(days=1))
    return first, second


def run_due(*schedulers: SoleScheduler) -> None:
    for _ in range(2 * PeriodicTask.objects.count()):
        for scheduler in schedulers:
            scheduler.tick()


def sent(redis_url: str, *queues: str) -> Counter[str]:
    """Messages that wait in some queues, or in both, by the name of their task."""
    with redis.Redis.from_url(redis_url) as client:
        ranks = [key for queue in queues or ("interactive", "background") for key in client.scan_iter(f"{queue}*")]
        messages = [raw for key in ranks for raw in client.lrange(key, 0, -1)]
    return Counter(json.loads(raw)["headers"]["task"] for raw in messages)


def test_two_beats_send_every_schedule_once(
    scheduler_pair: tuple[SoleScheduler, SoleScheduler], redis_url: str
) -> None:
    first, second = scheduler_pair
    run_due(first, second)
    counts = sent(redis_url)
    assert "workers.purge" in counts
    own = {name: n for name, n in counts.items() if name.startswith("workers.")}
    assert {name: n for name, n in own.items() if n != 1 and name != "workers.poll_connections"} == {}
    watched = {name for name in sent(redis_url, "interactive") if name.startswith("workers.")}
    assert watched == {f"workers.{name}" for name in ("advance_evacuations", "advance_rollouts", "poll_connections")}


def test_next_beat_goes_on_where_the_one_before_stopped(
    scheduler_pair: tuple[SoleScheduler, SoleScheduler], redis_url: str
) -> None:
    first, second = scheduler_pair
    second.tick()  # it has the lease
    run_due(first)
    assert sum(sent(redis_url).values()) <= 1
    run_due(second)
    second.close()
    run_due(first)
    counts = sent(redis_url)
    assert (counts["workers.purge"], counts["workers.run_due_history"]) == (1, 1)
    PeriodicTask.objects.filter(task="workers.purge").update(last_run_at=now() - timedelta(days=1))
    first.close()
    run_due(second)
    assert sent(redis_url)["workers.purge"] == 2
