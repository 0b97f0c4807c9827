"""Runs of agents, other engines and simulations are kept apart: figures, factors, bias of kinds."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
import pytest
from rest_framework.test import APIClient

from apps.core.errors import Impossible
from apps.estimates.accuracy import accuracy_observe
from apps.estimates.calibration import calibrations_in_force, calibrations_refresh, group_of, in_force
from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation, IntervalCalibration
from apps.estimates.selectors import query_estimate_latest
from apps.estimates.services import ESTIMATE
from apps.estimates.simulations import SIMULATION_SEEDS, simulation_request
from apps.jobs.models import Job, JobKind
from apps.jobs.selectors import job_under_way
from apps.queries.models import Query
from engine.measurement.calibration import scale_interval
from tests.apps.estimates.runs import NOW, SPREAD, make_runs
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

#: By origin, how many times the errors are what the stated interval is right for.
ERRORS = {"live": 2.5, "flink": 1.5, "spark": 2.0, "prometheus": 3.0, "simulated": 1.0}


@pytest.fixture
def query() -> Query:
    return start_query(small_cluster(), "orders", 0.6, "a")


def shown_coverage(query: Query, origin: str, spread: float, *, instants: int = 600, every: int = 50) -> float:
    """Share of a query's runs from the 100th on that its interval holds; factors are made anew before every few."""
    half = math.log(make_runs(query, 1, ago=instants, origin=origin)[0].stated_high_s or 0.0) - math.log(3.0)
    group = group_of(AccuracyObservation.objects.get(query=query, origin=origin))
    held: list[bool | None] = []
    for first in range(0, instants, every):
        factors = in_force(group, calibrations_in_force(query.cluster)).factors
        low, high = scale_interval(3.0, 3.0 * math.exp(-half), 3.0 * math.exp(half), factors)
        ago = instants - first - every
        shown = {"low_s": low, "high_s": high, "origin": origin}
        rows = make_runs(query, every, spread=spread, seed=first, ago=ago, **shown)
        calibrations_refresh({group}, now=rows[-1].ends_at)
        held += [row.covered for row in rows]
    return float(np.mean(held[100:]))


def test_ninety_per_cent_are_88_to_92_of_every_origin(query: Query, api: APIClient) -> None:
    """One query, five streams at the same time, whose errors are 1 to 3 times what its intervals are right for."""
    for origin, times in ERRORS.items():
        assert 0.88 <= shown_coverage(query, origin, times * SPREAD) <= 0.92, origin
    origins = api.get("/api/v1/accuracy/summary", {"cluster": "little"}).json()["origins"]
    assert [row["origin"] for row in origins] == list(ERRORS)
    assert {row["instants"] for row in origins} == {601} and {row["instants_needed"] for row in origins} == {20}
    widths = {row["origin"]: row["intervals"]["width_after"] / row["intervals"]["width_before"] for row in origins}
    assert sorted(widths, key=lambda origin: widths[origin]) == ["simulated", "flink", "spark", "live", "prometheus"]
    assert widths["simulated"] == pytest.approx(1.0, abs=0.15) and widths["prometheus"] > 2.5


def test_simulated_runs_scale_no_estimate(query: Query) -> None:
    make_runs(query, 60, spread=10 * SPREAD, origin="simulated", evidence="assumed", windowed=False)
    calibrations_refresh({group_of(row) for row in AccuracyObservation.objects.all()}, now=NOW)
    assert IntervalCalibration.objects.filter(query=query, origin="simulated", upper__gt=2.0).exists()
    ESTIMATE.request(cluster=query.cluster)
    run_jobs()
    estimate = query_estimate_latest(query)
    assert estimate is not None and "calibration" not in estimate.result


def test_newest_reported_origin_scales_the_estimate(query: Query) -> None:
    values = {"evidence": "assumed", "windowed": False}
    make_runs(query, 30, origin="flink", **values)
    make_runs(query, 30, spread=8 * SPREAD, origin="prometheus", ago=100, **values)
    calibrations_refresh({group_of(row) for row in AccuracyObservation.objects.all()}, now=NOW)
    ESTIMATE.request(cluster=query.cluster)
    run_jobs()
    estimate = query_estimate_latest(query)
    assert estimate is not None and estimate.result["calibration"]["origin"] == "flink"


def test_runs_of_other_origins_do_not_hide_live_intervals(query: Query) -> None:
    """Agents' intervals are observed from where theirs ended, whatever a simulation's horizon reaches to."""
    (row,) = make_runs(query, 1, origin="simulated")
    AccuracyObservation.objects.filter(pk=row.pk).update(ends_at=NOW + timedelta(days=1))
    assert accuracy_observe(query=query, since=NOW - timedelta(hours=1), now=NOW) == []


