"""Forecasts in the browser: nothing yet, the finding, the cost of violations, load histories."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.planning.forecasts import FORECAST
from apps.planning.load_histories import history_create_from_generator
from apps.planning.models import Forecast, LoadHistory
from apps.reports.sections.forecast import NoForecast, forecast_facts
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.recordings import recorded

pytestmark = pytest.mark.django_db

ROOT = "/c/little/provisioning/forecast/"
SPEC = {"peak_rate_eps": 82.0, "weeks": 3, "growth_per_week": 0.06, "noise": 0.02}


@pytest.fixture
def forecast(db: None) -> Cluster:
    return recorded(_forecast_cluster)


def _forecast_cluster() -> Cluster:
    cluster = small_cluster.small_cluster(time_zone="Europe/Berlin")
    cluster.pools.update(price_per_hour="2.0")
    small_cluster.start_query(cluster, "grows", 1.1, "a", bound_s=1.0)
    history_create_from_generator(cluster=cluster, source_id="clicks", spec=SPEC)
    FORECAST.request(cluster=cluster, horizon_days=14)
    small_cluster.run_jobs()
    return cluster


def test_forecast_page_without_history_shows_the_first_step(
    browser_of: Callable[..., Client], cluster: Cluster
) -> None:
    html = body(browser_of().get(ROOT))
    assert "No load history yet" in html
    assert f"{ROOT}histories/new/" in html
    assert "histories/new/" not in body(browser_of("viewer").get(ROOT))


def test_forecast_finding_names_a_date_and_an_interval(browser: Client, forecast: Cluster) -> None:
    html = body(browser.get(ROOT))
    # by the hour of the day at which this runs, its upper end is over before its median is
    assert re.search("The objective of <b>grows</b>, 1\u00a0s, is (violated|at risk) from", html)
    assert "at the 90% band" in html
    assert 'data-chart="query-0"' in html
    assert 'data-chart="load"' in html
    assert "Forecast accuracy" in html
    csv = browser.get(f"{ROOT}?export=csv").getvalue().decode()
    assert csv.splitlines()[0].startswith("Query,Objective")
    assert "grows" in csv


def test_outdated_forecast_is_marked(browser: Client, forecast: Cluster) -> None:
    assert "may miss its objective" in body(browser.get("/c/little/"))
    Forecast.objects.update(starts_at=datetime(2026, 3, 1, tzinfo=UTC))
    assert "its time has passed, for the histories end on 01 March 2026" in body(browser.get(ROOT))
    assert "may miss its objective" not in body(browser.get("/c/little/"))
    facts = forecast_facts(forecast, 28, timezone.now())
    assert isinstance(facts, NoForecast) and "end on 01 March 2026" in facts.text


def test_cost_and_days_are_read_from_the_address(browser: Client, forecast: Cluster) -> None:
    html = body(browser.get(f"{ROOT}?cost=0&days=7"))
    assert "1 node is to be regretted least" in html
    assert 'max="14" value="7"' in html
    assert "x is not a cost" in body(browser.get(f"{ROOT}?cost=x"))
    assert 'value="clicks" placeholder="All together"' in body(browser.get(f"{ROOT}?source=clicks"))
    assert "900 is no number of days from 1 to 14" in body(browser.get(f"{ROOT}?source=nobody&days=900"))


def test_forecast_is_requested_from_its_page(browser_of: Callable[..., Client], forecast: Cluster) -> None:
    answer = browser_of().post(f"{ROOT}new/", {"horizon_days": "7"})
    assert (answer.status_code, answer["Location"]) == (302, ROOT)
    assert "The forecast appears here by itself." in body(browser_of().get(ROOT))
    assert browser_of().post(f"{ROOT}new/", {"horizon_days": "many"}).status_code == 400


def test_history_is_uploaded_in_two_steps_extended_and_deleted(browser: Client, cluster: Cluster) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    lines = [f"{(start + timedelta(hours=i)):%Y-%m-%d %H:%M:%S},{500 + i}" for i in range(60)]

    def upload(rows: list[str], query: str = "") -> str:
        file = SimpleUploadedFile("load.csv", ("time,count\n" + "\n".join(rows)).encode())
        answer = browser.post(f"{ROOT}histories/new/{query}", {"file": file, "time_zone": "UTC"})
        assert answer.status_code == 302, body(answer)
        return answer["Location"]

    address = upload(lines)
    key = body(browser.get(address)).split('name="key" value="')[1].split('"')[0]
    chosen = {"key": key, "time_column": "time", "count_column": "count", "time_zone": "UTC"}
    answer = browser.post(address, {**chosen, "source_id": "clicks", "bucket_s": "3600"})
    row = LoadHistory.objects.get()
    assert (answer.status_code, row.buckets) == (302, 60)
    html = body(browser.get(f"{ROOT}histories/{row.pk}/"))
    assert 'data-chart="history"' in html
    assert "load.csv" in html
    address = upload(
        [f"{(start + timedelta(hours=70)):%Y-%m-%d %H:%M:%S},9", f"{start + timedelta(hours=71)},9"],
        f"?extend={row.pk}",
    )
    key = body(browser.get(address)).split('name="key" value="')[1].split('"')[0]
    assert browser.post(address, {**chosen, "key": key}).status_code == 302
    row.refresh_from_db()
    assert (row.buckets, row.missing) == (72, 10)
    assert "clicks" in body(browser.get(f"{ROOT}histories/"))
    assert browser.post(f"{ROOT}histories/{row.pk}/delete/").status_code == 302
    assert not LoadHistory.objects.exists()


def test_history_is_generated_and_its_faults_are_shown(browser: Client, cluster: Cluster) -> None:
    assert "events/s" in body(browser.get(f"{ROOT}histories/generate/"))
    fields = {"source_id": "clicks", "bucket_s": "3600", "peak_rate_eps": "50", "weeks": "2", "seed": "1"}
    fields |= {
        "growth_per_week": "0.02",
        "daily_swing": "0.5",
        "weekend_dip": "0.2",
        "peak_hour": "14",
        "noise": "0.03",
    }
    wrong = browser.post(f"{ROOT}histories/generate/", {**fields, "noise": "9", "weeks": "900"})
    assert wrong.status_code == 422
    assert "allowed: a number from 0 to 1" in body(wrong)
    assert browser.post(f"{ROOT}histories/generate/", fields).status_code == 302
    assert LoadHistory.objects.get().buckets == 336


def test_whole_file_of_arrivals_is_kept_as_load_history(browser: Client, cluster: Cluster) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    lines = [f"{(start + timedelta(hours=i)):%Y-%m-%d %H:%M:%S},{500 + i}" for i in range(72)]
    file = SimpleUploadedFile("load.csv", ("time,count\n" + "\n".join(lines)).encode())
    address = browser.post("/c/little/arrivals/new/", {"file": file, "time_zone": "UTC"})["Location"]
    html = body(browser.get(address))
    assert "Keep the whole file as load history" in html
    chosen = {"key": html.split('name="key" value="')[1].split('"')[0], "source_id": "web", "time_zone": "UTC"}
    chosen |= {"time_column": "time", "count_column": "count", "stretch": "busiest", "keep_history": "on"}
    assert browser.post(address, chosen).status_code == 302
    row = LoadHistory.objects.get()
    assert (row.source_id, row.origin, row.buckets) == ("web", "arrivals", 72)


def test_overview_names_the_first_threatened_objective(browser: Client, forecast: Cluster) -> None:
    html = body(browser.get("/c/little/"))
    assert "grows may miss its objective from" in html
    assert f'href="{ROOT}"' in html
