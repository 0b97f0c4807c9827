"""Placements and admissions at the same moment: a cluster is changed by one at a time, and never filled twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apps.accounts.choices import Role
from apps.admission.choices import Verdict
from apps.admission.decisions import admission_apply
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.core.errors import Stale
from apps.estimates.refresh import refresh_paused
from apps.fleet.models import Cluster
from apps.jobs.models import JobState
from apps.jobs.runner import run_job
from apps.planning.choices import MoveState, RunState
from apps.planning.models import PlacementRun
from apps.planning.placement_moves import apply_moves, placement_apply
from apps.planning.placement_search import PLACEMENT
from apps.queries.choices import QueryState
from tests.apps.concurrency import run_concurrently
from tests.apps.planning.placements.conftest import places
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query, user

CLIENTS = 6


@pytest.mark.postgres
def test_one_of_many_concurrent_applies_of_a_run_succeeds_on_postgresql(postgres_db: str) -> None:
    check_one_run_applied_by_many()


@pytest.mark.postgres
def test_one_of_many_runs_of_a_cluster_is_applied_at_a_time_on_postgresql(postgres_db: str) -> None:
    check_many_runs_applied()


@pytest.mark.postgres
def test_concurrent_moves_and_admission_never_overload_a_node_on_postgresql(postgres_db: str) -> None:
    check_moves_against_an_admission()


@pytest.mark.django_db(transaction=True)
def test_concurrent_moves_and_admission_never_overload_a_node_on_sqlite() -> None:
    check_moves_against_an_admission()


def check_one_run_applied_by_many() -> None:
    with refresh_paused():
        cluster = crowded()
        run = proposed(cluster)
        outcomes = run_concurrently([lambda: placement_apply(run=run, user=None, pace=0.0)] * CLIENTS)
        assert outcomes == {"done": 1, "wrong_state": CLIENTS - 1}
        assert [job.state for job in run_jobs()] == [JobState.SUCCEEDED]
    run.refresh_from_db()
    assert run.state == RunState.APPLIED
    assert set(run.moves.values_list("state", flat=True)) == {MoveState.DONE}


def check_many_runs_applied() -> None:
    with refresh_paused():
        cluster = crowded()
        runs = [proposed(cluster) for _ in range(CLIENTS)]
        outcomes = run_concurrently([lambda r=run: placement_apply(run=r, user=None) for run in runs])
    assert outcomes == {"done": 1, "busy": CLIENTS - 1}
    assert PlacementRun.objects.filter(state=RunState.APPLYING).count() == 1


def check_moves_against_an_admission() -> None:
    """Node c has room for what the proposal moves there, or for the wish: whoever is second is told what has moved."""
    with refresh_paused():
        cluster = crowded()
        admitter = user(Role.ADMITTER)
        make_query(cluster, "wish", 0.7)
        wish, _ = ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="wish"))
        run = proposed(cluster)
        wish.refresh_from_db()
        assert wish.verdict == Verdict.ADMIT

        outcomes = run_concurrently([moving(run), lambda: admission_apply(request=wish, user=admitter)])
    assert outcomes == {"done": 1, "stale": 1}
    present = places(cluster)
    on_c = sorted(name for name, replicas in present.items() if replicas[0][0] == "c")
    was_admitted = cluster.queries.get(name="wish").state == QueryState.RUNNING
    assert on_c == ["wish"] if was_admitted else len(on_c) == 1 and on_c[0] in {"first", "second"}


def moving(run: PlacementRun) -> Callable[[], None]:
    """Apply a run and make its moves, as a worker does; `Stale` if they could not be made."""

    def move() -> None:
        _, job = placement_apply(run=run, user=None, pace=0.0)
        ended = run_job(job.pk, apply_moves)
        assert ended is not None
        if ended.state == JobState.FAILED:
            raise Stale(ended.error["message"])

    return move


def crowded() -> Cluster:
    """`first` and `second` overload a, `third` half fills b, c is empty."""
    cluster = small_cluster(nodes=("a", "b", "c"))
    start_query(cluster, "first", 0.7, "a", bound_s=60.0)
    start_query(cluster, "second", 0.6, "a", bound_s=60.0)
    start_query(cluster, "third", 0.5, "b", bound_s=60.0)
    return cluster


def proposed(cluster: Cluster) -> PlacementRun:
    """A run whose search is done, with what else was queued."""
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.2)
    run_jobs()
    run.refresh_from_db()
    assert run.state == RunState.PROPOSED
    return run
