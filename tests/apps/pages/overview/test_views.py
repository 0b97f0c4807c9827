"""The overview: its sentence, its lists, its empty states."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services import token_create
from apps.estimates.models import ObjectiveStatus, QueryEstimate
from apps.estimates.objectives import objectives_refresh
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create
from apps.jobs.models import Job
from apps.pages.overview import attention
from apps.pages.overview.findings import Findings
from apps.queries.models import Query
from tests.apps import small_cluster
from tests.apps.estimates.answers import widening
from tests.apps.pages.html import body
from tests.apps.people import person

pytestmark = pytest.mark.django_db


def page(client: Client, path: str, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status, response.content.decode()[:2000]
    return body(response)


def test_home_without_a_cluster_offers_to_create_one(browser_of: Callable[..., Client]) -> None:
    assert "/clusters/new/" in page(browser_of("operator"), "/")
    viewer = page(browser_of("viewer"), "/")
    assert "No cluster yet" in viewer
    assert 'href="/clusters/new/"' not in viewer


def test_overview_leads_with_a_sentence_about_objectives(browser: Client, cluster: Cluster) -> None:
    html = page(browser, "/c/little/")
    assert "1 of 2 objectives hold. <b>late</b> is expected never to catch up." in html
    assert "late is " in html
    assert "b runs at 1.2" in html
    table = html.split("<tbody>")[1].split("</tbody>")[0]
    assert table.index("late") < table.index("calm")
    assert 'id="t-excess"' in html
    assert "GET /api/v1/estimates?cluster=little" in html


def test_attention_list_names_a_widened_interval_as_cause_of_a_risk(browser: Client, cluster: Cluster) -> None:
    row = QueryEstimate.objects.get(query__name="late")
    row.result = {**row.result, "calibration": widening(12.3).to_dict()}
    row.estimate_s, row.high_s, row.certainty = 0.9 * row.bound_s, 2.0 * row.bound_s, "known"
    row.save()
    objectives_refresh(cluster)
    html = page(browser, "/c/little/")
    assert "so far off that the upper side of its interval is 12.3 times as wide." in html
    assert "b runs at 1.2" not in html


def test_query_that_never_catches_up_is_told_though_it_is_in_time_so_far(browser: Client, cluster: Cluster) -> None:
    QueryEstimate.objects.filter(query__name="late").update(estimate_s=0.01, high_s=0.02, certainty="never_catches_up")
    objectives_refresh(cluster)
    html = page(browser, "/c/little/")
    assert "late is expected never to catch up" in html
    assert "It never catches up: 10" in html
    assert "ms within the horizon against" in html.replace("\xa0", " ")
    table = html.split("<tbody>")[1].split("</tbody>")[0]
    assert ">over<" in table
    assert "never catches up" in table
    csv = browser.get("/c/little/?export=csv").content.decode().splitlines()
    assert [line.split(",")[0] for line in csv[1:]] == ["late", "calm"]


def test_unknown_latency_is_no_figure_of_the_overview(browser: Client, cluster: Cluster) -> None:
    rows = QueryEstimate.objects.filter(query__name="late")
    rows.update(estimate_s=0.01, high_s=0.02, certainty="unknown", state="unknown")
    objectives_refresh(cluster)
    table = page(browser, "/c/little/").split("<tbody>")[1].split("</tbody>")[0]
    row = next(part for part in table.split("<tr") if ">late<" in part)
    assert ">unknown<" in row
    assert 'class="hb"' not in row
    assert "over 99" not in row
    csv = browser.get("/c/little/?export=csv").content.decode()
    assert "0.01" not in csv


def test_latency_that_nobody_knows_is_not_said_to_hold(browser: Client, cluster: Cluster) -> None:
    QueryEstimate.objects.filter(query__name="late").update(estimate_s=0.01, high_s=0.02, certainty="unknown")
    objectives_refresh(cluster)
    html = page(browser, "/c/little/")
    assert "Nothing is known of the latency of <b>late</b>" in html
    assert "The latency of late is not known" in html
    assert "1 of 2 objectives hold" in html
    assert "calm" not in page(browser, "/c/little/?state=unknown").split("<tbody>")[1].split("</tbody>")[0]


def test_home_redirects_to_the_last_visited_cluster(browser: Client, cluster: Cluster) -> None:
    cluster_create(slug="another", name="Another")
    assert browser.get("/")["Location"] == "/c/another/"
    page(browser, "/c/little/")
    assert browser.get("/")["Location"] == "/c/little/"


def test_objectives_are_filtered_by_state_and_exported(browser: Client, cluster: Cluster) -> None:
    html = page(browser, "/c/little/?state=holds")
    assert "2.9 s" not in html
    table = html.split("<tbody>")[1].split("</tbody>")[0]
    assert "calm" in table
    assert "late" not in table
    csv = browser.get("/c/little/?export=csv").content.decode().splitlines()
    assert csv[0].startswith("Query,Objective,")
    assert [line.split(",")[0] for line in csv[1:]] == ["late", "calm"]


def test_empty_overview_names_the_next_step(browser: Client) -> None:
    empty = cluster_create(slug="empty", name="Empty")
    assert "No nodes yet" in page(browser, "/c/empty/")
    empty.delete()
    cluster = small_cluster.small_cluster()
    assert "No query runs yet" in page(browser, "/c/little/")
    small_cluster.start_query(cluster, "calm", 0.5, "a")
    html = page(browser, "/c/little/")
    assert "No estimate yet" in html
    assert "One query has not been estimated yet." in html


def test_estimate_now_submits_one_job(browser: Client) -> None:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "calm", 0.5, "a")
    Job.objects.all().delete()
    response = browser.post("/c/little/estimate/", {"next": "//evil.example/"})
    assert response["Location"] == "/c/little/"
    job = Job.objects.get()
    html = page(browser, "/c/little/")
    assert "is on its way" in html
    assert f'id="job-{job.pk}"' in html
    small_cluster.run_jobs()
    assert "The objective holds." in page(browser, "/c/little/")


def test_stopped_query_is_not_counted(browser: Client, cluster: Cluster) -> None:
    Query.objects.filter(name="late").update(state="stopped")
    assert "is over" not in page(browser, "/c/little/")


def test_unknown_cluster_is_not_found(browser: Client, cluster: Cluster) -> None:
    html = page(browser, "/c/nowhere/", 404)
    assert "There is no cluster &#x27;nowhere&#x27;." in html
    assert "little" in html


def test_search_finds_queries_nodes_sources_and_decisions(browser: Client, cluster: Cluster) -> None:
    html = page(browser, "/c/little/search/?q=LAT")
    assert "found for" in html
    assert "/c/little/queries/late/" in html
    assert "/c/little/fleet/nodes/a/" in page(browser, "/c/little/search/?q=pool")
    assert "Nothing in Little is called" in page(browser, "/c/little/search/?q=zzz")


def test_overview_leaves_out_what_changes_while_it_is_read(
    browser: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = attention.estimates_named

    def gone(keys: list[int]) -> list[QueryEstimate]:
        QueryEstimate.objects.filter(query__name="late").delete()
        return named(keys)

    monkeypatch.setattr(attention, "estimates_named", gone)
    assert "Overview" in page(browser, "/c/little/") and not QueryEstimate.objects.filter(query__name="late").exists()


def test_tokens_of_the_reader_that_expire_soon_are_on_the_attention_list(browser: Client, cluster: Cluster) -> None:
    reader = User.objects.get(pk=browser.session["_auth_user_id"])
    for name, owner, days in (("ci", reader, 3), ("later", reader, 30), ("foreign", person("other"), 3)):
        token_create(user=owner, name=name, scopes=["read"], expires_at=timezone.now() + timedelta(days=days))
    html = page(browser, "/c/little/")
    assert "Your token ci expires" in html and "later expires" not in html and "foreign expires" not in html


@pytest.mark.parametrize("state", ["breached", "at_risk", "unknown"])
def test_findings_count_no_query_whose_state_has_changed_since(cluster: Cluster, state: str) -> None:
    set_state(state)
    findings = Findings(cluster)
    assert findings.counts[state] == 1
    set_state("holds")
    items, count = attention.attention_list(findings)
    assert len(items) == count and "late" not in " ".join(item.title for item in items)
    assert (findings.breached.count, findings.risky.count, findings.unknown.count) == (0, 0, 0)
    assert findings.risky_high is None
    assert "late" not in findings.sentence.split("Least headroom")[0]


def set_state(state: str) -> None:
    ObjectiveStatus.objects.filter(query__name="late").update(state=state)
