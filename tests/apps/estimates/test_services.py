"""Estimates of clusters: asked for, stored once, kept, shown, repeated when something changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from django.db import connection

from apps.estimates.answers import curves_pack, curves_unpack
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.refresh import estimate_refresh, estimate_refresh_all, refresh_paused
from apps.estimates.selectors import (
    node_estimates,
    objectives_by_headroom,
    query_estimate_latest,
    query_history,
    run_latest,
    run_staleness,
)
from apps.estimates.services import ESTIMATE, KEEP_SERIES, series_purge
from apps.fleet.services import node_update
from apps.jobs.models import Job, JobState
from apps.jobs.runner import run_job
from apps.queries.services import query_stop
from engine.arrays import step_maxima
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Any:
    return small_cluster()


def estimated(cluster: Any) -> EstimateRun:
    ESTIMATE.request(cluster=cluster)
    (job,) = run_jobs()
    assert job.error is None
    run = run_latest(cluster)
    assert run is not None
    return run


def test_overloaded_node_is_estimated(cluster: Any) -> None:
    """Load 1.25 for 60 s leaves 15 s of work: the last event waits for them."""
    start_query(cluster, "over", 1.25, "a", bound_s=10.0)
    start_query(cluster, "easy", 0.5, "b", bound_s=10.0)
    run = estimated(cluster)
    over, easy = objectives_by_headroom(run)
    assert (over.query.name, over.state) == ("over", "breached")
    assert over.worst_s == pytest.approx(15.0, abs=0.3)
    assert over.mace_s == pytest.approx(15.0)
    assert over.headroom_share == pytest.approx(-0.5, abs=0.03)
    assert over.result["bottleneck"]["node"] == "a"
    assert over.result["operators"]["work"]["load_mean_cps"] == pytest.approx(1250.0)
    assert (easy.query.name, easy.state) == ("easy", "holds")
    first, second = node_estimates(run)
    assert (first.node_name, first.mean_load, second.node_name) == ("a", pytest.approx(1.25), "b")
    assert len(first.excess) == 60
    assert max(first.excess) == pytest.approx(15.0)
    assert "mace" not in run.result
    assert run.result["mace_wc"] == pytest.approx(15.0)


def test_curve_has_its_time_axis(cluster: Any) -> None:
    query = start_query(cluster, "over", 1.25, "a")
    estimated(cluster)
    row = query_estimate_latest(query)
    assert row is not None
    curves = curves_unpack(row.series)
    assert curves["time_s"] == [float(p) for p in range(60)]
    assert max(curves["flow_s"]) == pytest.approx(row.result["flow_s"]) == pytest.approx(15.0, abs=0.3)
    assert row.low_s <= row.estimate_s <= row.high_s


def test_long_curve_is_thinned_by_maximum() -> None:
    values = np.zeros(14_400)
    values[777] = 9.0
    curves = curves_unpack(curves_pack(values, 0.5))
    assert len(curves["time_s"]) == len(curves["flow_s"]) == 1440
    assert max(curves["flow_s"]) == 9.0
    assert curves["time_s"][1] == 5.0
    assert step_maxima([3.0, 1.0], 5).tolist() == [3.0, 1.0]


def test_waiting_request_is_returned_instead_of_a_second_one(cluster: Any) -> None:
    start_query(cluster, "q", 0.5, "a")
    assert ESTIMATE.request(cluster=cluster)[1] == ESTIMATE.request(cluster=cluster)[1]


def test_redelivered_job_stores_once(cluster: Any) -> None:
    start_query(cluster, "q", 0.5, "a")
    job = ESTIMATE.request(cluster=cluster)[1]
    for _ in range(3):
        run_job(job.pk, ESTIMATE.work)
    assert EstimateRun.objects.filter(job=job).count() == 1
    assert Job.objects.get(pk=job.pk).result["queries"] == {"holds": 1}


def test_run_lists_the_inputs_that_changed_since(cluster: Any) -> None:
    start_query(cluster, "q", 0.5, "a")
    run = estimated(cluster)
    assert not run_staleness(run).is_stale
    node_update(node=cluster.nodes.get(name="a"), capacity_cps=900.0)
    staleness = run_staleness(run)
    assert staleness.is_stale
    (change,) = staleness.changes
    assert change.startswith("node a: capacity changed from 1 kcycles/s")


def test_history_follows_the_runs(cluster: Any) -> None:
    query = start_query(cluster, "q", 1.1, "a", bound_s=5.0)
    estimated(cluster)
    node_update(node=cluster.nodes.get(name="a"), capacity_cps=2000.0)
    estimated(cluster)
    before, after = query_history(query)
    assert before.at < after.at
    assert (before.state, after.state) == ("breached", "holds")


def test_curves_of_old_runs_are_dropped_first(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start_query(cluster, "q", 0.5, "a")
    monkeypatch.setattr("apps.estimates.services.KEEP_SERIES", 2)
    monkeypatch.setattr("apps.estimates.services.KEEP_RUNS", 3)
    for _ in range(4):
        estimated(cluster)
    kept = QueryEstimate.objects.order_by("-run__created_at").values_list("series", flat=True)
    assert [series is not None for series in kept] == [True, True, False]
    series_purge(cluster=cluster)
    assert KEEP_SERIES == 200


def test_cluster_without_nodes_is_refused() -> None:
    from apps.core.errors import Impossible

    with pytest.raises(Impossible, match="no nodes"):
        ESTIMATE.request(cluster=small_cluster("empty", nodes=()))


# -- estimated again, unasked


def waiting() -> int:
    return Job.objects.filter(state=JobState.QUEUED).count()


def test_changes_of_one_transaction_request_one_estimate(cluster: Any, django_capture_on_commit_callbacks: Any) -> None:
    connection.run_on_commit.clear()  # the fixture's changes are never committed in a test
    with django_capture_on_commit_callbacks(execute=True):
        start_query(cluster, "q", 0.5, "a")
    assert waiting() == 1
    with django_capture_on_commit_callbacks(execute=True):
        for name in ("a", "b"):
            node_update(node=cluster.nodes.get(name=name), capacity_cps=1500.0)
    assert waiting() == 1
    run_jobs()
    with django_capture_on_commit_callbacks(execute=True):
        cluster.nodes.get(name="a").save()
    assert waiting() == 0, "nothing changed that an estimate rests on"
    with django_capture_on_commit_callbacks(execute=True):
        query_stop(query=cluster.queries.get())
    assert waiting() == 0, "nothing runs any more"


def test_paused_refresh_is_caught_up_by_the_periodic_task(
    cluster: Any, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True), refresh_paused():
        start_query(cluster, "q", 0.5, "a")
    assert waiting() == 0
    assert estimate_refresh_all() == 1
    assert estimate_refresh_all() == 0, "one that is not finished is not asked for again"
    run_jobs()
    assert estimate_refresh_all() == 0


def test_failing_refresh_does_not_fail_the_change(cluster: Any, settings: Any) -> None:
    start_query(cluster, "q", 0.5, "a")
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert estimate_refresh(cluster) is None
    assert waiting() == 0


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_time_outside_the_calendar_is_refused(api: Any, moment: str) -> None:
    for name in ("since", "until"):
        answer = api.get("/api/v1/estimates", {name: moment})
        assert answer.status_code == 400 and [fault["path"] for fault in answer.json()["faults"]] == [name]
