"""Backtests from records to answers: reach and rates of records, what ran and who asked, services, REST."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.admission.decisions import admission_override
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.core.errors import Impossible, Malformed
from apps.fleet.models import Cluster
from apps.jobs.models import JobState
from apps.planning.backtest_records import (
    Buckets,
    RecordedReach,
    SegmentGrid,
    recorded_reaches,
    segment_grid,
    spread_buckets,
)
from apps.planning.backtests import BACKTEST
from apps.planning.models import LoadHistory
from apps.queries.arrivals import series
from apps.queries.services import query_stop
from tests.apps import small_cluster
from tests.apps.policies.documents import set_policy
from tests.clock import run_moment

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

NOW = run_moment().replace(minute=0, second=0, microsecond=0)
DAY = timedelta(days=1)
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def history(cluster: Cluster, rates: list[float], ends_at: datetime = NOW, source: str = "clicks") -> LoadHistory:
    """Hours of so many events a second."""
    values = 3600.0 * np.array(rates)
    return LoadHistory.objects.create(
        cluster=cluster, source_id=source, origin="upload", evidence="measured", bucket_s=3600,
        starts_at=ends_at - timedelta(hours=len(rates)), buckets=len(rates), events=float(np.nansum(values)),
        data=series.pack(values), digest=series.digest(values),
    )  # fmt: skip


@pytest.fixture
def cluster() -> Cluster:
    """`first` takes 0.6 of node a; 24 hours at its stretch's rate, but for the last two at 1.5 times as much."""
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "first", 0.6, "a")
    history(cluster, [100.0] * 22 + [150.0] * 2)
    return cluster


def asked(cluster: Cluster, name: str, load: float, at: datetime, *, override: bool = False, **more: Any) -> Any:
    small_cluster.make_query(cluster, name, load)
    request, _ = ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query=name, **more))
    small_cluster.run_jobs()
    request.refresh_from_db()
    if override:
        admission_override(request=request, user=small_cluster.user(name=f"who-{name}"), reason="We need it")
    AdmissionRequest.objects.filter(pk=request.pk).update(created_at=at, **({"decided_at": at} if override else {}))
    return request


def answered(cluster: Cluster, **fields: Any) -> dict[str, Any]:
    row, _ = BACKTEST.request(cluster=cluster, user=None, **{"since": NOW - DAY, "until": NOW, **fields})
    (job,) = [job for job in small_cluster.run_jobs() if job.pk == row.job_id]
    assert job.state == JobState.SUCCEEDED, job.error
    row.refresh_from_db()
    result = row.result
    assert result is not None
    return result


# -- records


def test_counts_are_spread_over_segments_and_gaps_are_nan() -> None:
    grid = SegmentGrid(0.0, 100.0, 4, False)
    halves = Buckets(np.array([0.0, 50.0, 100.0, 150.0]), 50.0, np.array([100.0, 50.0, np.nan, np.nan]))
    wide = Buckets(np.array([200.0]), 200.0, np.array([800.0]))
    np.testing.assert_allclose(spread_buckets([halves, wide], grid), [1.5, np.nan, 4.0, 4.0])
    assert np.isnan(spread_buckets([], grid)).all()


def test_segments_follow_the_finest_record_up_to_the_limit() -> None:
    reach = RecordedReach("s", "history", AT - 60 * DAY, AT, 3600.0)
    week = segment_grid([reach], AT - 7 * DAY, AT + DAY)
    assert week is not None and (week.width_s, week.segments, week.is_coarser) == (3600.0, 168, False)
    assert week.until_s == AT.timestamp()
    long = segment_grid([reach], AT - 60 * DAY, AT)
    assert long is not None and (long.width_s, long.segments, long.is_coarser) == (21_600.0, 240, True)
    fresh = segment_grid([RecordedReach("s", "measured", AT, AT + timedelta(minutes=10), 10.0)], AT - DAY, AT + DAY)
    assert fresh is not None and (fresh.width_s, fresh.segments) == (60.0, 10)
    assert segment_grid([reach], AT + DAY, AT + 2 * DAY) is None


def test_recorded_reach_begins_with_the_first_record(cluster: Cluster) -> None:
    (reach,) = recorded_reaches(cluster)
    assert (reach.source, reach.kind, reach.first, reach.last) == ("clicks", "history", NOW - DAY, NOW)


# -- answers


