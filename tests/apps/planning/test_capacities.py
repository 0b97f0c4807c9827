"""Capacities: kept with estimates, shown by REST, as metrics, on the query's page and in the list."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.selectors import queries_judged, run_latest
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind, JobState
from apps.planning.capacities import SaturationTimes, saturation_words
from apps.queries.backlogs import backlogs_update
from apps.queries.models import Query
from apps.queries.services import query_update
from apps.queries.statistics import statistics_update
from engine.capacity.answer import SaturationForecast
from engine.forecasts.answer import ForecastAnswer
from tests.apps.small_cluster import CAPACITY_CPS, RATE_EPS, run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db


def measure(query: Query, load: float) -> None:
    """State the costs of a query's operator as measured, in six batches that differ by a few per cent."""
    cost = load * CAPACITY_CPS / RATE_EPS
    batches = [
        {"events": 500.0, "outputs": 500.0, "cycles": 500.0 * cost * share}
        for share in (0.97, 1.03, 0.99, 1.01, 1.0, 1.0)
    ]
    statistics_update(
        version=query.versions.get(), statistics=[{"operator": "work", "input": "clicks", "batches": batches}]
    )


@pytest.fixture
def cluster(db: None) -> Cluster:
    """`half` and `quarter` on node a, `guessed` with assumed costs on node b; 100 events/s each."""
    cluster = small_cluster()
    measure(start_query(cluster, "half", 0.5, "a"), 0.5)
    measure(start_query(cluster, "quarter", 0.25, "a"), 0.25)
    start_query(cluster, "guessed", 0.4, "b")
    return cluster


def estimated(cluster: Cluster) -> EstimateRun:
    ESTIMATE.request(cluster=cluster)
    jobs = run_jobs()
    assert jobs[-1].error is None
    run = run_latest(cluster)
    assert run is not None
    return run


def test_capacity_of_a_query_is_kept_with_its_estimate(cluster: Cluster) -> None:
    run = estimated(cluster)
    half = QueryEstimate.objects.get(run=run, query__name="half").answer.capacity
    assert half is not None and half.limit is not None
    # node a: 750 of 1,000 cycles/s are taken, 5 cycles more an event of half: 150 events/s
    assert half.rate_per_s == pytest.approx(150.0)
    assert (half.limit.operator, half.limit.server) == ("half/work", "a")
    assert half.low_per_s is not None and half.high_per_s is not None
    assert 145.0 < half.low_per_s < 150.0 < half.high_per_s < 155.0
    assert half.objectives_known and half.objective is not None and half.objective.factor is not None
    assert 1.0 < half.objective.factor <= 1.5
    assert run.facts.capacity is not None and run.facts.capacity.state == "unknown"


def test_capacity_stays_with_a_query_that_is_as_it_was(cluster: Cluster) -> None:
    before = QueryEstimate.objects.get(run=estimated(cluster), query__name="half").answer.capacity
    start_query(cluster, "late", 0.1, "b")
    after = QueryEstimate.objects.get(run=estimated(cluster), query__name="half").answer.capacity
    assert after == before


def test_rest_tells_the_capacity_of_a_query(cluster: Cluster, api: APIClient) -> None:
    estimated(cluster)
    found = api.get(f"/api/v1/queries/{Query.objects.get(name='half').pk}/capacity")
    assert found.status_code == 200
    capacity = found.json()["capacity"]
    assert capacity["rate_per_s"] == pytest.approx(150.0)
    assert capacity["words"].startswith("Sustains 150/s (14")
    assert capacity["headroom_share"] == pytest.approx(0.5)
    assert found.json()["is_stale"] is False


def test_cost_that_was_assumed_gives_no_number(cluster: Cluster, api: APIClient) -> None:
    estimated(cluster)
    capacity = api.get(f"/api/v1/queries/{Query.objects.get(name='guessed').pk}/capacity").json()["capacity"]
    assert (capacity["state"], capacity["rate_per_s"], capacity["headroom_share"]) == ("unknown", None, None)
    assert capacity["assumed_per_s"] == pytest.approx(250.0)
    assert (capacity["limit"], capacity["busiest_share_per_s"]) == (None, None)
    assert [entry["operator"] for entry in capacity["unmeasured"]] == ["guessed/work"]


