"""Accuracy in the browser and over REST: nothing yet, the finding, what is chosen, evidence and readiness."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from apps.estimates.calibration import INTERVAL, calibrations_refresh, group_of
from apps.estimates.models import AccuracyObservation, IntervalCalibration
from apps.estimates.services import ESTIMATE
from apps.measurements.models import StatisticsWindow
from apps.measurements.services import refine_all
from apps.telemetry.models import LiveQuery
from tests.apps import small_cluster
from tests.apps.measurements.live import live_query, make_live_cluster
from tests.apps.measurements.test_services import tell
from tests.apps.microbatch.own import own_batch
from tests.apps.pages.html import body
from tests.clock import run_moment

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

ROOT = "/c/this-host/accuracy/"
NOW = run_moment()


def counted_queries(act: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as caught:
        act()
    return len(caught)


@pytest.fixture
def live() -> LiveQuery:
    return live_query(make_live_cluster())


def judged(live: LiveQuery, count: int = 30, *, off: float = 1.0, **fields: object) -> None:
    """Estimates of 3.6 s; the latency measured is `off` lower in every second interval."""
    base = datetime.fromtimestamp(NOW.timestamp() // 30 * 30, UTC)
    for i in range(count):
        at = base - (i + 2) * INTERVAL
        observed = 3.6 - (off if i % 2 else 0.0)
        AccuracyObservation.objects.create(
            cluster=live.query.cluster, query=live.query, version=1, estimated_at=at, starts_at=at,
            ends_at=at + INTERVAL, expected_s=3.6, low_s=3.1, high_s=4.1, stated_low_s=3.1, stated_high_s=4.1,
            observed_s=observed, windows=3, covered=abs(3.6 - observed) <= 0.5,
            parts={"processing_s": 0.1, "epoch_s": 1.0, "trigger_s": 2.0},
            kinds={"filter": [2e6, 1e6]}, **{"statistic": "worst", "evidence": "measured", **fields},
        )  # fmt: skip
    calibrations_refresh({group_of(row) for row in AccuracyObservation.objects.filter(query=live.query)}, now=NOW)


def test_without_a_live_query_the_page_says_what_to_do_first(browser: Client) -> None:
    small_cluster.small_cluster()
    html = body(browser.get("/c/little/accuracy/"))
    assert "No live query yet" in html and "New live query" in html


def test_before_the_first_interval_it_says_when_there_will_be_one(browser: Client, live: LiveQuery) -> None:
    assert "No interval judged yet" in body(browser.get(ROOT))


def test_the_finding_is_a_sentence_with_numbers(browser: Client, live: LiveQuery) -> None:
    judged(live)
    html = body(browser.get(ROOT))
    assert "Estimates of 1 live query were <b>16% too high</b> over the last 24 hours" in html
    assert "the 90% interval held in <b>50%</b> of 30 intervals" in html
    assert 'data-chart="latency-over-time"' in html and 'data-chart="error-over-time"' in html
    assert 'href="/c/this-host/accuracy/"' in html  # in the navigation
    assert "no query has 40 judged intervals" in html
    assert (
        "Intervals of errors: upper side as stated, lower side widened 2.2\u00a0×, by its own 30 scored runs." in html
    )
    assert "50% held as stated, 50% as shown." in html and 'data-chart="factors-over-time"' in html
    assert "work of filters 50% less" in html
    assert "GET" in html and "/api/v1/accuracy?cluster=this-host" in html


def test_calibration_shows_groups_counts_and_what_was_left_out(browser: Client, live: LiveQuery) -> None:
    judged(live, 50)
    AccuracyObservation.objects.filter(pk=AccuracyObservation.objects.first().pk).update(disturbed="away", covered=None)
    calibrations_refresh({group_of(row) for row in AccuracyObservation.objects.all()}, now=NOW)
    html = body(browser.get(ROOT))
    assert "Agents" in html and "Worst case, with windows" in html
    assert "49% → 49%" in html and "28% → 28%" in html
    row = IntervalCalibration.objects.get(query=live.query, until=None)
    assert (row.own_runs, row.left_out, row.trust) == (49, 1, "lost")
    assert "errors: 20 of the last 40 held" in html
    assert "Only 20 of the last 40 held, so a person decides on requests that touch it." in html


def test_without_enough_runs_it_says_how_many_there_are(browser: Client, live: LiveQuery) -> None:
    judged(live, 5)
    html = body(browser.get(ROOT))
    assert "Intervals of errors are as the model states them: 5 scored runs so far, and factors need 20." in html
    assert "too few runs: as stated" in html and 'data-chart="factors-over-time"' not in html


def test_filters_are_in_the_address(browser: Client, live: LiveQuery) -> None:
    other = live_query(live.query.cluster, "again")
    judged(live, 4)
    judged(other, 4, evidence="assumed")
    html = body(browser.get(f"{ROOT}?query=again"))
    assert "Estimates of <b>again</b>" in html and "of 4 intervals" in html
    assert "No scored run" in body(browser.get(f"{ROOT}?query=again&evidence=measured"))
    assert "of 8 intervals" in body(browser.get(f"{ROOT}?query=nobody&span=never&evidence=odd"))


def test_the_list_is_exported(browser: Client, live: LiveQuery) -> None:
    judged(live, 3)
    rows = browser.get(f"{ROOT}?export=csv").getvalue().decode().splitlines()
    assert rows[0].startswith("Query,Measured,Estimate") and len(rows) == 4


def test_the_page_asks_no_more_of_the_database_with_more_intervals(browser: Client, live: LiveQuery) -> None:
    judged(live, 5)
    browser.get(ROOT)
    few = counted_queries(lambda: browser.get(ROOT))
    AccuracyObservation.objects.all().delete()
    judged(live, 60)
    assert counted_queries(lambda: browser.get(ROOT)) <= few <= 45


def test_rest_lists_and_sums_up(api: APIClient, live: LiveQuery) -> None:
    judged(live, 30)
    found = api.get("/api/v1/accuracy", {"cluster": "this-host", "covered": "false"}).json()["results"]
    assert len(found) == 15 and found[0]["error_s"] == pytest.approx(1.0) and found[0]["parts"]["epoch_s"] == 1.0
    summary = api.get("/api/v1/accuracy/summary", {"query": "errors"}).json()
    assert summary["judged"]["coverage"] == 0.5 and summary["judged"]["outcomes"] == 30
    (query,) = summary["queries"]
    own = query["calibration"]
    assert query["query"] == "errors" and own["lower"] == pytest.approx(2.18, abs=0.01) and own["upper"] == 1.0
    assert (own["scope"], own["trust"], own["held"], own["judged"]) == ("query", "holding", 15, 30)
    assert [row["group"] for row in summary["calibrations"]] == ["origin", "kind"]
    assert summary["kinds"] == [
        {
            "kind": "filter", "expected_cps": pytest.approx(2e6), "measured_cps": pytest.approx(1e6), "bias": 1.0,
            "learned": {"ratio": 0.5, "low": 0.5, "high": 0.5, "runs": 30, "instants": 30, "is_proven": True},
        }
    ]  # fmt: skip
    assert api.get("/api/v1/accuracy", {"evidence": "odd"}).status_code == 400
    assert api.get(f"/api/v1/accuracy/{found[0]['id']}").status_code == 200


def test_the_statistics_tab_says_what_is_known_and_when_it_is_enough(
    browser: Client, live: LiveQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    own_batch(NOW, 1)
    tab = "/c/this-host/queries/errors/statistics/"
    assert "0 of 3 operators are ready; window: no event yet; 30 are the least." in body(browser.get(tab))
    tell(live, 2, per_agent=8)
    refine_all(NOW)
    html = body(browser.get(tab))
    assert "16 more events, about 10 s" in html and "2 of 3 subintervals, since" in html
    StatisticsWindow.objects.all().delete()
    tell(live, 12)
    refine_all(NOW + timedelta(seconds=30))
    ESTIMATE.request(cluster=live.query.cluster)
    small_cluster.run_jobs()
    html = body(browser.get(tab))
    assert "3 of 3 operators are ready." in html and "agent-1" in html and "stream processor 2" in html
    assert "What its latency is made of" in html and "Batch, fixed" in html
    assert "Its interval is as the model states it: too few scored runs yet to say more." in html


def test_a_query_that_never_ran_live_has_no_such_panel(browser: Client, browser_of: Callable[..., Client]) -> None:
    cluster = small_cluster.small_cluster()
    small_cluster.make_query(cluster, "calm", 0.5)
    assert "Measured by telemetry" not in body(browser.get("/c/little/queries/calm/statistics/"))


def test_intervals_left_out_are_counted_and_named(browser: Client, live: LiveQuery) -> None:
    judged(live, 20)
    AccuracyObservation.objects.filter(pk__in=[AccuracyObservation.objects.first().pk]).update(
        disturbed="warming", covered=None, observed_s=43.8
    )
    html = body(browser.get(ROOT))
    assert "1 interval left out: the stream processor was warming up." in html and "of 19 intervals" in html
    assert "left out: warming up" in html
    export = body(browser.get(f"{ROOT}?export=csv"))
    assert "left out: warming up" in export
    AccuracyObservation.objects.update(disturbed="away", covered=None)
    html = body(browser.get(ROOT))
    assert "20 intervals left out: the stream processor was away." in html


def test_rest_counts_intervals_left_out(api: APIClient, live: LiveQuery) -> None:
    judged(live, 4)
    AccuracyObservation.objects.filter(pk=AccuracyObservation.objects.first().pk).update(disturbed="catching_up")
    found = api.get("/api/v1/accuracy/summary?cluster=this-host").json()
    assert found["disturbed"] == {"catching_up": 1} and found["judged"]["outcomes"] == 3
    assert len(api.get("/api/v1/accuracy?disturbed=catching_up").json()["results"]) == 1
