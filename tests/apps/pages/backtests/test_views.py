"""Backtests in the browser: what records reach, the form and its faults, the answer, what differs, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.planning.backtests import BACKTEST
from apps.planning.models import BacktestRun
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.planning.test_backtests import DAY, NOW, asked, history
from tests.apps.recordings import recorded

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

ROOT = "/c/little/backtests/"
FORM = {
    "period": "day",
    "ask": "recorded",
    "admission": "everything",
    "at_risk": "review",
    "assumed": "admit",
    "headroom": "0",
    "placement": "keep",
}


@pytest.fixture
def told() -> Cluster:
    """`first` on node a; a day of records; `more` was refused at noon."""
    return recorded(_told_cluster)


def _told_cluster() -> Cluster:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "first", 0.6, "a")
    history(cluster, [100.0] * 24)
    asked(cluster, "more", 0.5, NOW - DAY / 2, placement={"work": "a"})
    return cluster


@pytest.fixture
def answered(told: Cluster) -> BacktestRun:
    row, _ = BACKTEST.request(
        cluster=told, user=None, since=NOW - DAY, until=NOW, policy={"admission": "everything", "headroom": 0.2}
    )
    small_cluster.run_jobs()
    row.refresh_from_db()
    return row


def test_backtests_page_without_records_shows_the_first_step(browser: Client) -> None:
    small_cluster.small_cluster()
    html = body(browser.get(ROOT))
    assert "Nothing recorded yet" in html and "Add a load history" in html and "Start the backtest" not in html


def test_backtests_page_shows_start_and_kind_of_records(browser: Client, told: Cluster) -> None:
    html = body(browser.get(ROOT))
    assert "Records reach from" in html and "load history of 1 source." in html
    assert "No backtest yet" in html and "/api/v1/backtests?cluster=little" in html
    assert f'<a href="{ROOT}" aria-current="page">Backtests</a>' in html


def test_viewer_sees_no_backtest_form(browser_of: Callable[..., Client], told: Cluster) -> None:
    viewer = browser_of("viewer")
    assert "Start the backtest" not in body(viewer.get(ROOT))


def test_backtest_runs_from_form_to_answer(browser: Client, told: Cluster) -> None:
    sent = browser.post(f"{ROOT}new/", {**FORM, "headroom": "20"})
    row = BacktestRun.objects.get()
    assert (sent.status_code, sent["Location"]) == (302, f"{ROOT}{row.pk}/")
    assert (row.policy["headroom"], row.until - row.since) == (0.2, timedelta(days=1))
    assert "The answer appears here by itself." in body(browser.get(sent["Location"]))
    small_cluster.run_jobs()
    html = body(browser.get(sent["Location"]))
    assert "It would have admitted 1 of 1, one more than was" in html
    assert "Everything admitted, 20% headroom" in html


def test_faults_are_shown_at_their_fields(browser: Client, told: Cluster) -> None:
    refused = browser.post(f"{ROOT}new/", {**FORM, "period": "custom", "headroom": "95"})
    assert refused.status_code == 422
    html = body(refused)
    assert "Say from when" in html and "less than or equal to 90" in html
    early = {**FORM, "period": "custom", "since": "2020-01-01T00:00", "until": "2020-01-02T00:00"}
    assert "nothing was recorded from 2020-01-01" in body(browser.post(f"{ROOT}new/", early))
    assert not BacktestRun.objects.exists()


def test_both_policies_are_shown_side_by_side(browser: Client, answered: BacktestRun) -> None:
    html = body(browser.get(f"{ROOT}{answered.pk}/"))
    assert "0 of 1" in html and "1 of 1" in html  # admitted
    assert "first and more over their objectives, first for 12" in html
    assert 'data-chart="backtest-latency"' in html and html.count('fill="var(--bad)"') == 24  # 12 hours of two queries
    assert "differs" in html and "As recorded: first would miss its objective" in html
    assert "24 segments of load history" in html and f"/api/v1/backtests/{answered.pk}" in html
    chosen = body(browser.get(f"{ROOT}{answered.pk}/?query=more"))
    assert 'name="query" value="more"' in chosen
    assert "first: at most" in body(browser.get(f"{ROOT}{answered.pk}/?query=nobody"))


def test_requests_are_filtered_and_exported(browser: Client, answered: BacktestRun) -> None:
    same = browser.get(f"{ROOT}{answered.pk}/?differs=same&export=csv").content.decode()
    assert len(list(csv.reader(io.StringIO(same)))) == 1  # the heading
    rows = list(csv.DictReader(io.StringIO(browser.get(f"{ROOT}{answered.pk}/?export=csv").content.decode())))
    assert [(row["Query"], row["As recorded"], row["This policy"]) for row in rows] == [
        ("more", "rejected", "admitted")
    ]
    listed = list(csv.DictReader(io.StringIO(browser.get(f"{ROOT}?export=csv").content.decode())))
    assert [row["State"] for row in listed] == ["answered"]


def test_failed_backtest_shows_its_error(browser: Client, told: Cluster) -> None:
    row, _ = BACKTEST.request(cluster=told, user=None, since=NOW - DAY, until=NOW)
    told.load_histories.all().delete()
    small_cluster.run_jobs()
    assert "the records of the period are gone" in body(browser.get(f"{ROOT}{row.pk}/"))


def test_backtest_is_deleted_and_another_clusters_is_not_found(browser: Client, answered: BacktestRun) -> None:
    small_cluster.small_cluster("other")
    assert browser.get(f"/c/other/backtests/{answered.pk}/").status_code == 404
    assert browser.post(f"{ROOT}{answered.pk}/delete/").status_code == 302
    assert not BacktestRun.objects.exists()


def test_sql_count_does_not_grow_with_rows(browser: Client, told: Cluster) -> None:
    def counted() -> int:
        with CaptureQueriesContext(connection) as caught:
            browser.get(ROOT)
        return len(caught)

    def more(count: int) -> None:
        for _ in range(count):
            BacktestRun.objects.create(cluster=told, since=NOW - DAY, until=timezone.now(), policy=policy)

    policy = {"admission": "mace", "at_risk": "admit", "assumed": "review", "headroom": 0.0, "placement": "greedy"}
    policy |= {"max_moves": 3}
    more(1)
    counted()  # the first visit stores the session
    few = counted()
    more(8)
    assert counted() == few
    html = body(browser.get(ROOT))
    assert "placed anew by greedy with at most 3 moves" in html and "at risk admitted, assumed to review" in html
