"""Replays: what a decision would be today, and what changed most since."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from django.db.models import F
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.admission.models import AdmissionRequest
from apps.admission.month_replays import MonthReplay, month_replay_request
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.admission.replays import DecisionReplay, replay_latest, replay_request
from apps.core.errors import Conflict
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_update
from apps.jobs.models import Job
from apps.queries.arrivals.services import arrivals_replace
from apps.queries.models import Query
from apps.queries.services import query_update
from tests.apps.people import person
from tests.apps.policies.documents import set_policy
from tests.apps.small_cluster import make_query, run_jobs, small_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def decided() -> AdmissionRequest:
    """A query that keeps 0.6 of a node busy, applied on a cluster that is empty otherwise."""
    cluster = small_cluster(nodes=("a",))
    make_query(cluster, "clicks-1", 0.6)
    request, _ = ADMISSION.request(
        cluster=cluster, user=person("ann", Role.ADMITTER), question=AdmissionQuestion(query="clicks-1", mode="apply")
    )
    run_jobs()
    request.refresh_from_db()
    assert request.state == "applied"
    return request


def replayed(request: AdmissionRequest) -> DecisionReplay:
    replay_request(request=request, user=None)
    run_jobs()
    job, answer = replay_latest(request)
    assert job is not None and answer is not None, job and job.error
    return answer


def more_clicks(cluster: Cluster, times: float) -> None:
    values = np.full(cluster.slices, 25.0 * times)
    arrivals_replace(cluster=cluster, source_id="clicks", values=values, origin="upload", evidence=Evidence.MEASURED)


def test_replay_tells_the_verdict_of_today_and_what_changed_most(decided: AdmissionRequest) -> None:
    before = (AdmissionRequest.objects.count(), Query.objects.get().state)
    same = replayed(decided)
    assert (same.now, same.sentence, same.changes) == ("admit", "would still be admitted", ())
    more_clicks(decided.cluster, 2.0)
    answer = replayed(decided)
    assert (answer.then, answer.now) == ("admit", "reject")
    assert answer.sentence == "would be rejected now: load +100%"
    assert (AdmissionRequest.objects.count(), Query.objects.get().state) == before, "nothing is written"


def test_replay_names_the_policy_that_makes_the_difference(decided: AdmissionRequest) -> None:
    query_update(query=decided.query, team="ads")
    set_policy(decided.cluster, teams=[{"team": "ads", "quotas": {"cores": {"nominal": 0.5}}}])
    answer = replayed(decided)
    assert (answer.now, answer.sentence) == ("reject", "would be rejected now: the policy is another one")


def month_of(cluster: Cluster, **question: Any) -> MonthReplay:
    job = month_replay_request(cluster=cluster, question=question, user=None)
    run_jobs()
    job.refresh_from_db()
    assert job.error is None
    return MonthReplay.parse(job.result)


def test_month_counts_the_last_decision_of_each_version(decided: AdmissionRequest) -> None:
    make_query(decided.cluster, "small", 0.05)
    for _ in range(2):
        ADMISSION.request(cluster=decided.cluster, user=None, question=AdmissionQuestion(query="small"))
        run_jobs()
    more_clicks(decided.cluster, 2.0)
    month = month_of(decided.cluster)
    assert (month.decisions, month.replayed, month.left_out) == (2, 2, 0)
    assert month.listed[-1].query == "clicks-1" and month.verdicts["admit>reject"] == month.otherwise
    assert month_of(decided.cluster, month="2001-02").sentence == "No decision of February 2001 can be replayed."


def test_what_is_not_taken_of_today_stays_as_the_decision_kept_it(decided: AdmissionRequest) -> None:
    cluster = decided.cluster
    more_clicks(cluster, 2.0)
    query_update(query=decided.query, team="ads")
    set_policy(cluster, teams=[{"team": "ads", "quotas": {"cores": {"nominal": 0.7}}}])

    def verdicts(*taken: str) -> dict[str, int]:
        return dict(month_of(cluster, taken=["model", "cluster", *taken]).verdicts)

    assert verdicts("load", "cost", "policy") == {"admit>reject": 1}
    assert verdicts("load", "cost") == {"admit>reject": 1}, "twice the load does not fit, whatever the policy"
    assert verdicts("cost", "policy") == {"admit>admit": 1}, "with the load of then it is within the quota"
    statistics = decided.version.operators.get().inputs
    statistics.update(cycles_per_event=2 * F("cycles_per_event"))
    more_clicks(cluster, 1.0)
    assert verdicts("load", "policy") == {"admit>admit": 1}, "at the costs of then"
    assert verdicts("load", "cost") == {"admit>reject": 1}
    assert dict(month_of(cluster, taken=["policy"]).verdicts) in ({"admit>admit": 1}, {})


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"month": "2026-13"}, "month"),
        ({"month": "3026-01"}, "month"),
        ({"month": "0001-01"}, "month"),
        ({"month": "9999-12"}, "month"),
        ({"taken": ["load"]}, "taken"),
        ({"taken": []}, "taken"),
        ({"taken": ["weather"]}, "taken[0]"),
        ({"day": 1}, "day"),
    ],
)
def test_question_with_a_fault_starts_nothing(api: APIClient, question: dict[str, Any], field: str) -> None:
    cluster_update(cluster=small_cluster(), time_zone="Europe/Berlin")
    refused = api.post("/api/v1/clusters/little/replays", question, format="json")
    assert refused.status_code == 400 and [fault["path"] for fault in refused.json()["faults"]] == [field]
    assert not Job.objects.exists()


def test_request_without_a_verdict_is_not_replayed(decided: Any) -> None:
    make_query(decided.cluster, "new", 0.1)
    asked, _ = ADMISSION.request(cluster=decided.cluster, user=None, question=AdmissionQuestion(query="new"))
    with pytest.raises(Conflict):
        replay_request(request=asked, user=None)
