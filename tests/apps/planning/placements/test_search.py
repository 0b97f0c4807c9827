"""A search as a job: asked, stopped, cancelled, done again; what it keeps, and what it says when nothing can be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import Job, JobState
from apps.jobs.runner import JobReporter, run_job
from apps.jobs.services import job_cancel, job_start
from apps.planning import placement_search
from apps.planning.choices import MoveState, RunState
from apps.planning.models import PlacementRun
from apps.planning.placement_search import PLACEMENT, placement_request_again, placement_stop
from apps.planning.placements import placement_standing
from apps.queries.services import query_stop
from tests.apps import small_cluster
from tests.apps.planning.placements.conftest import places

Proposed = Callable[..., PlacementRun]


def test_a_search_stores_a_proposal_and_moves_nothing(cluster: Cluster, proposed: Proposed) -> None:
    before = places(cluster)
    run = proposed()
    answer = run.result or {}
    assert run.state == RunState.PROPOSED
    assert run.facts["moves"] == len(answer["moves"]) == run.moves.count() == 1
    assert answer["mace_after_s"] < answer["mace_before_s"]
    assert answer["bound_s"] <= answer["value_after"] + 1e-9
    assert {query["query"] for query in answer["queries"]} == {"first", "second", "third"}
    assert answer["loads"]["first/work"] == pytest.approx(700.0)
    move = run.moves.get()
    assert (move.number, move.before[0]["node"], move.state) == (1, "a", MoveState.PENDING)
    assert move.after[0]["node"] in {"b", "c"}
    assert places(cluster) == before
    assert placement_standing(run).can_apply
    assert run.job.result == {"placement": str(run.pk), "state": "proposed", "moves": 1}


def test_a_placement_that_is_optimal_is_kept(cluster: Cluster, proposed: Proposed) -> None:
    run = proposed(constraints={"max_moves": 0})
    assert (run.facts["moves"], run.facts["value_before"]) == (0, run.facts["value_after"])
    assert "moves nothing" in placement_standing(run).why_not


def test_a_proposal_satisfies_its_constraints(cluster: Cluster, proposed: Proposed) -> None:
    run = proposed(constraints={"pin": {"first/work": "a"}, "forbid": {"second/work": ["c"]}, "max_moves": 3})
    placement = (run.result or {})["placement"]
    assert placement["first/work"][0]["node"] == "a"
    assert placement["second/work"][0]["node"] == "b"


def test_request_with_several_faults_names_each(cluster: Cluster) -> None:
    node_update(node=cluster.nodes.get(name="c"), state="draining")
    query = small_cluster.make_query(cluster, "idle", 0.1)
    with pytest.raises(Malformed) as refused:
        PLACEMENT.request(
            cluster=cluster,
            user=None,
            algorithm="magic",
            budget_s=0.0,
            seed=-1,
            constraints={"pin": {"first/work": "zz", "second/work": "c", f"{query.name}/work": "a"}, "speed": 3},
        )
    paths = {fault.path for fault in refused.value.faults}
    assert {"algorithm", "budget_s", "seed", "constraints.speed"} <= paths
    pins = {"first/work": "zz", "second/work": "c", f"{query.name}/work": "a"}
    with pytest.raises(Malformed) as refused:
        PLACEMENT.request(cluster=cluster, user=None, constraints={"pin": pins, "max_moves": 1})
    said = {fault.path: fault.message for fault in refused.value.faults}
    assert set(said) == {"constraints.pin.first/work", "constraints.pin.second/work", "constraints.pin.idle/work"}
    assert "draining" in said["constraints.pin.second/work"]
    assert not PlacementRun.objects.exists()
    assert not Job.objects.filter(kind="workers.search_placement").exists()


def test_a_cluster_without_nodes_or_queries_is_refused(cluster: Cluster) -> None:
    for query in cluster.queries.all():
        query_stop(query=query)
    with pytest.raises(Impossible, match="Nothing runs"):
        PLACEMENT.request(cluster=cluster, user=None)
    for node in cluster.nodes.all():
        node_update(node=node, state="offline")
    with pytest.raises(Impossible, match="no node"):
        PLACEMENT.request(cluster=cluster, user=None)


def test_infeasible_constraints_fail_the_run_with_every_reason(cluster: Cluster) -> None:
    forbid = {"first/work": ["a", "b", "c"], "second/work": ["a", "b", "c"]}
    run, job = PLACEMENT.request(cluster=cluster, user=None, constraints={"forbid": forbid})
    small_cluster.run_jobs()
    run.refresh_from_db()
    job.refresh_from_db()
    assert run.state == RunState.FAILED
    assert (job.error["code"], len(job.error["faults"])) == ("infeasible", 2)
    assert "first/work" in run.message


def test_stop_proposes_the_best_placement_so_far(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    run, job = PLACEMENT.request(cluster=cluster, user=None, budget_s=60.0)
    looked: list[dict[str, Any]] = []

    def look(*, run: PlacementRun, best: dict[str, Any]) -> bool:
        stop = live(run=run, best=best)
        looked.append(PlacementRun.objects.get(pk=run.pk).live)
        if not stop:
            placement_stop(run=run)
        return stop or PlacementRun.objects.get(pk=run.pk).stop_requested

    live = placement_search.placement_live
    monkeypatch.setattr(placement_search, "placement_live", look)
    run_job(job.pk, PLACEMENT.work)
    run.refresh_from_db()
    assert run.state == RunState.PROPOSED
    assert (run.result or {})["stopped"] in {"stopped", "optimal"}
    assert {"value_s", "bound_s", "elapsed_s", "trace"} <= set(looked[0])
    assert run.live == {}
    with pytest.raises(Conflict, match="only a search can be stopped"):
        placement_stop(run=run)


def test_a_cancelled_search_stores_no_proposal(cluster: Cluster) -> None:
    run, job = PLACEMENT.request(cluster=cluster, user=None)
    with pytest.raises(Conflict, match="stop it before"):
        PLACEMENT.delete(run=run)
    job_cancel(job)
    run.refresh_from_db()
    assert (run.state, run.result) == (RunState.ABORTED, None)
    PLACEMENT.delete(run=run)
    assert not PlacementRun.objects.exists()


def test_a_search_of_a_lost_worker_is_repeated_and_stored_once(cluster: Cluster) -> None:
    _, job = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.3)
    lost = job_start(job.pk)
    assert lost is not None
    outcome = PLACEMENT.work(JobReporter(lost))  # and then it dies before it stores
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    run_job(job.pk, PLACEMENT.work)
    job.refresh_from_db()
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2)
    assert PlacementRun.objects.get().moves.count() == 1
    assert outcome.store is not None


def test_a_change_during_the_search_makes_the_proposal_stale(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(**arguments: Any) -> None:
        begin(**arguments)
        node_update(node=cluster.nodes.get(name="b"), capacity_cps=900.0)

    begin = placement_search.placement_started
    monkeypatch.setattr(placement_search, "placement_started", started)
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.3)
    small_cluster.run_jobs()
    run.refresh_from_db()
    standing = placement_standing(run)
    assert (run.state, standing.can_apply) == (RunState.PROPOSED, False)
    assert standing.changes == ["node b: capacity changed from 1 kcycles/s to 900 cycles/s"]
    monkeypatch.undo()
    again, _ = placement_request_again(run=run, user=None)
    small_cluster.run_jobs()
    again.refresh_from_db()
    assert (again.parent_id, placement_standing(again).can_apply) == (run.pk, True)
