"""Arrivals of a Flink's sources by the ends of their topics, where a connection to the broker stands beside it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from apps.connections.models import Connection, KeptAnswers
from apps.connections.services import connection_create, connection_import
from apps.fleet.models import Cluster
from tests.apps import small_cluster
from tests.apps.connections.engine_server import EngineServer
from tests.apps.connections.fake_flink import EPOCH_S, FakeFlink, shop_job

pytestmark = pytest.mark.django_db
READ, PRODUCED = 100.0, 250.0


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


def kafka(cluster: Cluster, name: str = "events", *, age_s: float = 1.0, rounds: int = 20, **topics: int) -> Connection:
    """Connection to a broker with its rounds of before, ten seconds apart; `topics`: numbers of partitions by name."""
    url, slow = "kafka://127.0.0.1:9092", 3600.0  # what was told an hour ago is new, however long a test takes
    row = connection_create(cluster=cluster, name=name, engine="kafka", url=url, poll_interval_s=slow)
    now_s = time.time() - age_s
    answers = [
        {
            "": {
                "at_s": now_s - 10.0 * i,
                "topics": {
                    topic.replace("__", "."): {str(p): 1e6 - 10.0 * i * PRODUCED / number for p in range(number)}
                    for topic, number in topics.items()
                },
            }
        }
        for i in range(rounds)
    ]
    KeptAnswers.objects.create(connection=row, answers=answers, rounds=rounds)
    return row


def rate(cluster: Cluster, engine: EngineServer, fake: FakeFlink | None = None) -> tuple[float, dict[str, str]]:
    """Rate of the source once its job is imported, and findings by code."""
    (fake or FakeFlink(topic="shop_clicks", now_s=60.0)).serve(engine)
    flink = connection_create(cluster=cluster, name="shop", engine="flink", url=engine.url)
    connection_import(connection=flink)
    small_cluster.run_jobs()
    flink.refresh_from_db()
    findings = {finding["code"]: finding["message"] for finding in flink.findings}
    return cluster.arrivals.get(source_id="shop.clicks").mean_eps, findings


def test_arrivals_are_what_is_produced_not_what_is_read(cluster: Cluster, engine: EngineServer) -> None:
    kafka(cluster, shop__clicks=2, orders=1)
    arrivals, findings = rate(cluster, engine)
    assert arrivals == pytest.approx(PRODUCED, rel=0.02)
    assert findings["ends_counted"] == (
        "What is produced to shop_clicks counts as what comes to clicks, by the ends that events tells."
    )


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ([{"orders": 1}], "events1 tells no topic shop_clicks, or two alike"),
        ([{"shop__clicks": 1}], "events1 tells no topic shop_clicks, or two alike"),
        ([{"shop__clicks": 2, "shop_clicks": 2}], "events1 tells no topic shop_clicks, or two alike"),
        ([{"shop__clicks": 2}, {"shop_clicks": 2}], "events1 and events2 each tell a topic shop_clicks"),
        ([{"shop__clicks": 2, "age_s": 20_000.0}], "events1 told the ends of shop_clicks 20,0"),
        ([{"shop__clicks": 2, "rounds": 1}], "events1 has told the ends of shop_clicks once"),
    ],
    ids=["another topic", "too few partitions", "spelt alike", "two brokers", "long ago", "once"],
)
def test_what_a_source_reads_counts_where_ends_are_not_known(
    cluster: Cluster, engine: EngineServer, known: list[dict[str, Any]], words: str
) -> None:
    for number, settings in enumerate(known, 1):
        kafka(cluster, f"events{number}", **settings)
    arrivals, findings = rate(cluster, engine)
    assert arrivals == pytest.approx(READ, rel=0.05)
    assert findings["ends_unknown"].startswith(words) and "ends_counted" not in findings


def test_source_that_works_off_its_backlog_reads_more_than_comes(cluster: Cluster, engine: EngineServer) -> None:
    kafka(cluster, rounds=60, shop__clicks=2)
    now_s = time.time() - EPOCH_S - 300.0
    catching_up = shop_job(rate=2.0 * PRODUCED, started_s=now_s - 60.0)
    arrivals, findings = rate(cluster, engine, FakeFlink([catching_up], topic="shop_clicks", now_s=now_s))
    assert arrivals == pytest.approx(PRODUCED, rel=0.02)
    assert "offsets_below_read" not in findings


def test_broker_of_another_cluster_tells_nothing(cluster: Cluster, engine: EngineServer) -> None:
    kafka(small_cluster.small_cluster(slug="other"), shop__clicks=2)
    arrivals, findings = rate(cluster, engine)
    assert arrivals == pytest.approx(READ, rel=0.05)
    assert not {"ends_unknown", "ends_counted"} & set(findings)