def test_figures_are_of_one_origin_and_simulated_runs_count_in_no_other(query: Query, api: APIClient) -> None:
    make_runs(query, 4, spread=0.0, bias=2.0, origin="flink")
    make_runs(query, 6, spread=0.0, bias=0.5, origin="simulated")
    summary = api.get("/api/v1/accuracy/summary", {"cluster": "little"}).json()
    assert summary["judged"]["outcomes"] == 4 and summary["judged"]["bias"] == pytest.approx(-0.5)
    assert [(row["origin"], row["judged"]["outcomes"]) for row in summary["origins"]] == [
        ("flink", 4),
        ("simulated", 6),
    ]
    assert [row["judged"]["bias"] for row in summary["origins"]] == [pytest.approx(-0.5), pytest.approx(1.0)]
    assert [(row["query"], row["origin"]) for row in summary["queries"]] == [("orders", "flink")]
    simulated = api.get("/api/v1/accuracy/summary", {"cluster": "little", "origin": "simulated"}).json()
    assert simulated["judged"]["outcomes"] == 6 and len(simulated["origins"]) == 1
    assert len(api.get("/api/v1/accuracy", {"origin": "flink"}).json()["results"]) == 4
    assert api.get("/api/v1/accuracy", {"origin": "odd"}).status_code == 400


def test_bias_of_kinds_is_learned_of_each_origin(query: Query, api: APIClient) -> None:
    make_runs(query, 40, origin="flink", kinds={"filter": [2e6, 3e6]})
    make_runs(query, 40, origin="spark", kinds={"filter": [2e6, 2e6]})
    learned = {}
    for origin in ("flink", "spark"):
        summary = api.get("/api/v1/accuracy/summary", {"cluster": "little", "origin": origin}).json()
        (kind,) = summary["kinds"]
        learned[origin] = kind["learned"]
    assert learned["flink"] == {
        "ratio": 1.5, "low": pytest.approx(1.5), "high": pytest.approx(1.5), "runs": 40, "instants": 40,
        "is_proven": True,
    }  # fmt: skip
    assert learned["spark"]["ratio"] == 1.0 and not learned["spark"]["is_proven"]


def test_simulation_scores_the_estimate_once_for_every_seed(query: Query) -> None:
    job = simulation_request(cluster=query.cluster)
    assert job_under_way(JobKind.SIMULATION, query.cluster) == job and simulation_request(cluster=query.cluster) == job
    run_jobs()
    assert job_under_way(JobKind.SIMULATION, query.cluster) is None
    rows = list(AccuracyObservation.objects.order_by("seed"))
    assert [row.seed for row in rows] == [1, 2, 3, 4, 5] and len(rows) == SIMULATION_SEEDS
    for row in rows:
        assert (row.origin, row.statistic, row.evidence) == (RunOrigin.SIMULATED, "worst", "assumed")
        assert row.ends_at - row.starts_at == timedelta(seconds=60) and row.starts_at == rows[0].starts_at
        assert row.low_s is not None and row.high_s is not None
        assert row.observed_s > 0.0 and row.covered is (row.low_s <= row.observed_s <= row.high_s)
        assert row.kinds == {"other": [pytest.approx(600.0), pytest.approx(600.0, rel=0.1)]}
    result = Job.objects.get(pk=job.pk).result or {}
    assert result["runs"] == 5 and not result["cut"]
    assert result["coverage"] == sum(bool(row.covered) for row in rows) / 5
    simulation_request(cluster=query.cluster)
    run_jobs()
    assert list(AccuracyObservation.objects.order_by("seed").values_list("seed", flat=True)) == list(range(1, 11))
    assert IntervalCalibration.objects.get(query=query, until=None).own_runs == 10


def test_nothing_to_simulate_is_refused() -> None:
    with pytest.raises(Impossible, match="no query runs in little"):
        simulation_request(cluster=small_cluster())


def test_rest_simulates(query: Query, api: APIClient) -> None:
    answer = api.post("/api/v1/accuracy/simulations", {"cluster": "little"}, format="json")
    assert answer.status_code == 202
    run_jobs()
    job = api.get(answer.headers["Location"]).json()
    assert job["result"]["runs"] == 5 and job["result_api_url"] == "/api/v1/accuracy?cluster=little&origin=simulated"
    assert len(api.get(job["result_api_url"]).json()["results"]) == 5
