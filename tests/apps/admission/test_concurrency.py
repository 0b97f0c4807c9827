"""Many clients that apply at the same moment never admit more than fits: on PostgreSQL and on SQLite."""

from __future__ import annotations

import pytest

from apps.accounts.choices import Role
from apps.admission.choices import Verdict
from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.estimates.refresh import refresh_paused
from apps.jobs.models import Job, JobState
from apps.jobs.runner import run_job
from apps.queries.choices import QueryState
from apps.queries.documents import document_export
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.estimation.estimate import estimate
from lab.soak.comparison import unserial
from tests.apps.concurrency import run_concurrently
from tests.apps.small_cluster import body, make_query, run_jobs, small_cluster, start_query, user

CLIENTS = 8


@pytest.mark.postgres
def test_parallel_applies_on_postgresql(postgres_db: str) -> None:
    check_parallel_applies()


@pytest.mark.postgres
def test_parallel_previews_of_one_question_on_postgresql(postgres_db: str) -> None:
    check_parallel_previews()


@pytest.mark.django_db(transaction=True)
def test_parallel_applies_on_sqlite() -> None:
    check_parallel_applies()


@pytest.mark.django_db(transaction=True)
def test_parallel_previews_of_one_question_on_sqlite() -> None:
    check_parallel_previews()


@pytest.mark.postgres
def test_rush_on_room_for_some_is_serial_on_postgresql(postgres_db: str) -> None:
    check_rush()


@pytest.mark.django_db(transaction=True)
def test_rush_on_room_for_some_is_serial_on_sqlite() -> None:
    check_rush()


def check_parallel_applies() -> None:
    """Eight previews, each of which fits alone; twice over, all eight are applied at once."""
    with refresh_paused():
        cluster = small_cluster()
        start_query(cluster, "first", 0.6, "a")
        admitter = user(Role.ADMITTER)
        for i in range(CLIENTS):
            make_query(cluster, f"wish-{i}", 0.55)
        requests = [
            ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query=f"wish-{i}"))[0]
            for i in range(CLIENTS)
        ]
        run_jobs()
        assert set(AdmissionRequest.objects.values_list("verdict", flat=True)) == {Verdict.ADMIT}
        outcomes = run_concurrently([lambda r=r: admission_apply(request=r, user=admitter) for r in requests])
    assert outcomes == {"done": 1, "stale": CLIENTS - 1}
    assert cluster.queries.filter(state=QueryState.RUNNING).count() == 2
    estimated = estimate(cluster_snapshot(cluster).deployment, mace_every=4)
    assert all(report.state == "holds" for report in estimated.queries.values())


def check_parallel_previews() -> None:
    with refresh_paused():
        cluster = small_cluster()
        make_query(cluster, "wish", 0.5)
        asker = user(Role.OPERATOR)
        asked = [
            lambda: ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query="wish"))
        ] * CLIENTS
        assert run_concurrently(asked) == {"done": CLIENTS}
    assert AdmissionRequest.objects.count() == 1


def check_rush() -> None:
    """Workers let in, of queries of several sizes that ask for one core at once, what some serial order would."""
    with refresh_paused():
        cluster = small_cluster(nodes=("a",))
        admitter = user(Role.ADMITTER)
        loads = {f"wish-{i}": 0.15 + 0.05 * i for i in range(CLIENTS)}
        for name, load in loads.items():
            make_query(cluster, name, load)
            ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query=name, mode="apply"))
        assert run_concurrently([work_off] * 4) == {"done": 4}
    admitted = set(cluster.queries.filter(state=QueryState.RUNNING).values_list("name", flat=True))
    assert 0 < len(admitted) < CLIENTS
    refused = {}
    for name in loads.keys() - admitted:
        work = body(loads[name])["operators"][0] | {"id": f"{name}/work", "query": name, "node": "a"}
        refused[name] = [work, {"query": name, "statistic": "worst", "bound_s": 2.0}]
    assert not unserial(document_export(cluster), refused)


def work_off() -> None:
    """Be one worker: decide what waits until nothing does."""
    waiting = Job.objects.filter(kind=ADMISSION.job, state=JobState.QUEUED)
    while keys := list(waiting.values_list("pk", flat=True)):
        for key in keys:
            run_job(key, ADMISSION.work)
