"""Parallelism of running queries: by what the engine told, by a job, over REST, and as an export."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.connections.looks import look_of
from apps.connections.models import Connection, ImportedJob, KeptPoll
from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.planning.parallelism import parallelism_latest, parallelism_request, scalable_job
from apps.planning.placement_search import PLACEMENT
from apps.queries.models import Query
from apps.queries.services import query_create, query_start
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.connectors.picture import (
    CounterPoll,
    EngineJob,
    EnginePicture,
    Exchange,
    Place,
    Subtask,
    Vertex,
    VertexCounters,
)
from tests.apps.small_cluster import CAPACITY_CPS, RATE_EPS, run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db

READ, COUNT, JOB = "a" * 32, "b" * 32, "c" * 32


def measured(name: str, above: str, load: float, **more: Any) -> dict[str, Any]:
    """An operator that takes a share of a node at the source's rate, with batches."""
    cost = load * CAPACITY_CPS / RATE_EPS
    batches = [{"events": 500.0, "outputs": 500.0, "cycles": 500.0 * cost * share} for share in (0.98, 1.02, 1.0, 1.0)]
    entry = {"from": above, "selectivity": 1.0, "cycles_per_event": cost, "batches": batches}
    return {"id": name, "evidence": {"kind": "measured", "events": 1e5}, "inputs": [entry], **more}


@pytest.fixture
def cluster(db: None) -> Cluster:
    """`clicks-count` reads and counts by key on node a; b, c and d are free."""
    cluster = small_cluster(nodes=("a", "b", "c", "d"))
    operators = [
        measured("read", "clicks", 0.1, kind="source"),
        measured("count", "read", 0.6, kind="aggregate", stateless=False, keyed=True),
    ]
    objective = {"statistic": "worst", "bound_s": 2.0}
    query = query_create(cluster=cluster, name="clicks-count", body={"operators": operators}, objective=objective)
    query_start(version=query.versions.get(), placement={"read": [{"node": "a"}], "count": [{"node": "a"}]})
    return cluster


@pytest.fixture
def query(cluster: Cluster) -> Query:
    return cluster.queries.select_related("cluster", "running_version").get(name="clicks-count")


def picture(now_s: float, *, max_parallelism: int | None = 64, strategy: str = "hash") -> EnginePicture:
    """The job with one slot on each of two TaskManagers of one host, and two that are free."""
    read = Vertex(READ, "read", "source", 1, subtasks=(Subtask(0, "tm-a"),), slot_group="g")
    count = Vertex(
        COUNT,
        "count",
        "aggregate",
        1,
        (Exchange(READ, strategy),),
        (Subtask(0, "tm-a"),),
        slot_group="g",
        max_parallelism=max_parallelism,
    )
    places = tuple(Place(f"tm-{name}", f"tm-{name}", 1.0, 1, host="h1") for name in "ab")
    places += tuple(Place(f"tm-{name}", f"tm-{name}", 1.0, 1, host="h2") for name in "cd")
    return EnginePicture(
        "flink", "2.3.0", now_s, places, (EngineJob(JOB, "clicks-count", "running", now_s, (read, count)),)
    )


def test_same_question_waits_once(query: Query) -> None:
    def ask(*parallelism: int) -> Job:
        return parallelism_request(query=query, question={"parallelism": list(parallelism)})

    assert ask(2, 4) == ask(2, 4) != ask(2)


@pytest.fixture
def imported(query: Query) -> ImportedJob:
    """The query as a job of Flink's."""
    return import_job(query, picture(timezone.now().timestamp()))


def import_job(query: Query, shown: EnginePicture, *, partitions: int = 0) -> ImportedJob:
    look = look_of(shown, partitions={JOB: {READ: [("clicks", number) for number in range(partitions)]}})
    connection = Connection.objects.create(
        cluster=query.cluster, name="flink", engine="flink", url="http://127.0.0.1:8081", look=look.to_dict()
    )
    for node in query.cluster.nodes.all():
        node.labels = {"place": f"tm-{node.name}"}
        node.save()
    return ImportedJob.objects.create(
        connection=connection,
        query=query,
        version=query.running_version,
        engine_id=JOB,
        name=query.name,
        state="running",
        shape="0" * 64,
        vertices={"read": READ, "count": COUNT},
        places={name: f"tm-{name}" for name in "abcd"},
        started_at=timezone.now(),
        seen_at=timezone.now(),
    )


