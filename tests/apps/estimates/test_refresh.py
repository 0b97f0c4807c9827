"""Estimates that telemetry asks for: seldom, quiet, and fewer with age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from apps.estimates.models import EstimateRun
from apps.estimates.refresh import estimates_of_telemetry_thin, refresh_by_telemetry, telemetry_pace
from apps.estimates.selectors import estimate_under_way
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.measurements.models import StatisticsWindow
from apps.measurements.services import refine_all, refine_cluster
from apps.queries.models import OperatorInput
from apps.telemetry.models import LiveQuery
from tests.apps.measurements.live import live_query, make_live_cluster
from tests.apps.measurements.test_services import tell
from tests.apps.small_cluster import run_jobs
from tests.clock import run_moment

pytestmark = pytest.mark.moment
NOW = run_moment()


@pytest.fixture
def live() -> LiveQuery:
    return live_query(make_live_cluster())


def aged(seconds: float) -> None:
    EstimateRun.objects.update(created_at=datetime.now(UTC) - timedelta(seconds=seconds))


def shifted(share: float) -> None:
    StatisticsWindow.objects.filter(operator="good").update(records_out=0.5 * (1 + share) * 1500 / 2)
    StatisticsWindow.objects.filter(operator="good", place="stream").update(records_out=0.5 * (1 + share) * 500)


@pytest.mark.django_db(transaction=True)
def test_small_changes_refresh_once_a_minute_and_large_ones_at_once() -> None:
    live = live_query(make_live_cluster())
    run_jobs()
    tell(live)
    cluster = live.query.cluster
    with refresh_by_telemetry():
        refine_all(NOW, pace_of=telemetry_pace)  # measured instead of assumed: at once
        run_jobs()
        assert EstimateRun.objects.filter(by_telemetry=True).count() == 1
        before = Job.objects.count()
        shifted(0.05)
        assert refine_all(NOW, pace_of=telemetry_pace).inputs == 0 and Job.objects.count() == before
        aged(61)
        assert refine_all(NOW, pace_of=telemetry_pace).inputs == 1 and Job.objects.count() == before + 1
        run_jobs()
        shifted(0.4)
        assert refine_all(NOW, pace_of=telemetry_pace).inputs == 1
        run_jobs()
    assert telemetry_pace(cluster).age_s < 30 and telemetry_pace(cluster).standings[0].bound_s == 10.0


@pytest.mark.django_db
def test_held_back_changes_are_passed_on_together(live: LiveQuery) -> None:
    tell(live)
    refine_cluster(live.query.cluster, NOW)
    ESTIMATE.request(cluster=live.query.cluster)
    run_jobs()
    shifted(0.05)
    StatisticsWindow.objects.filter(operator="window").update(cpu_ns=220_000)
    assert refine_cluster(live.query.cluster, NOW, telemetry_pace(live.query.cluster)).inputs == 0
    aged(61)
    assert refine_cluster(live.query.cluster, NOW, telemetry_pace(live.query.cluster)).inputs == 2
    assert OperatorInput.objects.get(operator__name="good").selectivity == pytest.approx(0.525, abs=0.001)


def drained(share: float) -> None:
    """Load factors have moved: `good` gets so much of its records at the stream processor."""
    windows = StatisticsWindow.objects.filter(operator="good")
    windows.exclude(place="stream").update(records_processed=1000 * (1 - share))
    windows.filter(place="stream").update(records_processed=2000 * share)


@pytest.mark.django_db
def test_unsteady_load_factors_change_the_placement_once_a_minute(live: LiveQuery) -> None:
    tell(live)
    cluster = live.query.cluster
    assert refine_cluster(cluster, NOW).placements == 1
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    placed = []
    for share in (0.35, 0.15, 0.39, 0.11):
        drained(share)
        placed.append(refine_cluster(cluster, NOW, telemetry_pace(cluster)).placements)
    assert placed == [0, 0, 0, 0]
    aged(61)
    assert refine_cluster(cluster, NOW, telemetry_pace(cluster)).placements == 1
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    drained(0.5)
    assert refine_cluster(cluster, NOW, telemetry_pace(cluster)).placements == 1, "by a fifth of the events: at once"


@pytest.mark.django_db
def test_refreshes_by_telemetry_are_not_announced(live: LiveQuery, admin_client: Client) -> None:
    cluster = live.query.cluster
    job = ESTIMATE.request(cluster=cluster, by_telemetry=True)[1]
    assert estimate_under_way(cluster) is None
    page = admin_client.get("/c/this-host/").content.decode()
    assert "Estimate under way" not in page and f"job-{job.pk}" not in page
    assert ESTIMATE.request(cluster=cluster)[1] == job  # a person who asks for one sees the one that waits
    assert estimate_under_way(cluster) == job
    assert "Estimate under way" in admin_client.get("/c/this-host/").content.decode()
    run_jobs()
    assert not EstimateRun.objects.get().by_telemetry


def run(cluster: Cluster, age: timedelta, by_telemetry: bool = True) -> EstimateRun:
    return EstimateRun.objects.create(
        cluster=cluster, snapshot="s", subinterval_s=1.0, slice_s=1.0, slices=1, result={}, duration_s=0.1,
        created_at=NOW - age, by_telemetry=by_telemetry,
    )  # fmt: skip


@pytest.mark.django_db
def test_old_estimates_are_thinned() -> None:
    cluster = make_live_cluster()
    asked = run(cluster, timedelta(days=40), by_telemetry=False)
    for minutes in range(0, 300, 2):
        run(cluster, timedelta(minutes=minutes, seconds=1))
    for hours in range(49, 99):
        run(cluster, timedelta(hours=hours, minutes=5))
        run(cluster, timedelta(hours=hours, minutes=5, seconds=20))
    run(cluster, timedelta(days=31))
    estimates_of_telemetry_thin(NOW)
    ages = [NOW - at for at in EstimateRun.objects.filter(by_telemetry=True).values_list("created_at", flat=True)]
    assert sum(age < timedelta(hours=2) for age in ages) == 60
    assert 18 <= sum(timedelta(hours=2) <= age < timedelta(days=2) for age in ages) <= 19
    assert 50 <= sum(timedelta(days=2) <= age < timedelta(days=30) for age in ages) <= 51
    assert max(ages) < timedelta(days=30) and EstimateRun.objects.filter(pk=asked.pk).exists()
    assert estimates_of_telemetry_thin(NOW) == 0


@pytest.mark.django_db
def test_newest_estimate_of_a_cluster_is_kept_at_any_age() -> None:
    kept = run(make_live_cluster(), timedelta(days=60))
    assert estimates_of_telemetry_thin(NOW) == 0 and EstimateRun.objects.get() == kept


@pytest.mark.django_db
def test_jobs_of_telemetry_are_purged_after_two_hours(live: LiveQuery) -> None:
    ESTIMATE.request(cluster=live.query.cluster, by_telemetry=True)
    run_jobs()
    estimates_of_telemetry_thin()
    assert Job.objects.count() == 1
    Job.objects.update(finished_at=NOW - timedelta(hours=3))
    estimates_of_telemetry_thin()
    assert Job.objects.count() == 0 and EstimateRun.objects.count() == 1