def test_admitting_everything_violates_objectives_that_mace_keeps(cluster: Cluster) -> None:
    asked(cluster, "more", 0.5, NOW - DAY / 2, placement={"work": "a"})
    result = answered(cluster, policy={"admission": "everything"})
    assert (result["segments"], result["width_s"]) == (24, 3600.0)
    (request,) = result["requests"]
    assert (request["outcome"], request["recorded"]) == ("admitted", "rejected")
    assert [violation["query"] for violation in result["tested"]["violations"]] == ["first", "more"]
    assert result["tested"]["violations"][0]["segments"] == list(range(12, 24))
    assert result["recorded"]["violations"] == []
    kept = answered(cluster, policy={"admission": "mace"})
    assert kept["tested"]["violations"] == [] and kept["requests"][0]["outcome"] == "rejected"


def test_queries_admitted_in_the_period_are_absent_at_its_beginning(cluster: Cluster) -> None:
    asked(cluster, "more", 0.5, NOW - DAY / 2, override=True, placement={"work": "a"})
    result = answered(cluster, policy={"admission": "mace"})
    (request,) = result["requests"]
    assert (request["outcome"], request["recorded"]) == ("rejected", "admitted")
    assert "Against the verdict: We need it" in request["recorded_reason"]
    late = result["recorded"]["queries"]["more"]["latency_s"]
    assert late[:12] == [None] * 12 and late[12] is not None
    assert result["recorded"]["seconds_over"] > 0 == result["tested"]["seconds_over"]


def test_requests_are_replayed_at_the_beginning_when_asked_so(cluster: Cluster) -> None:
    asked(cluster, "more", 0.5, timezone.now(), placement={"work": "a"})
    assert answered(cluster, policy={"admission": "everything"})["requests"] == []
    result = answered(cluster, policy={"admission": "everything"}, ask="start", until=timezone.now())
    assert result["tested"]["queries"]["more"]["latency_s"][0] is not None


def test_a_stopped_query_runs_until_its_stop_in_the_replay(cluster: Cluster) -> None:
    query = small_cluster.start_query(cluster, "gone", 0.3, "b")
    query_stop(query=query)
    type(query).objects.filter(pk=query.pk).update(updated_at=NOW - timedelta(hours=6))
    late = answered(cluster)["recorded"]["queries"]["gone"]["latency_s"]
    assert [value is None for value in late] == [False] * 18 + [True] * 6


# -- services


def test_policy_fields_default_to_the_clusters_own(cluster: Cluster) -> None:
    set_policy(cluster, evidence={"at_risk": "admit", "assumed": "review"})
    row = BACKTEST.create(cluster=cluster, user=None, policy={"headroom": 0.1})
    assert (row.policy["at_risk"], row.policy["assumed"], row.policy["headroom"]) == ("admit", "review", 0.1)


def test_invalid_backtests_are_refused_with_every_fault(cluster: Cluster) -> None:
    with pytest.raises(Malformed) as refused:
        BACKTEST.create(cluster=cluster, user=None, since=NOW, until=NOW, policy={"admission": "all"}, ask="x")
    assert [fault.path for fault in refused.value.faults] == ["until", "ask", "policy.admission"]
    for period in ({"until": AT.replace(year=1)}, {"since": AT.replace(year=1), "until": AT.replace(year=2)}):
        with pytest.raises(Malformed, match=r"until is|allowed: from 1970 on"):
            BACKTEST.create(cluster=cluster, user=None, **period)
    with pytest.raises(Impossible, match="records of little reach from"):
        BACKTEST.create(cluster=cluster, user=None, since=NOW - 9 * DAY, until=NOW - 8 * DAY)
    with pytest.raises(Impossible, match="nothing was recorded of the arrivals of empty yet"):
        BACKTEST.create(cluster=small_cluster.small_cluster("empty"), user=None)


# -- REST


def test_a_backtest_is_requested_read_and_deleted_over_rest(api: APIClient, cluster: Cluster) -> None:
    body = {"cluster": "little", "since": (NOW - DAY).isoformat(), "policy": {"admission": "everything"}}
    created = api.post("/api/v1/backtests", body, format="json")
    assert created.status_code == 202
    small_cluster.run_jobs()
    result = api.get(created.json()["result_api_url"]).json()
    assert (result["state"], result["result"]["segments"]) == ("answered", 24)
    assert result["facts"]["headline"] == result["result"]["headline"]
    listed = api.get("/api/v1/backtests?cluster=little&state=answered").json()["results"]
    assert [(row["id"], "result" in row) for row in listed] == [(result["id"], False)]
    assert api.delete(created.json()["result_api_url"]).status_code == 204
    refused = api.post("/api/v1/backtests", {**body, "policy": {"placement": "x"}, "extra": 1}, format="json")
    assert refused.status_code == 400
