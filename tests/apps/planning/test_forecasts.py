"""Load histories and forecasts by services and REST."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind, JobState
from apps.planning.forecast_findings import forecast_changes, forecast_latest, forecast_series, shortages
from apps.planning.forecasts import FORECAST, forecast_bucket_s, forecast_renew_all
from apps.planning.load_buckets import bucket_trace, coarsen_buckets, merge_buckets
from apps.planning.load_histories import history_create_from_generator, history_delete, history_values
from apps.planning.models import Forecast, LoadHistory
from apps.queries.arrivals.grid import EventCounts, EventStamps
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db

SPEC = {"peak_rate_eps": 82.0, "weeks": 4, "growth_per_week": 0.06, "noise": 0.02}


@pytest.fixture
def cluster(db: None) -> Cluster:
    """`grows` fills its node to 1.1 at the present stretch of 100 events/s; `calm` to a half."""
    cluster = small_cluster.small_cluster(time_zone="Europe/Berlin")
    small_cluster.start_query(cluster, "grows", 1.1, "a", bound_s=1.0)
    small_cluster.start_query(cluster, "calm", 0.5, "b", bound_s=5.0)
    return cluster


def forecast_now(cluster: Cluster, **asked: Any) -> Forecast:
    FORECAST.request(cluster=cluster, **{"horizon_days": 14, **asked})
    jobs = small_cluster.run_jobs()
    assert jobs[-1].state == JobState.SUCCEEDED, jobs[-1].error
    forecast = forecast_latest(cluster)
    assert forecast is not None
    return forecast


def trace(hours: int = 72, missing: range = range(0)) -> bytes:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    lines = [
        f"{(start + timedelta(hours=i)):%Y-%m-%d %H:%M:%S},{1000 + 10 * (i % 24)}"
        for i in range(hours)
        if i not in missing
    ]
    return ("time,count\n" + "\n".join(lines)).encode()


# -- buckets


def test_counts_are_summed_per_bucket_and_gaps_are_nan() -> None:
    starts = np.array([0.0, 900.0, 1800.0, 2700.0, 3600.0, 10_800.0, 11_700.0, 12_600.0, 13_500.0])
    bucketed = bucket_trace(EventCounts(starts, np.full(9, 900.0), np.arange(1.0, 10.0)), 3600)
    assert bucketed[0] == 0.0
    np.testing.assert_equal(bucketed[1], [10.0, np.nan, np.nan, 30.0])


def test_half_known_buckets_are_scaled_and_partial_ends_are_dropped() -> None:
    starts = np.array([1800.0, 3600.0, 5400.0, 7200.0, 10_800.0, 12_600.0])
    bucketed = bucket_trace(EventCounts(starts, np.full(6, 1800.0), np.full(6, 5.0)), 3600)
    assert bucketed[0] == 3600.0
    assert bucketed[1].tolist() == [10.0, 10.0, 10.0]  # the middle one from its first half


def test_timestamps_are_counted_per_bucket() -> None:
    stamps = np.sort(np.random.default_rng(0).random(20_000) * 7200 + 1800)
    at, values = bucket_trace(EventStamps(stamps), 3600)
    assert at == 3600.0
    assert len(values) == 1
    assert values[0] == pytest.approx(10_000, rel=0.05)


def test_series_are_merged_and_coarsened() -> None:
    at, values = merge_buckets(0.0, np.array([1.0, 2.0]), 10_800.0, np.array([4.0]), 3600)
    np.testing.assert_equal(values, [1.0, 2.0, np.nan, 4.0])
    assert at == 0.0
    _, later = merge_buckets(0.0, np.array([1.0, 2.0]), 0.0, np.array([np.nan, 5.0]), 3600)
    assert later.tolist() == [1.0, 5.0]
    at, sums = coarsen_buckets(900.0, np.arange(9.0), 900, 3600)
    assert (at, sums.tolist()) == (3600.0, [3 + 4 + 5 + 6])


# -- histories


def test_a_load_history_is_uploaded_extended_read_and_deleted(api: APIClient, cluster: Cluster) -> None:
    def sent(text: bytes) -> dict[str, Any]:
        file = io.BytesIO(text)
        file.name = "load.csv"
        return {"file": file}

    asked = {"cluster": "little", "source_id": "clicks", **sent(trace(missing=range(30, 33)))}
    stored = api.post("/api/v1/load-histories", asked, format="multipart")
    assert stored.status_code == 201, stored.json()
    row = stored.json()
    assert (row["buckets"], row["missing"], row["evidence"], row["origin"]) == (72, 3, "measured", "upload")
    counts = api.get(f"/api/v1/load-histories/{row['id']}/series").json()["counts"]
    assert counts[:2] == [1000.0, 1010.0]
    assert counts[30:34] == [None, None, None, 1090.0]
    again = api.post("/api/v1/load-histories", {**asked, **sent(trace())}, format="multipart")
    assert again.status_code == 409
    more = api.post(f"/api/v1/load-histories/{row['id']}/extend", sent(trace(hours=96)), format="multipart")
    assert (more.json()["buckets"], more.json()["missing"]) == (96, 0)
    assert api.get("/api/v1/load-histories?cluster=little").json()["results"][0]["id"] == row["id"]
    assert api.delete(f"/api/v1/load-histories/{row['id']}").status_code == 204
    assert not LoadHistory.objects.exists()


def test_generator_with_several_faults_names_each(api: APIClient, cluster: Cluster) -> None:
    body = {"cluster": "little", "source_id": "clicks", "generator": {"weeks": 0.5, "noise": 7, "speed": 1}}
    refused = api.post("/api/v1/load-histories", body, format="json")
    assert refused.status_code == 400
    paths = {fault["path"] for fault in refused.json()["faults"]}
    assert paths == {"generator.peak_rate_eps", "generator.weeks", "generator.noise", "generator.speed"}
    wrong = api.post("/api/v1/load-histories", {**body, "generator": SPEC, "bucket_s": 3601}, format="json")
    assert "60, 300, 900, 3600" in wrong.json()["faults"][0]["message"]
    assert not LoadHistory.objects.exists()


@pytest.mark.parametrize("bucket_s", [60, 300, 480])
def test_history_in_minutes_is_taken_and_forecast_in_buckets_that_days_have_few_enough_of(
    api: APIClient, cluster: Cluster, bucket_s: int
) -> None:
    body = {"cluster": "little", "source_id": "clicks", "generator": {**SPEC, "weeks": 1}, "bucket_s": bucket_s}
    made = api.post("/api/v1/load-histories", body, format="json")
    assert (made.status_code, made.json()["buckets"]) == (201, 604_800 // bucket_s)
    forecast = forecast_now(cluster, horizon_days=7)
    assert forecast.bucket_s == {60: 120, 300: 300, 480: 480}[bucket_s]
    assert forecast.bucket_s * forecast.horizon == 7 * 86_400


def steps_file(step_s: int, days: int = 2) -> io.BytesIO:
    """Counts of so many seconds over days, 20 events/s."""
    begin = datetime(2026, 6, 1, tzinfo=UTC)
    times = [(begin + timedelta(seconds=step_s * i)).isoformat() for i in range(days * 86_400 // step_s)]
    file = io.BytesIO(("time,count\n" + "".join(f"{at},{20 * step_s}\n" for at in times)).encode())
    file.name = "steps.csv"
    return file


@pytest.mark.parametrize(("step_s", "bucket_s"), [(15, 60), (15, 300), (300, 300), (300, 900), (300, 3600)])
def test_uploaded_history_of_short_steps_is_kept_in_buckets(
    api: APIClient, cluster: Cluster, step_s: int, bucket_s: int
) -> None:
    asked = {"cluster": "little", "source_id": "clicks", "file": steps_file(step_s), "bucket_s": str(bucket_s)}
    stored = api.post("/api/v1/load-histories", asked, format="multipart")
    assert stored.status_code == 201, stored.json()
    assert (stored.json()["bucket_s"], stored.json()["buckets"]) == (bucket_s, 2 * 86_400 // bucket_s)
    counts = api.get(f"/api/v1/load-histories/{stored.json()['id']}/series").json()["counts"]
    assert counts == pytest.approx([20.0 * bucket_s] * len(counts))


def test_uploaded_history_is_not_cut_finer_than_it_was_counted(api: APIClient, cluster: Cluster) -> None:
    asked = {"cluster": "little", "source_id": "clicks", "file": steps_file(300), "bucket_s": "60"}
    refused = api.post("/api/v1/load-histories", asked, format="multipart")
    assert refused.status_code == 400
    words = "its counts last 300 s each; allowed: up to the bucket (60 s)"
    assert refused.json()["faults"] == [{"path": "file", "message": words}]


@pytest.mark.parametrize("bucket_s", [0, 1, 15, 59, 700, 172_800, "x"])
def test_bucket_that_divides_no_day_is_refused(api: APIClient, cluster: Cluster, bucket_s: Any) -> None:
    body = {"cluster": "little", "source_id": "clicks", "generator": SPEC, "bucket_s": bucket_s}
    refused = api.post("/api/v1/load-histories", body, format="json")
    assert (refused.status_code, [fault["path"] for fault in refused.json()["faults"]]) == (400, ["bucket_s"])


def test_history_of_more_buckets_than_are_kept_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Malformed, match="1,048,320 whole buckets of 60 s; allowed: 16 to 100,000"):
        history_create_from_generator(cluster=cluster, source_id="clicks", spec={**SPEC, "weeks": 104}, bucket_s=60)


def test_histories_of_unlike_buckets_are_forecast_in_one_that_both_add_up_to() -> None:
    assert forecast_bucket_s([900, 3600], 28 * 86_400) == 3600
    assert forecast_bucket_s([900, 1200], 28 * 86_400) == 3600
    assert forecast_bucket_s([60], 86_400) == 60
    assert forecast_bucket_s([60], 56 * 86_400) == 900
    assert forecast_bucket_s([86_400, 43_200], 86_400) == 86_400


def test_a_generated_history_has_daily_swing_weekend_dip_and_growth(cluster: Cluster) -> None:
    ends = datetime(2026, 6, 29, tzinfo=UTC)  # a Monday
    spec = {"peak_rate_eps": 50.0, "weeks": 4, "growth_per_week": 0.1, "weekend_dip": 0.5, "noise": 0.0}
    row = history_create_from_generator(cluster=cluster, source_id="clicks", spec=spec, ends_at=ends)
    weeks = history_values(row).reshape(4, 7, 24)
    assert weeks[3].sum() / weeks[2].sum() == pytest.approx(1.1, rel=0.02)
    assert weeks[3, 5].sum() / weeks[3, 3].sum() == pytest.approx(0.5, rel=0.05)
    assert int(weeks[3, 2].argmax()) in (11, 12)  # 14 h in Berlin is 12 h UTC
    with pytest.raises(Conflict):
        history_create_from_generator(cluster=cluster, source_id="clicks", spec=spec)


# -- forecasts


def test_a_forecast_of_a_growing_source_dates_the_violation(api: APIClient, cluster: Cluster) -> None:
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)  # the bands differ whatever the hour
    history_create_from_generator(cluster=cluster, source_id="clicks", spec=SPEC, ends_at=midnight)
    row = forecast_now(cluster)
    threatened = shortages(cluster)
    assert [shortage.query for shortage in threatened] == ["grows"]
    shortage = threatened[0]
    assert row.starts_at < shortage.first_at < row.ends_at
    assert shortage.band == "risk"
    assert shortage.confirmed
    assert shortage.latency_s <= shortage.bound_s < shortage.upper_s
    assert shortage.high_at is not None and shortage.mean_at is not None
    assert shortage.risk_at == shortage.first_at < shortage.high_at < shortage.mean_at
    assert shortage.bottleneck is not None
    assert shortage.bottleneck.node == "a"
    assert forecast_changes(row) == []
    shown = api.get(f"/api/v1/forecasts/{row.pk}").json()
    assert shown["result"]["sources"]["clicks"]["backtest"]["n_origins"] >= 2
    series = api.get(f"/api/v1/forecasts/{row.pk}/series").json()
    assert len(series["queries"]["grows"]["high"]) == 14 * 24
    assert series == forecast_series(row)


def test_regret_needs_prices_and_weighs_cost_of_violations(api: APIClient, cluster: Cluster) -> None:
    history_create_from_generator(cluster=cluster, source_id="clicks", spec=SPEC)
    row = forecast_now(cluster, horizon_days=3)
    refused = api.get(f"/api/v1/forecasts/{row.pk}/regret")
    assert refused.status_code == 422
    assert "price per hour" in refused.json()["detail"]
    cluster.pools.update(price_per_hour="2.0")
    row = forecast_now(cluster, horizon_days=3)
    regret = api.get(f"/api/v1/forecasts/{row.pk}/regret?cost_per_violation_hour=0").json()
    assert regret["recommended"] == min(size["size"] for size in regret["sizes"])
    wrong = api.get(f"/api/v1/forecasts/{row.pk}/regret?cost_per_violation_hour=-3&horizon_days=3")
    assert wrong.status_code == 400


def test_a_forecast_without_histories_is_refused(cluster: Cluster, api: APIClient) -> None:
    with pytest.raises(Impossible, match="no load history"):
        FORECAST.request(cluster=cluster)
    assert shortages(cluster) == []
    answer = api.post("/api/v1/forecasts", {"cluster": "little", "horizon_days": 99}, format="json")
    assert answer.status_code == 400
    assert "1 to 56" in answer.json()["detail"]
    with pytest.raises(Malformed):
        FORECAST.request(cluster=cluster, seed=-1)


def test_a_forecast_of_a_short_or_deleted_history_fails_with_the_reason(cluster: Cluster) -> None:
    row = history_create_from_generator(cluster=cluster, source_id="clicks", spec={**SPEC, "weeks": 1})
    FORECAST.request(cluster=cluster)
    history_delete(history=row)
    job = small_cluster.run_jobs()[-1]
    assert job.state == JobState.FAILED
    assert "no load history any more" in job.error["message"]


def test_load_is_forecast_without_queries(db: None) -> None:
    cluster = small_cluster.small_cluster()
    history_create_from_generator(cluster=cluster, source_id="clicks", spec=SPEC)
    row = forecast_now(cluster, horizon_days=2)
    assert row.result["queries"] == []
    assert len(forecast_series(row)["sources"]["clicks"]["mean"]) == 48


def test_forecasts_are_renewed_when_histories_change_or_a_day_has_passed(cluster: Cluster) -> None:
    assert forecast_renew_all() == 0
    history_create_from_generator(cluster=cluster, source_id="clicks", spec={**SPEC, "weeks": 1})
    assert forecast_renew_all() == 1
    assert forecast_renew_all() == 0
    small_cluster.run_jobs()
    history_create_from_generator(cluster=cluster, source_id="clicks", spec={**SPEC, "seed": 5}, replace=True)
    assert forecast_changes(forecast_latest(cluster)) == ["load history of clicks changed"]
    assert forecast_renew_all() == 1
    Job.objects.filter(kind=JobKind.FORECAST).update(created_at=timezone.now() - timedelta(hours=25), state="succeeded")
    assert forecast_renew_all() == 1
