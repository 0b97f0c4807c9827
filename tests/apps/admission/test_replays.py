"""Replays: what a decision would be today, and what changed most since."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from apps.accounts.choices import Role
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.admission.replays import DecisionReplay, MonthReplay, month_replay_request, replay_latest, replay_request
from apps.core.errors import Conflict
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
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


def test_month_counts_the_last_decision_of_each_version(decided: AdmissionRequest) -> None:
    make_query(decided.cluster, "small", 0.05)
    for _ in range(2):
        ADMISSION.request(cluster=decided.cluster, user=None, question=AdmissionQuestion(query="small"))
        run_jobs()
    more_clicks(decided.cluster, 2.0)
    job = month_replay_request(cluster=decided.cluster, user=None)
    run_jobs()
    job.refresh_from_db()
    month = MonthReplay.parse(job.result)
    assert (month.decisions, month.replayed, month.left_out) == (2, 2, 0)
    assert month.listed[-1].query == "clicks-1" and month.verdicts["admit>reject"] == month.otherwise


def test_request_without_a_verdict_is_not_replayed(decided: Any) -> None:
    make_query(decided.cluster, "new", 0.1)
    asked, _ = ADMISSION.request(cluster=decided.cluster, user=None, question=AdmissionQuestion(query="new"))
    with pytest.raises(Conflict):
        replay_request(request=asked, user=None)
