"""Engines that lie, answer half, change under way or are huge: findings and unknowns, and no other error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from apps.connections import work
from apps.connections.models import Connection
from apps.connections.services import connection_check, connection_create, connection_import
from apps.connections.work import connection_poll_due
from apps.fleet.models import Cluster, Node
from apps.fleet.services import node_update
from apps.jobs.models import Job
from apps.queries.models import OperatorInput
from tests.apps import small_cluster
from tests.apps.connections.engine_server import EngineServer, Reply
from tests.apps.connections.fake_flink import FakeFlink, FakeJob, FakeVertex, shop_job

pytestmark = pytest.mark.django_db

Metrics = dict[str, Any]
PARSE_CYCLES = 5e5  # of the operator that lies, where it does not


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check polls as often as an import."""
    monkeypatch.setattr(work, "CHECK_POLLS", work.IMPORT_POLLS)


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


@dataclass
class LyingFlink(FakeFlink):
    """A cluster whose counters of *parse* are what `lie` makes of them at its time."""

    lie: Callable[[Metrics, float], Metrics] = lambda told, _: told

    def metrics(self, job: FakeJob, position: int) -> Metrics:
        told = super().metrics(job, position)
        return self.lie(told, self.now_s) if position == 1 else told


def connect(cluster: Cluster, engine: EngineServer, flink: FakeFlink) -> Connection:
    flink.serve(engine)
    return connection_create(cluster=cluster, name="flink", engine="flink", url=engine.url)


def done(job: Job) -> Job:
    small_cluster.run_jobs()
    job.refresh_from_db()
    return job


def checked_codes(connection: Connection) -> set[str]:
    """Codes of what a check of the connection found."""
    assert done(connection_check(connection=connection)).state == "succeeded"
    connection.refresh_from_db()
    return {str(finding["code"]) for finding in connection.findings}


def parse_statistics(cluster: Cluster) -> tuple[float | None, str]:
    """Cycles an event of *parse*, and what they rest on."""
    row = OperatorInput.objects.get(operator__version__query=cluster.queries.get(name="shop"), operator__name="parse")
    return row.cycles_per_event, row.evidence


def _times(factor: Callable[[float], float]) -> Callable[[Metrics, float], Metrics]:
    return lambda told, now_s: {name: factor(now_s) * value for name, value in told.items()}


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (_times(lambda _: -1.0), "no_events"),
        (_times(lambda _: 1e300), "no_statistics"),
        (lambda told, _: dict.fromkeys(told, "NaN"), "no_statistics"),
        (lambda told, _: dict.fromkeys(told, 7), "no_statistics"),
        (lambda _told, _: {}, "no_statistics"),
    ],
    ids=["negative", "beyond-numbers", "no-numbers", "standing-still", "none"],
)
def test_counters_that_tell_nothing_leave_the_cost_unknown(
    cluster: Cluster, engine: EngineServer, lie: Callable[[Metrics, float], Metrics], code: str
) -> None:
    connection = connect(cluster, engine, LyingFlink(lie=lie))
    assert code in checked_codes(connection)
    assert done(connection_import(connection=connection)).state == "succeeded"
    assert connection_poll_due(connection.pk)
    assert parse_statistics(cluster) == (None, "unknown")


def test_counters_that_go_back_are_counted_from_there(cluster: Cluster, engine: EngineServer) -> None:
    half_again = _times(lambda now_s: 1.0 if int(now_s / 5.0) % 4 else 0.5)
    connection = connect(cluster, engine, LyingFlink(lie=half_again))
    assert "counters_reset" in checked_codes(connection)
    assert done(connection_import(connection=connection)).state == "succeeded"
    assert parse_statistics(cluster) == (pytest.approx(PARSE_CYCLES, rel=0.02), "measured")


def test_thread_that_is_busier_than_time_is_told_and_never_cheaper(cluster: Cluster, engine: EngineServer) -> None:
    def lie(told: Metrics, now_s: float) -> Metrics:
        return told | {"accumulated-busy-time": 1500.0 * (now_s + 60.0), "accumulated-idle-time": 0.0}

    connection = connect(cluster, engine, LyingFlink(lie=lie))
    assert {"busy_beyond_time", "saturated"} <= checked_codes(connection)
    assert done(connection_import(connection=connection)).state == "succeeded"
    cycles, _ = parse_statistics(cluster)
    assert cycles is not None and cycles > 10 * PARSE_CYCLES