def test_rest_tells_the_capacity_of_a_cluster_least_headroom_first(cluster: Cluster, api: APIClient) -> None:
    estimated(cluster)
    found = api.get(f"/api/v1/clusters/{cluster.slug}/capacity").json()
    assert [entry["query"] for entry in found["queries"]] == ["half", "quarter", "guessed"]
    assert (found["more"], found["capacity"]["state"]) == (0, "unknown")


def test_capacity_that_was_not_estimated_is_missing(cluster: Cluster, api: APIClient) -> None:
    for path in (f"queries/{Query.objects.get(name='half').pk}/capacity", f"clusters/{cluster.slug}/capacity"):
        found = api.get(f"/api/v1/{path}")
        assert found.status_code == 404 and "has no capacity" in found.json()["detail"]


def test_metrics_leave_out_what_is_not_known(cluster: Cluster, api: APIClient) -> None:
    estimated(cluster)
    found = api.get(f"/api/v1/clusters/{cluster.slug}/capacity/metrics")
    lines = found.content.decode().splitlines()
    assert found["Content-Type"].startswith("text/plain")
    assert any(line.startswith('sluice_capacity_rate_per_second{query="half"} 150') for line in lines)
    assert not any('rate_per_second{query="guessed"}' in line for line in lines)
    assert any('now_per_second{query="guessed"} 100' in line for line in lines)


def test_time_to_saturation_is_told_where_the_capacity_is_known_else_why_not(cluster: Cluster) -> None:
    run = estimated(cluster)
    rows = {row.query.name: row.answer.capacity for row in run.queries.select_related("query")}
    half, guessed = rows["half"], rows["guessed"]
    assert half is not None and guessed is not None
    forecast = SaturationForecast(timezone.now().timestamp(), 1e7, 1.5e6, 1e6, "a", latest_at_s=2e6)
    whole = ForecastAnswer(0.0, 3600.0, 24, 2, 0.9, {}, {}, (), 0, None, (), (), (), (), {"half": forecast}, forecast)
    told = saturation_words(SaturationTimes(whole).of_query("half", half)).replace("\xa0", " ")
    assert told.startswith("Saturates in 17 days 9 h (11 days 14 h to 23 days 4 h), on a, by the forecast")
    assert "what it sustains is not known" in saturation_words(SaturationTimes(whole).of_query("guessed", guessed))
    assert "no forecast" in saturation_words(SaturationTimes().of_query("half", half))
    empty = SaturationTimes(replace(whole, saturation={}))
    assert "says nothing of it" in saturation_words(empty.of_query("half", half))


def test_capacity_is_kept_until_an_objective_beside_it_is_edited(cluster: Cluster) -> None:
    """A query's own figures stay the same: it is its surroundings that count."""
    row = estimated(cluster).queries.get(query__name="half")
    row.result["capacity"] |= {"busiest_share_per_s": 12345.0}  # a mark of what is kept
    row.save()

    def share() -> float | None:
        capacity = estimated(cluster).queries.get(query__name="half").answer.capacity
        assert capacity is not None and capacity.objectives_known
        return capacity.busiest_share_per_s

    start_query(cluster, "late", 0.1, "b")
    assert share() == 12345.0
    query_update(query=Query.objects.get(name="quarter"), objective={"statistic": "worst", "bound_s": 0.02})
    assert share() == pytest.approx(200.0)


