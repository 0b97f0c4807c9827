"""Comparing the plans of a query, taking one over, comparing again when statistics drift."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.core.errors import Conflict, Impossible, Malformed, Missing, Stale
from apps.fleet.models import Cluster
from apps.jobs.services import job_cancel
from apps.planning.choices import ComparisonReason, RunState
from apps.planning.models import PlanComparison
from apps.planning.plan_review import plans_review
from apps.planning.plans import PLANS, comparison_latest, plan_adopt, plans_recommended
from apps.queries.models import Query
from apps.queries.services import query_create, query_start, query_version_create
from apps.queries.statistics import statistics_update
from tests.apps.planning.plan_examples import batches, entry, plan
from tests.apps.small_cluster import run_jobs, small_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster()


@pytest.fixture
def query(cluster: Cluster) -> Query:
    created = query_create(cluster=cluster, name="q", body=plan(), objective={"statistic": "worst", "bound_s": 2.0})
    query_start(version=created.versions.get(), placement={"parse": "a", "hot": "a"})
    created.refresh_from_db()
    return created


def compared(query: Query, **asked: Any) -> PlanComparison:
    PLANS.request(query=query, **asked)
    (job,) = run_jobs()
    assert not job.error, job.error
    comparison = comparison_latest(query)
    assert comparison is not None
    return comparison


def test_a_faster_rewriting_is_recommended_and_adopted(query: Query, cluster: Cluster) -> None:
    comparison = compared(query)
    finding = comparison.result["finding"]
    assert (finding["kind"], finding["key"], comparison.recommended, comparison.running) == ("better", "r1", "r1", 1)
    assert [row.query for row in plans_recommended(cluster)] == [query]
    version = plan_adopt(comparison=comparison, plan="r1")
    assert (version.number, version.note) == (2, "Rewritten from version 1: filter hot moved before parse")
    rows = {row.name: row for row in version.operators.all()}
    assert rows["parse"].inputs.get().upstream == rows["hot"]
    assert rows["hot"].inputs.get().source_id == "clicks"
    assert rows["hot"].requested == [{"node": "a", "core": 0, "fraction": 1.0}]
    assert len(rows["hot"].inputs.get().batches) == 8
    query.refresh_from_db()
    assert query.running_version.number == 1  # nothing runs otherwise by itself
    assert plan_adopt(comparison=comparison, plan="r1") == version
    assert not plans_recommended(cluster)
    ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query="q", version=2))
    run_jobs()
    assert query.admissions.get().verdict == "admit"


def test_the_admission_preview_of_an_adopted_plan_agrees_with_the_comparison(query: Query, cluster: Cluster) -> None:
    comparison = compared(query)
    plan_adopt(comparison=comparison, plan="r1")
    ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query="q", version=2))
    run_jobs()
    effects = query.admissions.get().result["effects"]
    own = next(effect for effect in effects if effect["query"] == "q")
    best = comparison.result["plans"][0]
    for name in ("flow_s", "low_s", "high_s"):
        assert own[name] == pytest.approx(best[name], abs=1e-9)
    assert own["after_s"] == pytest.approx(best["estimate_s"], abs=1e-9)


def test_versions_are_ranked_against_the_running_one(query: Query) -> None:
    query_version_create(query=query, body=plan(inputs=[entry("clicks", 1.0, 30.0, 3)]))
    comparison = compared(query)
    assert {plan["key"] for plan in comparison.result["plans"]} == {"v1", "v2", "r1"}
    assert comparison.result["against_running"]["v2"]["seconds"] > 0
    assert plan_adopt(comparison=comparison, plan="v2").number == 2
    alone = compared(query, versions=[2], capacity_cps=500.0)
    assert alone.result["setting"] == {"capacity_cps": 500.0}
    assert alone.running is None


def test_a_draft_is_compared_without_a_running_version(cluster: Cluster) -> None:
    draft = query_create(cluster=cluster, name="idea", body=plan(), objective={"statistic": "mean", "bound_s": 2.0})
    comparison = compared(draft)
    assert (comparison.result["statistic"], comparison.result["running"]) == ("mean", None)
    assert comparison.result["finding"]["kind"] == "equal"  # two nodes have room for either
    assert not plans_recommended(cluster)


def test_invalid_parameters_of_a_comparison_are_refused_with_allowed_values(query: Query, cluster: Cluster) -> None:
    for asked, part in (
        ({"versions": [7]}, "allowed: 1"),
        ({"hop_cycles": -1.0}, "at least 0"),
        ({"capacity_cps": 0.5}, "at least 1"),
        ({"places": "nowhere"}, "keep, free"),
    ):
        with pytest.raises(Malformed, match=part):
            PLANS.request(query=query, **asked)
    comparison = compared(query)
    with pytest.raises(Missing, match="r9"):
        plan_adopt(comparison=comparison, plan="r9")
    other = small_cluster("empty", nodes=())
    lonely = query_create(cluster=other, name="q", body=plan())
    with pytest.raises(Impossible, match="no nodes"):
        PLANS.request(query=lonely)
    other.arrivals.all().delete()
    with pytest.raises(Impossible, match="clicks"):
        PLANS.request(query=lonely, capacity_cps=100.0)


def test_a_plan_with_changed_statistics_is_not_adopted(query: Query) -> None:
    comparison = compared(query)
    statistics_update(version=query.running_version, statistics=[{"operator": "hot", "selectivity": 0.9}])
    with pytest.raises(Stale, match="compare again"):
        plan_adopt(comparison=comparison, plan="r1")


def test_a_waiting_comparison_is_reused_and_can_be_cancelled(query: Query) -> None:
    first, job = PLANS.request(query=query)
    assert PLANS.request(query=query) == (first, job)
    with pytest.raises(Conflict, match="computing"):
        plan_adopt(comparison=first, plan="r1")
    job_cancel(job)
    first.refresh_from_db()
    assert first.state == RunState.CANCELLED
    assert comparison_latest(query) is None


def test_review_requests_a_comparison_after_drift_only(query: Query) -> None:
    assert plans_review() == 1
    run_jobs()
    first = comparison_latest(query)
    assert first is not None and first.reason == ComparisonReason.SCHEDULED
    assert plans_review() == 0
    again = [{"operator": "hot", "batches": batches(0.2, 2.0, 5)}]
    statistics_update(version=query.running_version, statistics=again)
    assert plans_review() == 0
    first.refresh_from_db()
    assert first.drift is not None and not first.drift["significant"]
    statistics_update(version=query.running_version, statistics=[{"operator": "hot", "batches": batches(0.5, 2.0, 6)}])
    assert plans_review() == 1
    assert plans_review() == 0  # it is on its way
    run_jobs()
    second = comparison_latest(query)
    assert second is not None and second.reason == ComparisonReason.DRIFT
    first.refresh_from_db()
    changed = [change for change in first.drift["changes"] if change["significant"]]
    assert [(change["operator"], change["what"]) for change in changed] == [("hot", "selectivity")]
    assert plans_review() == 0


def test_review_repeats_a_comparison_that_is_old(query: Query, settings: Any) -> None:
    compared(query, hop_cycles=0.5)
    PlanComparison.objects.update(created_at=timezone.now() - timedelta(hours=25))
    settings.PLANS_EVERY_S = 0.0
    assert plans_review() == 0
    settings.PLANS_EVERY_S = 86400.0
    assert plans_review() == 1
    newest = PlanComparison.objects.first()
    assert (newest.reason, newest.hop_cycles) == (ComparisonReason.SCHEDULED, 0.5)


# -- REST
def test_plans_are_compared_and_adopted_over_rest(api: Any, query: Query) -> None:
    url = f"/api/v1/queries/{query.pk}/plans"
    assert api.get(url).json() == {"query": "q", "versions": [1], "running": 1, "under_way": None, "latest": None}
    assert api.post(f"{url}/adopt", {"plan": "r1"}, format="json").status_code == 404
    answer = api.post(url, {}, format="json")
    assert answer.status_code == 202
    assert api.get(url).json()["under_way"] in answer.json()["result_api_url"]
    run_jobs()
    latest = api.get(url).json()["latest"]
    assert latest["finding"]["kind"] == "better"
    assert api.get(answer.json()["result_api_url"]).json()["result"]["plans"][0]["key"] == "r1"
    assert api.get("/api/v1/plan-comparisons?query=q&state=done").json()["results"][0]["recommended"] == "r1"
    adopted = api.post(f"{url}/adopt", {"plan": "r1"}, format="json")
    assert adopted.status_code == 201
    assert adopted.json()["admission"] == {"cluster": "little", "query": "q", "version": 2}
    assert api.post("/api/v1/admissions", adopted.json()["admission"], format="json").status_code == 202


def test_unknown_versions_and_fields_are_refused(api_of: Any, query: Query) -> None:
    url = f"/api/v1/queries/{query.pk}/plans"
    refused = api_of("operator").post(url, {"versions": [9], "nonsense": 1}, format="json")
    assert refused.status_code == 400
