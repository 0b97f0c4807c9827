"""Backlog on the page of a query: stated by form, shown with its age, and when the query has caught up."""

from __future__ import annotations

from collections.abc import Callable

from django.test import Client

from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from tests.apps import small_cluster
from tests.apps.pages.html import body

STATISTICS, FORM = "/c/lab/queries/calm/statistics/", "/c/lab/queries/calm/backlog/"


def test_page_says_that_nothing_is_known_to_wait(browser: Client, cluster: Cluster) -> None:
    assert "Nothing is known to wait" in body(browser.get(STATISTICS.replace("lab", cluster.slug)))


def test_stated_backlog_is_shown_with_when_the_query_catches_up(browser: Client, cluster: Cluster) -> None:
    statistics, form = (path.replace("lab", cluster.slug) for path in (STATISTICS, FORM))
    assert browser.post(form, {"b0_behind_s": "120"}).status_code == 302
    shown = body(browser.get(statistics))
    assert 'value="120"' in shown
    assert "stated" in shown
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    plan = body(browser.get(f"/c/{cluster.slug}/queries/calm/"))
    assert "calm catches up after" in plan or "calm does not catch up within" in plan
    assert "the oldest for" in plan


def test_faults_of_a_backlog_are_told_and_nothing_is_stored(browser: Client, cluster: Cluster) -> None:
    answer = browser.post(FORM.replace("lab", cluster.slug), {"b0_events": "many"})
    assert answer.status_code == 422
    assert "The backlog is not saved" in body(answer)
    assert 'value="many"' in body(answer)
    assert "backlogs[0]" not in body(answer)  # told by what waits, not by a place in a list
    assert "changed:cluster" not in body(answer)  # a reload by itself would take the faults away
    assert cluster.queries.get(name="calm").backlogs == []


def test_viewer_sees_a_backlog_and_no_fields(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    shown = body(browser_of("viewer").get(STATISTICS.replace("lab", cluster.slug)))
    assert "t-waiting" in shown
    assert "b0_events" not in shown
