"""The picture of what was measured and estimated of a query: gaps stay gaps, now is marked, numbers stand beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from apps.estimates.models import EstimateRun
from apps.estimates.objectives import objectives_refresh
from apps.fleet.models import Cluster
from apps.pages.queries.timeline import QueryTimeline
from apps.queries.models import Query
from apps.results.models import ResultWindow
from tests.apps.pages.html import body
from tests.apps.results.rows import live_query
from tests.clock import run_moment

pytestmark = pytest.mark.moment
NOW = run_moment()


@pytest.fixture
def query(cluster: Cluster) -> Query:
    """`calm` with its objective of 20 s, estimated four hours ago and now."""
    query = Query.objects.get(cluster=cluster, name="calm")
    EstimateRun.objects.update(created_at=NOW - timedelta(hours=4))
    return query


def results(query: Query, *stretches: tuple[int, int, float], now: datetime = NOW) -> None:
    """One result every ten seconds from so many seconds ago to so many, with a latency."""
    live_query(query.cluster, query.name)
    ResultWindow.objects.bulk_create(
        ResultWindow(
            query=query, plan="p", window_us=round(at.timestamp() * 1e6), width_us=10_000_000, row_count=0, body=b"",
            complete=True, emitted_at=at, latency_s=latency_s,
        )
        for since_s, until_s, latency_s in stretches
        for at in (now - timedelta(seconds=s) for s in range(since_s, until_s, -10))
    )  # fmt: skip


def test_a_gap_of_the_measurement_is_a_gap_of_the_line(query: Query) -> None:
    results(query, (7200, 5400, 4.0), (3600, 0, 6.0))
    timeline = QueryTimeline(query, "worst", 20.0, NOW)
    assert [{point.value_s for point in stretch} for stretch in timeline.stretches] == [{4.0}, {6.0}]
    assert timeline.gaps == 1
    assert timeline.stretches[0][-1].at_s < NOW.timestamp() - 5300 < timeline.stretches[1][0].at_s


def test_estimate_in_force_before_the_picture_begins_is_drawn(query: Query) -> None:
    results(query, (600, 0, 6.0))
    timeline = QueryTimeline(query, "worst", 20.0, NOW)
    assert len(timeline.estimates) == 1 and timeline.begin_s == NOW.timestamp() - 10_800
    assert [row[2] for row in timeline.table] == [timeline.table[0][2]] * 24 and timeline.table[0][1] == "–"
    assert timeline.table[-1][1] == "6\xa0s"


def test_picture_marks_now_in_local_time_and_names_the_objective(query: Query) -> None:
    results(query, (600, 0, 6.0))
    timeline = QueryTimeline(query, "worst", 20.0, NOW)
    assert timeline.svg.count("<svg") == 2 and timeline.svg.count("Objective 20\xa0s") == 2
    assert f"now, {timeline._clock(NOW.timestamp())}" in timeline.svg
    assert timeline.finding.startswith("calm: measured 6\xa0s at ")


def test_query_without_measurement_draws_its_estimates_alone(query: Query) -> None:
    timeline = QueryTimeline(query, "worst", 20.0, NOW)
    assert not timeline.is_empty and timeline.points == [] and timeline.stretches == []
    assert [kind for kind, _ in timeline.key] == ["band", "estimate", "objective-line"]


def test_query_page_says_what_was_measured_and_why_it_is_late(query: Query, browser: Client) -> None:
    results(query, (900, 0, 78.7), now=datetime.now(UTC))
    objectives_refresh(query.cluster)
    html = body(browser.get("/c/little/queries/calm/")).replace("\xa0", " ")
    assert "was measured at 78.7 s over the last 10 min, 58.7 s over the 20 s objective" in html
    assert "Measured and estimated" in html and "The stream processor does not report." in html
    assert "calm" in body(browser.get("/c/little/queries/?state=breached"))
    row = body(browser.get("/c/little/")).replace("\xa0", " ")
    assert "calm is 58.7 s over" in row
