"""Applying batch by batch: whole batches, one run at a time, stopped by anything that moves, taken back on request."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.core.errors import Conflict, Malformed, Stale
from apps.estimates.refresh import estimate_refresh_all
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import Job, JobState
from apps.jobs.runner import run_job
from apps.jobs.services import JobSuperseded, job_start
from apps.planning import placement_moves as work
from apps.planning.choices import MoveState, RunState
from apps.planning.models import PlacementMove, PlacementRun
from apps.planning.placement_moves import (
    BatchDone,
    batch_apply,
    batch_pause_s,
    placement_abort,
    placement_apply,
    placement_undo,
    plan_batches,
)
from apps.planning.placement_search import PLACEMENT
from apps.planning.placements import placement_standing
from apps.queries.models import ClusterParts
from apps.queries.snapshots import parts
from tests.apps import small_cluster
from tests.apps.planning.placements.conftest import places

Proposed = Callable[..., PlacementRun]


@pytest.fixture
def crowded(cluster: Cluster) -> Cluster:
    """Two more queries on node a: several moves, from one node."""
    small_cluster.start_query(cluster, "fourth", 0.5, "a")
    small_cluster.start_query(cluster, "fifth", 0.3, "a")
    return cluster


def fresh(run: PlacementRun) -> PlacementRun:
    return PlacementRun.objects.select_related("cluster").get(pk=run.pk)


def states(run: PlacementRun) -> list[str]:
    return list(run.moves.order_by("number").values_list("state", flat=True))


def test_apply_moves_operators_as_proposed_and_undo_moves_them_back(crowded: Cluster, proposed: Proposed) -> None:
    before = places(crowded)
    run = proposed()
    placement_apply(run=run, user=None, pace=0.0)
    small_cluster.run_jobs()
    run = fresh(run)
    assert run.state == RunState.APPLIED
    assert set(states(run)) == {MoveState.DONE}
    assert run.batches == len(set(run.moves.values_list("batch", flat=True))) > 1
    for move in run.moves.all():
        where = [(part["node"], part["core"], part["fraction"]) for part in move.after]
        assert places(crowded)[move.query] == where
    assert placement_standing(run).can_undo
    placement_undo(run=run, user=None)
    small_cluster.run_jobs()
    run = fresh(run)
    assert (run.state, set(states(run)), places(crowded)) == (RunState.UNDONE, {MoveState.UNDONE}, before)
    with pytest.raises(Conflict, match="only one that was applied"):
        placement_undo(run=run, user=None)


def test_apply_and_undo_are_stale_when_the_cluster_has_changed(cluster: Cluster, proposed: Proposed) -> None:
    run, other = proposed(), proposed()
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=900.0)
    with pytest.raises(Stale) as refused:
        placement_apply(run=run, user=None)
    assert refused.value.data["changed"] == ["node b: capacity changed from 1 kcycles/s to 900 cycles/s"]
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=1000.0)
    placement_apply(run=run, user=None)
    small_cluster.run_jobs()
    with pytest.raises(Stale, match=r"query .*placement changed"):
        placement_apply(run=other, user=None)
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=900.0)
    with pytest.raises(Stale, match="this run left it"):
        placement_undo(run=fresh(run), user=None)
    assert not placement_standing(fresh(run)).can_undo


def test_moves_in_a_large_cluster_can_be_undone_as_soon_as_they_are_made(
    cluster: Cluster, proposed: Proposed, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    monkeypatch.setattr(parts, "LARGE", 1)
    run = proposed()
    estimate_refresh_all()
    assert placement_standing(run).can_apply
    with django_capture_on_commit_callbacks(execute=True):
        _, job = placement_apply(run=run, user=None, pace=0.0)
        small_cluster.run_jobs()
        job.refresh_from_db()
        ClusterParts.objects.update(read_at=job.started_at)  # read after the job began and before it moved anything
    assert placement_standing(fresh(run)).can_undo


def test_a_second_run_of_a_cluster_is_refused_while_one_is_applied(crowded: Cluster, proposed: Proposed) -> None:
    run, other = proposed(), proposed()
    placement_apply(run=run, user=None)
    with pytest.raises(Conflict) as refused:
        placement_apply(run=other, user=None)
    assert (refused.value.code, refused.value.data["placement"]) == ("busy", str(run.pk))
    with pytest.raises(Conflict, match="only a proposal"):
        placement_apply(run=fresh(run), user=None)


def test_a_change_between_batches_ends_the_run_as_stale_after_a_whole_batch(
    crowded: Cluster, proposed: Proposed
) -> None:
    run = proposed()
    run, job = placement_apply(run=run, user=None, pace=0.0, batch_size=1)
    job = job_start(job.pk)
    assert job is not None
    batch = batch_apply(run=run, job=job)
    assert isinstance(batch, BatchDone)
    moved = places(crowded)
    node_update(node=crowded.nodes.get(name="b"), state="draining")
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    ended = run_job(job.pk, work.apply_moves)
    assert ended is not None
    assert (ended.state, ended.error["code"]) == (JobState.FAILED, "stale")
    assert ended.error["changed"] == ["node b: state changed from active to draining"]
    run = fresh(run)
    assert run.state == RunState.STALE
    assert "node b: state changed from active to draining" in run.message
    assert states(run) == [MoveState.DONE] + [MoveState.SKIPPED] * (run.moves.count() - 1)
    assert places(crowded) == moved


def test_batches_of_a_lost_worker_are_not_applied_twice(crowded: Cluster, proposed: Proposed) -> None:
    run = proposed()
    run, job = placement_apply(run=run, user=None, pace=0.0, batch_size=1)
    lost = job_start(job.pk)
    assert lost is not None
    first = batch_apply(run=run, job=lost)
    at = run.moves.get(number=1).applied_at
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    ended = run_job(job.pk, work.apply_moves)
    assert ended is not None
    assert (ended.state, fresh(run).state) == (JobState.SUCCEEDED, RunState.APPLIED)
    assert isinstance(first, BatchDone)
    assert run.moves.get(number=1).applied_at == at
    with pytest.raises(JobSuperseded):
        batch_apply(run=run, job=lost)


def test_abort_between_batches_skips_the_remaining_moves(
    crowded: Cluster, proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = proposed()
    with pytest.raises(Conflict, match="only one that is being applied"):
        placement_abort(run=run)
    run.moves.update(duration_s=20.0)
    run, job = placement_apply(run=run, user=None, pace=1.0, batch_size=1)
    # In this module's name alone: the clock's own sleep is also that of other threads, such as Spark's.
    monkeypatch.setattr(work, "time", SimpleNamespace(sleep=lambda _: placement_abort(run=run)))
    ended = run_job(job.pk, work.apply_moves)
    assert ended is not None
    run = fresh(run)
    assert (ended.state, run.state) == (JobState.CANCELLED, RunState.ABORTED)
    assert states(run).count(MoveState.DONE) == 1
    assert states(run).count(MoveState.SKIPPED) == run.moves.count() - 1
    assert placement_standing(run).can_undo


def test_abort_before_the_first_batch_moves_nothing(cluster: Cluster, proposed: Proposed) -> None:
    run, _ = placement_apply(run=proposed(), user=None)
    placement_abort(run=run)
    run = fresh(run)
    assert (run.state, states(run)) == (RunState.ABORTED, [MoveState.SKIPPED])
    with pytest.raises(Conflict, match="moved nothing"):
        placement_undo(run=run, user=None)


def test_applying_a_split_stores_replicas_with_their_fractions(cluster: Cluster) -> None:
    query = small_cluster.start_query(cluster, "heavy", 1.6, "c", bound_s=5.0)
    query.running_version.operators.update(stateless=True)
    run, _ = PLACEMENT.request(
        cluster=cluster, user=None, objective="worst", budget_s=1.0, constraints={"may_split": ["heavy/work"]}
    )
    small_cluster.run_jobs()
    move = run.moves.get(operator="heavy/work")
    assert move.kind == "split"
    placement_apply(run=run, user=None, pace=0.0)
    small_cluster.run_jobs()
    assert fresh(run).state == RunState.APPLIED
    replicas = places(cluster)["heavy"]
    assert len(replicas) == len(move.after) > 1
    assert sum(share for _, _, share in replicas) == pytest.approx(1.0)


def test_pace_and_batch_size_out_of_range_are_refused(cluster: Cluster, proposed: Proposed) -> None:
    with pytest.raises(Malformed) as refused:
        placement_apply(run=proposed(), user=None, pace=-1.0, batch_size=0)
    assert [fault.path for fault in refused.value.faults] == ["pace", "batch_size"]


def test_moves_that_share_a_node_go_to_different_batches() -> None:
    def move(before: str, after: str, duration_s: float = 0.0) -> PlacementMove:
        return PlacementMove(before=[{"node": before}], after=[{"node": after}], duration_s=duration_s)

    moves = [move("a", "b", 3.0), move("c", "d", 5.0), move("d", "e"), move("f", "g"), move("h", "i")]
    assert [len(batch) for batch in plan_batches(moves, 2)] == [2, 2, 1]
    assert batch_pause_s(moves[:2], pace=2.0, batches=3) == 10.0
    assert batch_pause_s(moves[:2], pace=10.0, batches=3) == 30.0
    assert batch_pause_s(moves[:2], pace=1.0, batches=300) == 1.0


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_applies_succeeds(crowded: Cluster, proposed: Proposed) -> None:
    runs = [proposed(), proposed()]

    def apply(run: PlacementRun) -> str:
        try:
            placement_apply(run=run, user=None)
        except Conflict as refusal:
            return refusal.code
        finally:
            connection.close()
        return "applied"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(apply, runs)) == ["applied", "busy"]
    assert sorted(run.state for run in PlacementRun.objects.all()) == [RunState.APPLYING, RunState.PROPOSED]
