"""Kept parts of a large cluster: what pages compare with is never older than what they compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.admission.selectors import admission_standing
from apps.estimates.models import EstimateRun
from apps.estimates.refresh import estimate_refresh_all
from apps.estimates.selectors import run_latest, run_staleness
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import Job, JobState
from apps.planning.what_ifs import WHAT_IF, what_if_changes
from apps.queries.backlogs import backlogs_measure
from apps.queries.models import ClusterParts
from apps.queries.services import query_stop, query_update
from apps.queries.snapshots import parts
from tests.apps.recordings import recorded
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db

Committed = Callable[[], AbstractContextManager[Any]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that counts as large; node a is at 0.5, and its estimate is of what runs."""
    monkeypatch.setattr(parts, "LARGE", 1)
    return recorded(_estimated)


def _estimated() -> Cluster:
    cluster = small_cluster()
    start_query(cluster, "first", 0.5, "a")
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    return cluster


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> Committed:
    """Commits what is changed inside, and nothing from before."""

    def commit() -> AbstractContextManager[Any]:
        connection.run_on_commit.clear()
        return django_capture_on_commit_callbacks(execute=True)  # type: ignore[no-any-return]

    return commit


def previewed(cluster: Cluster, name: str = "wish") -> AdmissionRequest:
    make_query(cluster, name, 0.3)
    request, _ = ADMISSION.request(cluster=cluster, user=user(), question=AdmissionQuestion(query=name))
    run_jobs()
    return AdmissionRequest.objects.select_related("job").get(pk=request.pk)


def shrink(cluster: Cluster, capacity_cps: float = 900.0) -> None:
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=capacity_cps)


def waiting() -> list[Job]:
    return list(Job.objects.filter(state=JobState.QUEUED))


def test_preview_after_a_change_can_be_applied_before_an_estimate_has_ended(cluster: Cluster) -> None:
    estimate_refresh_all()
    shrink(cluster)
    request = previewed(cluster)
    standing = admission_standing(request)
    assert (standing.is_stale, standing.can_apply) == (False, True)
    shrink(cluster, 800.0)
    estimate_refresh_all()
    assert admission_standing(request).changes == ("node b: capacity changed from 900 cycles/s to 800 cycles/s",)


def test_preview_is_not_compared_with_parts_from_before_its_snapshot(cluster: Cluster) -> None:
    request = previewed(cluster)
    assert request.job is not None and request.job.started_at is not None
    before = request.job.started_at - timedelta(seconds=1)
    ClusterParts.objects.update(digest="0" * 64, parts={"node:gone": "0"}, read_at=before)
    assert not admission_standing(request).is_stale
    shrink(cluster)
    assert admission_standing(request).is_stale


def test_answers_where_nothing_runs_any_more_are_not_stale(cluster: Cluster) -> None:
    query_stop(query=cluster.queries.get(name="first"))
    request = previewed(cluster)
    what_if, _ = WHAT_IF.request(cluster=cluster, user=None)
    run_jobs()
    what_if.refresh_from_db()
    assert admission_standing(request).can_apply
    assert what_if_changes(what_if) is None
    shrink(cluster)
    assert estimate_refresh_all() == 0
    assert admission_standing(request).is_stale
    assert what_if_changes(what_if)


def test_end_of_an_estimate_leaves_the_parts_that_were_read_meanwhile(cluster: Cluster) -> None:
    run = EstimateRun(cluster=cluster)
    answer = ESTIMATE.answer(run, lambda share, step: None)
    shrink(cluster)
    ESTIMATE.request(cluster=cluster)
    assert estimate_refresh_all() == 0, "one is under way"
    newest = ClusterParts.objects.get(cluster=cluster).digest
    assert newest != run.snapshot
    ESTIMATE.keep(run, answer, None)
    assert ClusterParts.objects.get(cluster=cluster).digest == newest
    assert run_staleness(run).is_stale


def test_parts_are_of_the_moment_before_their_rows_were_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[datetime] = []
    taken = parts.cluster_snapshot

    def taking(of: Cluster) -> Any:
        snapshot = taken(of)
        read.append(datetime.now(UTC))
        return snapshot

    monkeypatch.setattr(parts, "cluster_snapshot", taking)
    began = datetime.now(UTC)
    snapshot = parts.snapshot_take(cluster)
    kept = ClusterParts.objects.get(cluster=cluster)
    assert began <= kept.read_at == snapshot.read_at <= read[0]
    older = snapshot.read_at - timedelta(seconds=1)
    ClusterParts.objects.update(digest="1" * 64, read_at=read[0])
    monkeypatch.setattr(parts, "shared_now", lambda: older)
    parts.parts_renew(cluster)
    assert ClusterParts.objects.get(cluster=cluster).digest == "1" * 64


def measure(cluster: Cluster) -> None:
    now = datetime.now(UTC)
    backlogs_measure(query=cluster.queries.get(name="first"), events={"clicks": 0.0}, read_at=now)


def describe(cluster: Cluster) -> None:
    query_update(query=cluster.queries.get(name="first"), description="Says what it is for.")


def rename(cluster: Cluster) -> None:
    cluster.name = "Larger"
    cluster.save()


@pytest.mark.parametrize("large", [1, 1000])
@pytest.mark.parametrize("change", [measure, describe, rename])
def test_saves_that_leave_the_snapshot_are_not_estimated(
    cluster: Cluster,
    change: Callable[[Cluster], None],
    large: int,
    monkeypatch: pytest.MonkeyPatch,
    committed: Committed,
) -> None:
    monkeypatch.setattr(parts, "LARGE", large)
    newest = run_latest(cluster)
    with committed():
        change(cluster)
    asked = waiting()
    assert len(asked) == (large == 1 and change is not measure)
    run_jobs()
    assert run_latest(cluster) == newest
    for job in asked:
        job.refresh_from_db()
        assert (job.state, (job.result or {})["estimate"]) == (JobState.SUCCEEDED, newest.pk)  # type: ignore[union-attr]
        assert ESTIMATE.answered_by(job) == newest


def test_change_of_a_large_cluster_is_estimated_and_so_is_what_a_person_asks_for(
    cluster: Cluster, committed: Committed
) -> None:
    with committed():
        shrink(cluster)
    run_jobs()
    assert EstimateRun.objects.filter(cluster=cluster).count() == 2
    with committed():
        rename(cluster)
    (job,) = waiting()
    assert ESTIMATE.request(cluster=cluster)[1] == job
    run_jobs()
    assert EstimateRun.objects.filter(cluster=cluster).count() == 3
