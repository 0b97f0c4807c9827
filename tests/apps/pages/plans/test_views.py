"""The plans tab: empty, ranked, taken over, with drift; what hands it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.fleet.models import Cluster
from apps.planning.models import PlanComparison
from apps.planning.plan_review import plans_review
from apps.planning.plans import PLANS
from apps.queries.models import Query
from apps.queries.services import query_create, query_start, query_version_create
from apps.queries.statistics import statistics_update
from tests.apps import small_cluster
from tests.apps.pages import html
from tests.apps.planning.plan_examples import batches, entry, plan

pytestmark = pytest.mark.django_db

PAGE = "/c/little/queries/q/plans/"


@pytest.fixture
def query(cluster: Cluster) -> Query:
    created = query_create(cluster=cluster, name="q", body=plan(), objective={"statistic": "worst", "bound_s": 2.0})
    query_start(version=created.versions.get(), placement={"parse": "a", "hot": "a"})
    created.refresh_from_db()
    return created


def body(response: Any) -> str:
    return html.body(response).replace("\N{NO-BREAK SPACE}", " ")


def compared(query: Query, **asked: Any) -> PlanComparison:
    row, _ = PLANS.request(query=query, **asked)
    small_cluster.run_jobs()
    return row


def test_tab_without_a_comparison_explains_comparisons(browser: Client, browser_of: Any, query: Query) -> None:
    html = body(browser.get(PAGE))
    assert "No comparison yet" in html and "Compare plans" in html
    assert 'href="/c/little/queries/q/versions/new/"' in html
    assert (
        "POST /api/v1/queries" in html.replace("</code>", "").replace("<code>", "")
        or f"/queries/{query.pk}/plans" in html
    )
    assert "<button" not in body(browser_of("viewer").get(PAGE)).split("No comparison yet")[1].split("</section>")[0]


def test_plan_is_compared_adopted_and_previewed(browser: Client, query: Query) -> None:
    assert browser.post(f"{PAGE}compare/").status_code == 302
    assert "Compare plans of q" in body(browser.get(PAGE))  # its job, while it waits
    small_cluster.run_jobs()
    html = body(browser.get(PAGE))
    assert "Rewriting 1 of version 1 would be" in html and "faster than what runs" in html
    assert "Filter <code>hot</code> moved before <code>parse</code>" in html
    assert "Nothing is fused: the cycles that a queue between two operators costs are not stated." in html
    assert html.count('<svg class="dots"') == 2 and html.count("fig dag") == 2
    comparison = query.comparisons.get()
    answer = browser.post(f"{PAGE}adopt/", {"comparison": str(comparison.pk), "plan": "r1"})
    assert answer["Location"] == "/c/little/admission/new/?query=q&version=2"
    assert body(browser.get(answer["Location"])).count("hot") >= 1
    assert query.versions.count() == 2
    html = body(browser.get(PAGE))
    assert "Preview version 2" in html and "<span>version 2</span>" in html


def test_refused_comparison_is_explained_on_the_page(browser: Client, query: Query) -> None:
    refused = browser.post(f"{PAGE}compare/", {"places": "keep", "capacity_cps": "-1"})
    assert refused.status_code == 422 and "The settings cannot be used" in body(refused)
    comparison = compared(query)
    statistics_update(version=query.running_version, statistics=[{"operator": "hot", "selectivity": 0.9}])
    stale = browser.post(f"{PAGE}adopt/", {"comparison": str(comparison.pk), "plan": "r1"})
    assert stale.status_code == 409 and "compare again" in body(stale)
    assert query.versions.count() == 1
    assert browser.get(f"{PAGE}?comparison=x").status_code == 404
    query.cluster.arrivals.all().delete()
    assert "No arrivals are known of clicks" in body(browser.post(f"{PAGE}compare/"))


def test_plans_with_no_significant_difference_are_marked(browser: Client, query: Query) -> None:
    other = plan(inputs=[entry("clicks", 1.0, 11.0, 9, spread=0.4)])
    query_version_create(query=query, body=other, note="Other parser")
    compared(query, versions=[1, 2])
    html = body(browser.get(PAGE))
    assert "cannot be told apart from what runs yet:" in html and "more events" in html
    assert "Other parser" in html
    assert "?query=q&amp;version=2" in html


def test_drift_and_history_are_shown(browser: Client, query: Query) -> None:
    compared(query, hop_cycles=0.5)
    assert "still those this comparison rests on" in body(browser.get(PAGE))
    statistics_update(version=query.running_version, statistics=[{"operator": "hot", "batches": batches(0.5, 2.0, 6)}])
    assert plans_review() == 1
    html = body(browser.get(PAGE))
    assert "The statistics have drifted: 1 of 4 tests" in html and "false-alarm rate of 1% per check" in html
    small_cluster.run_jobs()
    html = body(browser.get(PAGE))
    assert "Statistics drifted" in html and "Asked for" in html
    old = PlanComparison.objects.last()
    assert "The statistics have drifted" in body(browser.get(f"{PAGE}?comparison={old.pk}"))


def test_a_failed_comparison_says_why(browser: Client, query: Query) -> None:
    row, _ = PLANS.request(query=query)
    query.versions.all()[0].operators.filter(name="hot")[0].inputs.update(source_id="gone", upstream=None)
    small_cluster.run_jobs()
    row.refresh_from_db()
    assert row.state == "failed"
    assert "The newest comparison failed" in body(browser.get(PAGE))


def test_drifted_plan_is_on_the_attention_list(browser: Client, query: Query) -> None:
    assert "has a faster plan" not in body(browser.get("/c/little/"))
    compared(query)
    html = body(browser.get("/c/little/"))
    assert "q has a faster plan" in html and f'href="{PAGE}"' in html