def test_engine_that_breaks_off_every_few_answers_is_away_and_changes_nothing(
    cluster: Cluster, engine: EngineServer
) -> None:
    flink = FakeFlink()
    connection = connect(cluster, engine, flink)
    assert done(connection_import(connection=connection)).state == "succeeded"
    before = parse_statistics(cluster)
    asked = 0

    def reply(path: str) -> Reply:
        nonlocal asked
        asked += 1
        answer = flink.reply(path)
        answer.cut = asked % 5 == 0
        return answer

    engine.find = reply
    assert not connection_poll_due(connection.pk)
    failed = done(connection_import(connection=connection))
    assert failed.state == "failed" and failed.error is not None and "away" in str(failed.error)
    connection.refresh_from_db()
    assert connection.state == "away" and parse_statistics(cluster) == before
    engine.find = flink.reply
    assert connection_poll_due(connection.pk)


def test_process_that_restarts_within_a_round_counts_from_nothing(cluster: Cluster, engine: EngineServer) -> None:
    flink = FakeFlink()
    connection = connect(cluster, engine, flink)
    assert done(connection_import(connection=connection)).state == "succeeded"
    asked = 0

    def reply(path: str) -> Reply:
        nonlocal asked
        asked += 1
        if asked == 4:  # after the list of jobs, before their counters
            flink.restart("shop")
        return flink.reply(path)

    engine.find = reply
    for _ in range(3):
        connection_poll_due(connection.pk)
    connection.refresh_from_db()
    assert connection.state == "connected"
    assert cluster.queries.get(name="shop").state == "running"
    assert parse_statistics(cluster) == (pytest.approx(PARSE_CYCLES, rel=0.02), "measured")


def cores_told(flink: FakeFlink, connection: Connection, monkeypatch: pytest.MonkeyPatch, cores: float) -> Node:
    """The node once the engine has told so many cores."""
    whole = FakeFlink._place
    monkeypatch.setattr(flink, "_place", lambda name: whole(flink, name) | {"totalResource": {"cpuCores": cores}})
    for _ in range(2):
        assert connection_poll_due(connection.pk)
    return Node.objects.select_related("pool", "cluster").get(pool__name=connection.pool_name)


def test_capacity_of_a_node_follows_its_quota_down_and_up(
    cluster: Cluster, engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    flink = FakeFlink()
    connection = connect(cluster, engine, flink)
    assert done(connection_import(connection=connection)).state == "succeeded"
    for cores, servers, capacity_cps in [
        (2.0, 2, 1e9),
        (0.5, 1, 0.5e9),
        (0.2, 1, 0.2e9),
        (0.7, 1, 0.7e9),
        (2.0, 2, 1e9),
    ]:
        node = cores_told(flink, connection, monkeypatch, cores)
        assert (node.cores, node.capacity_cps) == (servers, capacity_cps)
    assert "quota_cps" not in node.labels


def test_capacity_that_somebody_set_is_lowered_by_a_quota_and_never_raised(
    cluster: Cluster, engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    flink = FakeFlink()
    connection = connect(cluster, engine, flink)
    assert done(connection_import(connection=connection)).state == "succeeded"
    node_update(node=cores_told(flink, connection, monkeypatch, 2.0), capacity_cps=0.8e9)
    assert [cores_told(flink, connection, monkeypatch, cores).capacity_cps for cores in (2.0, 0.5, 0.7, 2.0)] == [
        0.8e9,
        0.5e9,
        0.5e9,
        0.5e9,
    ]


@pytest.mark.night
def test_poll_of_a_thousand_operators_asks_as_little_as_one_of_four(cluster: Cluster, engine: EngineServer) -> None:
    chain = (FakeVertex("Source: clicks", 1e-4), *(FakeVertex(f"step {number}", 1e-4) for number in range(999)))
    connection = connect(cluster, engine, FakeFlink(jobs=[FakeJob("wide", chain)], slots=1000))
    checked_codes(connection)
    wide = connection.cost["requests"]
    engine.asked.clear()
    FakeFlink(jobs=[shop_job()]).serve(engine)
    checked_codes(connection)
    assert wide <= connection.cost["requests"]


@pytest.mark.night
def test_poll_of_fifty_jobs_asks_a_few_things_of_each(cluster: Cluster, engine: EngineServer) -> None:
    jobs = [shop_job(name=f"shop-{number}") for number in range(50)]
    connection = connect(cluster, engine, FakeFlink(jobs=jobs, slots=400))
    checked_codes(connection)
    assert connection.cost["requests"] <= 4 * len(jobs)