def keep_polls(row: ImportedJob, *polls: tuple[float, str, Mapping[str, VertexCounters]]) -> None:
    """Polls so many seconds after the first, each of an attempt."""
    begin = timezone.now() - timedelta(minutes=10)
    for after_s, attempt, vertices in polls:
        poll = CounterPoll(row.engine_id, begin.timestamp() + after_s, attempt, vertices)
        KeptPoll.objects.create(job=row, at=begin + timedelta(seconds=after_s), attempt=attempt, data=poll.to_dict())


def test_plan_is_made_by_a_job_and_read_again(query: Query, imported: ImportedJob, api: APIClient) -> None:
    path = f"/api/v1/queries/{query.pk}/parallelism"
    assert api.get(path).status_code == 404
    assert api.post(path, {"restart_s": 30}, format="json").status_code == 202
    assert run_jobs()[-1].error is None
    answer = api.get(path).json()
    assert answer["question"]["restart_s"] == 30
    choices = {choice["parallelism"]: choice for choice in answer["plan"]["choices"]}
    # node a does 0.7 of its work at 100 events/s: 142.9/s; of two subtasks each has half: read on another node
    assert choices[1]["rate_per_s"] == pytest.approx(RATE_EPS / 0.7, rel=1e-6)
    assert choices[2]["gain"] > 1.6 and choices[2]["gain_low"] <= 1.2
    assert choices[2]["skew"] == "assumed_even"
    assert choices[2]["restart"]["basis"] == "stated" and choices[2]["restart"]["events"] == pytest.approx(3000.0)
    assert choices[6]["state"] == "no_slots" and choices[6]["slots_short"] == 2
    assert "needs 6 slots, 2 more than there are" in choices[6]["words"]


def test_engine_tells_exchanges_groups_slots_and_hosts(query: Query, imported: ImportedJob) -> None:
    job = scalable_job(query, cluster_snapshot(query.cluster).deployment)
    assert job.is_engine_known
    assert (job.operators["clicks-count/count"].feed, job.operators["clicks-count/count"].groups) == ("keyed", 64)
    assert job.operators["clicks-count/read"].feed == "source"
    assert {name: place.free for name, place in job.places.items()} == {"a": 0, "b": 1, "c": 1, "d": 1}
    assert (job.places["a"].host, job.places["a"].host_cores) == ("h1", 2.0)
    assert job.slots_there == 4


@pytest.mark.parametrize(("partitions", "most"), [(0, 128), (6, 6)])
def test_source_has_no_more_subtasks_than_partitions(query: Query, partitions: int, most: int) -> None:
    import_job(query, picture(timezone.now().timestamp()), partitions=partitions)
    read = scalable_job(query, cluster_snapshot(query.cluster).deployment).operators["clicks-count/read"]
    assert (read.partitions, read.most) == (partitions or None, most)


@pytest.mark.parametrize(("max_parallelism", "strategy"), [(1, "hash"), (64, "global")])
def test_global_aggregate_keeps_its_one_subtask(query: Query, max_parallelism: int, strategy: str) -> None:
    import_job(query, picture(timezone.now().timestamp(), max_parallelism=max_parallelism, strategy=strategy))
    job = scalable_job(query, cluster_snapshot(query.cluster).deployment)
    assert job.grounds("clicks-count/count") is not None
    assert job.grounds("clicks-count/read") is None


def test_restarts_are_measured_by_the_gap_between_attempts(query: Query, imported: ImportedJob) -> None:
    keep_polls(imported, (0.0, "1", {}), (15.0, "1", {}), (40.0, "2", {}), (55.0, "2", {}))
    restart = scalable_job(query, cluster_snapshot(query.cluster).deployment).restart_at(2)
    assert (restart.low_s, restart.high_s, restart.basis) == (0.0, pytest.approx(25.0), "measured")


def test_shares_of_subtasks_are_those_of_the_present_attempt(query: Query, imported: ImportedJob) -> None:
    def counters(*taken: float) -> dict[str, VertexCounters]:
        return {COUNT: VertexCounters(sum(taken), 0.0, 0.0, records_in_by_subtask=taken)}

    keep_polls(imported, (0.0, "1", counters(900.0)), (15.0, "2", counters(0.0)), (30.0, "2", counters(500.0)))
    job = scalable_job(query, cluster_snapshot(query.cluster).deployment)
    assert job.operators["clicks-count/count"].shares == (1.0,)


