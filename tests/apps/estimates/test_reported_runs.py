"""Runs that another engine reports: what is refused, and the estimates that they calibrate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.core.errors import Conflict, Impossible, Malformed
from apps.estimates.accuracy import KEEP, accuracy_report
from apps.estimates.models import AccuracyObservation, EstimateRun, IntervalCalibration
from apps.estimates.selectors import query_estimate_latest
from apps.estimates.services import ESTIMATE
from apps.queries.models import Query
from tests.apps.estimates.runs import NOW
from tests.apps.measurements.live import live_query, make_live_cluster
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


@pytest.fixture
def query() -> Query:
    """Runs elsewhere; the console knows its plan alone, and estimated it two hours ago."""
    query = start_query(small_cluster(), "orders", 0.6, "a")
    estimated(query)
    EstimateRun.objects.update(created_at=NOW - timedelta(hours=2))
    return query


def estimated(query: Query) -> Any:
    ESTIMATE.request(cluster=query.cluster)
    run_jobs()
    return query_estimate_latest(query)


def told(**changes: Any) -> dict[str, Any]:
    return {"origin": "flink", "statistic": "worst", "latency_s": 0.7, "ends_at": NOW, "now": NOW, **changes}


def test_reported_run_is_scored_against_the_estimate_in_force(query: Query) -> None:
    row = accuracy_report(query=query, **told(duration_s=60.0, windows=6))
    estimate = query_estimate_latest(query)
    assert (row.origin, row.windowed, row.windows, row.evidence) == ("flink", False, 6, "assumed")
    assert row.starts_at == NOW - timedelta(seconds=60) and row.expected_s == estimate.estimate_s
    assert (row.stated_low_s, row.stated_high_s) == (estimate.low_s, estimate.high_s)
    assert row.covered is (estimate.low_s <= 0.7 <= estimate.high_s)
    assert IntervalCalibration.objects.filter(query=query, origin="flink", own_runs=1).exists()


def test_twenty_five_reported_runs_widen_the_next_estimate(query: Query) -> None:
    stated = query_estimate_latest(query)
    for i in range(25):
        accuracy_report(query=query, **told(latency_s=4 * stated.high_s, ends_at=NOW - i * timedelta(seconds=60)))
    row = estimated(query)
    applied = row.result["calibration"]
    assert (applied["origin"], applied["scope"], applied["runs"]) == ("flink", "query", 25)
    assert applied["stated"][1] == pytest.approx(stated.high_s) and row.high_s >= 4 * stated.high_s * 0.999
    other = start_query(query.cluster, "payments", 0.3, "b")
    assert "calibration" not in estimated(other).result, "nobody says that it runs there, too"


def test_every_fault_of_a_report_is_told_at_once(query: Query) -> None:
    with pytest.raises(Malformed) as refusal:
        accuracy_report(
            query=query,
            **told(origin="live", latency_s=float("nan"), duration_s=0.0, windows=0, ends_at=NOW + KEEP),
        )
    paths = [fault.path for fault in refusal.value.faults]
    assert paths == ["origin", "latency_s", "duration_s", "ends_at", "windows"]
    assert not AccuracyObservation.objects.exists()


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"latency_s": True, "windows": 2.5}, ["latency_s", "windows"]),
        ({"latency_s": "NaN"}, ["latency_s"]),
        ({"latency_s": float("inf"), "duration_s": float("nan")}, ["latency_s", "duration_s"]),
        ({"origin": "simulated", "latency_s": -0.1}, ["origin", "latency_s"]),
        ({"ends_at": NOW.replace(tzinfo=None)}, ["ends_at"]),
        ({"ends_at": NOW + timedelta(seconds=1)}, ["ends_at"]),
        ({"work": {"work": float("nan"), "b": -1.0, "c": None}}, ["work.work", "work.b", "work.c"]),
        ({"work": {"nobody": 1.0}, "statistic": "mean"}, ["statistic", "work.nobody"]),
    ],
)
def test_bad_report_names_every_field_and_stores_nothing(
    query: Query, changes: dict[str, Any], paths: list[str]
) -> None:
    with pytest.raises(Malformed) as refusal:
        accuracy_report(query=query, **told(**changes))
    assert [fault.path for fault in refusal.value.faults] == paths
    assert not AccuracyObservation.objects.exists()


def test_reported_work_is_summed_by_kind_of_operator(query: Query) -> None:
    row = accuracy_report(query=query, **told(work={"work": 700.0}))
    assert row.kinds == {"other": [pytest.approx(600.0), 700.0]}


def test_two_origins_may_report_the_same_stretch(query: Query) -> None:
    accuracy_report(query=query, **told())
    accuracy_report(query=query, **told(origin="prometheus", latency_s=0.9))
    assert IntervalCalibration.objects.filter(query=query, own_runs=1).count() == 2


def test_run_of_another_version_than_the_estimate_is_refused(query: Query) -> None:
    with pytest.raises(Impossible, match=r"no estimate of orders, version 2, was in force"):
        accuracy_report(query=query, **told(version=2))
    assert accuracy_report(query=query, **told(version=1)).version == 1


def test_report_of_another_statistic_is_refused(query: Query) -> None:
    with pytest.raises(Malformed, match="'mean'; allowed: 'worst'"):
        accuracy_report(query=query, **told(statistic="mean"))


def test_stretch_is_scored_once(query: Query) -> None:
    accuracy_report(query=query, **told())
    with pytest.raises(Conflict, match="overlaps"):
        accuracy_report(query=query, **told(ends_at=NOW - timedelta(seconds=10)))
    accuracy_report(query=query, **told(ends_at=NOW - timedelta(seconds=30)))


def test_stretch_before_the_first_estimate_is_refused(query: Query) -> None:
    with pytest.raises(Impossible, match="no estimate of orders was in force"):
        accuracy_report(query=query, **told(ends_at=NOW - timedelta(hours=3)))


def test_live_query_is_measured_here() -> None:
    live = live_query(make_live_cluster())
    with pytest.raises(Conflict, match="live telemetry"):
        accuracy_report(query=live.query, **told())


def test_rest_takes_a_report_and_lists_the_calibrations(query: Query, api: APIClient) -> None:
    answer = api.post(
        "/api/v1/accuracy",
        {"cluster": "little", "query": "orders", "origin": "spark", "statistic": "worst", "latency_s": 0.7},
        format="json",
    )
    assert answer.status_code == 201 and answer.json()["origin"] == "spark"
    assert api.get(answer.headers["Location"]).json()["observed_s"] == 0.7
    found = api.get("/api/v1/calibrations", {"cluster": "little", "in_force": "true"}).json()["results"]
    assert {row["group"] for row in found} == {"query", "kind", "origin"}
    assert [row["trust"] for row in found if row["group"] == "query"] == ["holding"]
    assert api.get("/api/v1/calibrations", {"query": "orders", "in_force": "false"}).json()["results"] == []
    assert api.get("/api/v1/calibrations", {"trust": "odd"}).status_code == 400
    wrong = api.post("/api/v1/accuracy", {"cluster": "little", "query": "orders", "origin": "odd"}, format="json")
    assert wrong.status_code == 400
    assert {fault["path"] for fault in wrong.json()["faults"]} == {"origin", "statistic", "latency_s"}