def test_job_of_the_background_looks_for_the_rates_that_are_left(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.estimates.capacities.MAX_TRIED", 1)
    ESTIMATE.request(cluster=cluster)
    first, second = run_jobs()
    run = run_latest(cluster)
    assert first.error is None and second.error is None and run is not None
    known = [row.answer.capacity for row in run.queries.exclude(query__name="guessed")]
    assert all(capacity is not None and capacity.objectives_known for capacity in known)
    job = Job.objects.get(kind=JobKind.CAPACITIES)
    assert (job.state, job.result) == (JobState.SUCCEEDED, {"found": 1, "left": 0})


def test_capacity_of_a_query_is_looked_for_on_demand(
    cluster: Cluster, api: APIClient, client: Any, user_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.estimates.capacities.MAX_TRIED", 0)
    monkeypatch.setattr("apps.estimates.services.capacities_begin", lambda run, capacities: None)
    estimated(cluster)
    half = Query.objects.get(name="half")
    assert not api.get(f"/api/v1/queries/{half.pk}/capacity").json()["capacity"]["objectives_known"]
    address = f"/c/{cluster.slug}/queries/half/"
    client.force_login(user_of(Role.VIEWER))
    assert "Look when" not in client.get(address).content.decode()
    assert client.post(f"{address}capacity/").status_code == 403
    client.force_login(user_of())
    assert "Look when" in client.get(address).content.decode()
    assert client.post(f"{address}capacity/").status_code == 302
    under_way = client.get(address).content.decode()
    assert "Capacity of half" in under_way and "Look when" not in under_way
    run_jobs()
    assert "Look when" not in client.get(address).content.decode()
    assert api.get(f"/api/v1/queries/{half.pk}/capacity").json()["capacity"]["objectives_known"]
    quarter = Query.objects.get(name="quarter")
    assert api.post(f"/api/v1/queries/{quarter.pk}/capacity").status_code == 202
    run_jobs()
    assert api.get(f"/api/v1/queries/{quarter.pk}/capacity").json()["capacity"]["objectives_known"]


def test_capacity_of_a_cluster_that_has_changed_is_refused_in_words(
    cluster: Cluster, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.estimates.capacities.MAX_TRIED", 0)
    monkeypatch.setattr("apps.estimates.services.capacities_begin", lambda run, capacities: None)
    estimated(cluster)
    start_query(cluster, "late", 0.1, "b")
    assert api.post(f"/api/v1/queries/{Query.objects.get(name='half').pk}/capacity").status_code == 202
    error = run_jobs()[-1].error
    assert error is not None and "has changed since half was estimated" in error["message"]


def test_statistics_of_seconds_are_no_metrics(cluster: Cluster, api: APIClient) -> None:
    run = estimated(cluster)
    row = run.queries.get(query__name="half")
    row.result["capacity"] |= {"measured_s": 12.0}
    row.save()
    lines = api.get(f"/api/v1/clusters/{cluster.slug}/capacity/metrics").content.decode().splitlines()
    assert any('capacity_now_per_second{query="half"}' in line for line in lines)
    assert not any('query="half"' in line for line in lines if "now_per_second" not in line)
    assert any('capacity_rate_per_second{query="quarter"}' in line for line in lines)


def test_query_that_is_behind_tells_when_it_is_back_by_the_clock(
    cluster: Cluster, api: APIClient, client: Any, user_of: Any
) -> None:
    half = Query.objects.get(name="half")
    backlogs_update(query=half, backlogs=[{"from": "clicks", "behind_s": 4.0}])
    run = estimated(cluster)
    found = api.get(f"/api/v1/queries/{half.pk}/capacity").json()["catch_up"]
    assert found["state"] == "within" and found["behind_s"] == pytest.approx(4.0, abs=1.5)
    # 400 events wait, of 5 cycles each; 250 cycles/s are free beside half and quarter: 8 s
    back_s = (datetime.fromisoformat(found["back_at"]) - run.created_at).total_seconds()
    assert back_s == pytest.approx(8.0, abs=2.0)
    assert found["low_at"] <= found["back_at"]
    client.force_login(user_of())
    page = client.get(f"/c/{cluster.slug}/queries/half/").content.decode()
    assert "Behind by" in page and "as it is." in page


def test_page_and_list_show_the_capacity(cluster: Cluster, client: Any, user_of: Any) -> None:
    estimated(cluster)
    client.force_login(user_of())
    page = client.get(f"/c/{cluster.slug}/queries/half/").content.decode()
    assert 'id="t-capacity"' in page and "Sustains 150/s" in page and "work on a" in page
    guessed = client.get(f"/c/{cluster.slug}/queries/guessed/").content.decode()
    assert "nobody measured the cost of work" in guessed and "work (assumed)" in guessed
    listed = client.get(f"/c/{cluster.slug}/queries/").content.decode()
    assert "Sustains" in listed and "150" in listed


def test_list_is_sorted_by_the_tighter_of_server_and_objective_with_the_unknown_last(cluster: Cluster) -> None:
    rows = queries_judged(cluster, estimated(cluster))
    for order in (F("tightest_factor").asc(nulls_last=True), F("tightest_factor").desc(nulls_last=True)):
        names = [query.name for query in rows.order_by(order)]
        assert set(names[:2]) == {"half", "quarter"} and names[2] == "guessed"
    factors = dict(rows.values_list("name", "tightest_factor"))
    assert factors["guessed"] is None and 1.0 < factors["half"] <= factors["quarter"]
