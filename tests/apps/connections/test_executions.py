"""Jobs of an engine are observed by its counters, once an hour, and held against what was predicted of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.connections.executions import executions_observe
from apps.connections.models import Connection, ImportedJob, KeptPoll
from apps.predictions.models import ObservedExecution
from engine.connectors.executions import counted_costs
from engine.connectors.picture import (
    ArrivalCounts,
    CounterPoll,
    EngineJob,
    EnginePicture,
    Exchange,
    Vertex,
    VertexCounters,
)
from tests.apps.domain import start
from tests.apps.predictions.samples import make_cluster, make_model, make_query

READ, COUNT = "1" * 32, "2" * 32
JOB = EngineJob(
    "0" * 32,
    "new",
    "running",
    0.0,
    (Vertex(READ, "read", "source", 1), Vertex(COUNT, "count", "aggregate", 1, (Exchange(READ, "hash"),))),
)


def polls(*, held: float = 0.0, busy: float = 0.2, taken: float = 500.0, attempt: str = "a") -> list[CounterPoll]:
    """Two polls, 200 s apart, with 8,000 events read; of the source's time a share `held` and a share `busy`."""

    def poll(at_s: float, share: float, attempt: str) -> CounterPoll:
        seconds = 200.0 * share
        read = VertexCounters(0.0, 8_000.0 * share, busy * seconds, (1.0 - held - busy) * seconds, held * seconds)
        return CounterPoll(
            "0" * 32, at_s, attempt, {READ: read, COUNT: VertexCounters(taken * share, 0.0, 1.0 * share)}
        )

    now_s = timezone.now().timestamp()
    return [poll(now_s - 210.0, 0.0, "a"), poll(now_s - 10.0, 1.0, attempt)]


def test_costs_are_those_that_counters_tell() -> None:
    rounds = (polls(), polls(held=0.5), polls(busy=0.95), polls(taken=0.0))
    calm, held, full, empty = (counted_costs(JOB, own) for own in rounds)
    assert calm is not None and held is not None and full is not None and empty is not None
    assert calm.throughput_eps == pytest.approx(2.5) and calm.span_s == pytest.approx(200.0)
    assert (calm.backpressure, held.backpressure, full.backpressure) == (False, True, None)
    assert (calm.success, empty.success) == (True, False)
    assert (calm.rates_eps, held.rates_eps) == ({READ: 40.0}, {})
    assert counted_costs(JOB, polls()[:1]) is None


def test_restart_tells_of_success_alone() -> None:
    costs = counted_costs(JOB, polls(held=0.5, attempt="b"))
    assert costs is not None and costs.restarts == 1
    assert (costs.throughput_eps, costs.backpressure, costs.success) == (None, None, True)


@pytest.mark.parametrize(("events", "backpressure"), [(8_100.0, False), (9_000.0, True)])
def test_broker_tells_what_stays_there_whatever_threads_do(events: float, backpressure: bool) -> None:
    rounds = polls(held=0.5)
    counts = (events / 20.0,) * 20
    came = ArrivalCounts(READ, rounds[0].at_s, 10.0, counts, 10.0, "offsets", is_whole=True)
    costs = counted_costs(JOB, rounds, {READ: came})
    assert costs is not None and costs.backpressure is backpressure
    assert costs.rates_eps == {READ: pytest.approx(events / 200.0)}
    unknown = replace(came, counts=(*counts[:9], None, *counts[10:]))
    told = counted_costs(JOB, rounds, {READ: unknown})
    assert told is not None and told.backpressure is True and not told.rates_eps


@pytest.mark.django_db
def test_running_job_is_observed_once_an_hour() -> None:
    cache.clear()
    cluster = make_cluster()
    make_model(cluster)
    query = make_query(cluster)
    start(query, {"keep": "weak", "mean": "strong"})
    query.refresh_from_db()
    connection = Connection.objects.create(cluster=cluster, name="flink", engine="flink", url="http://127.0.0.1:8081")
    now = timezone.now()
    row = ImportedJob.objects.create(
        connection=connection,
        query=query,
        version=query.running_version,
        engine_id=JOB.id,
        name="new",
        state="running",
        shape="0" * 64,
        vertices={"keep": READ, "mean": COUNT},
        started_at=now - timedelta(hours=1),
        seen_at=now,
    )
    for poll in polls():
        at = datetime.fromtimestamp(poll.at_s, UTC)
        KeptPoll.objects.create(job=row, at=at, received_at=at, attempt="a", data=poll.to_dict())
    picture = EnginePicture("flink", "2.3.0", now.timestamp(), (), (JOB,))
    assert executions_observe(picture, [row]) == 1
    stored = ObservedExecution.objects.get()
    assert (stored.origin, stored.throughput_eps) == ("live", pytest.approx(2.5))
    assert (stored.backpressure, stored.success) == (False, True)
    rates = [operator["rate"] for operator in stored.trace["query"]["ops"] if "rate" in operator]
    assert rates == [pytest.approx(40.0)]  # those of the stretch; the source has 100/s in its busiest minutes
    assert executions_observe(picture, [row]) == 0