def test_faults_of_a_question_are_told_at_once(query: Query, api: APIClient) -> None:
    path = f"/api/v1/queries/{query.pk}/parallelism"
    found = api.post(path, {"parallelism": [0, 2.5], "restart_s": -1, "speed": 3}, format="json")
    assert found.status_code == 400
    assert {fault["path"] for fault in found.json()["faults"]} >= {"parallelism[0]", "parallelism[1]", "restart_s"}
    found = api.post(path, {"operators": ["cuont"], "partitions": {"raed": 2}}, format="json")
    assert found.status_code == 400
    assert [fault["path"] for fault in found.json()["faults"]] == ["operators[0]", "partitions.raed"]
    assert "did you mean 'count'" in found.json()["faults"][0]["message"]


def test_query_that_does_not_run_has_no_parallelism(query: Query, api: APIClient) -> None:
    draft = query_create(cluster=query.cluster, name="draft", body={"operators": [measured("read", "clicks", 0.1)]})
    found = api.post(f"/api/v1/queries/{draft.pk}/parallelism", {}, format="json")
    assert found.status_code == 422 and "has no parallelism" in found.json()["detail"]


def test_chosen_parallelism_is_exported_as_settings_patch_and_call(
    query: Query, imported: ImportedJob, api: APIClient
) -> None:
    path = f"/api/v1/queries/{query.pk}/parallelism"
    parallelism_request(query=query, question={})
    run_jobs()
    export = api.get(f"{path}/export?parallelism=2&format=json").json()
    assert export["apply"]["settings"] == {
        "pipeline.jobvertex-parallelism-overrides": f"{READ}:2,{COUNT}:2",
    }
    assert export["apply"]["patch"]["spec"]["job"] == {"parallelism": 2}
    assert export["apply"]["calls"][0]["body"][COUNT] == {"parallelism": {"lowerBound": 2, "upperBound": 2}}
    assert export["reverse"]["settings"] == {"pipeline.jobvertex-parallelism-overrides": f"{READ}:1,{COUNT}:1"}
    refused = api.get(f"{path}/export?parallelism=5&format=json")
    assert refused.status_code == 400 and "allowed: one of the plan, 1, 2, 3, 4" in refused.json()["detail"]
    assert api.get(f"{path}/export?parallelism=6&format=json").status_code == 422


def test_plan_of_what_runs_elsewhere_by_now_is_stale_and_not_exported(
    query: Query, imported: ImportedJob, api: APIClient
) -> None:
    path = f"/api/v1/queries/{query.pk}/parallelism"
    parallelism_request(query=query, question={})
    run_jobs()
    assert api.get(path).json()["is_stale"] is False
    query_start(version=query.versions.get(), placement={"read": [{"node": "a"}], "count": [{"node": "b"}]})
    assert api.get(path).json()["is_stale"] is True
    refused = api.get(f"{path}/export?parallelism=2&format=json")
    assert refused.status_code == 422 and "ask for another plan" in refused.json()["detail"]


@pytest.mark.parametrize("body", [[], 3, "read", {"operators": []}])
def test_question_that_is_no_object_is_refused(query: Query, api: APIClient, body: object) -> None:
    found = api.post(f"/api/v1/queries/{query.pk}/parallelism", body, format="json")
    assert found.status_code == 400 and found.json()["faults"]


def test_unknown_cost_gives_an_unknown_gain(cluster: Cluster) -> None:
    query = start_query(cluster, "guessed", 0.4, "b")
    parallelism_request(query=query, question={})
    run_jobs()
    kept = parallelism_latest(query)
    assert kept is not None
    assert [(choice.gain, choice.rate_per_s) for choice in kept.plan.choices] == [(None, None)] * len(kept.plan.choices)
    assert kept.plan.recommended is None and "is not known" in kept.plan.words


def test_state_by_key_may_be_split_by_a_placement_and_other_state_not(cluster: Cluster) -> None:
    body = {"operators": [measured("sum", "clicks", 0.1, kind="aggregate", stateless=False)]}
    other = query_create(cluster=cluster, name="other", body=body)
    query_start(version=other.versions.get(), placement={"sum": [{"node": "b"}]})
    run, _ = PLACEMENT.request(
        cluster=cluster, user=None, budget_s=0.1, constraints={"may_split": ["clicks-count/count"]}
    )
    assert run.constraints["may_split"] == ["clicks-count/count"]
    with pytest.raises(Malformed, match="state that is not by key"):
        PLACEMENT.request(cluster=cluster, user=None, budget_s=0.1, constraints={"may_split": ["other/sum"]})
