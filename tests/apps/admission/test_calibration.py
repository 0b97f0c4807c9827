"""Admission beside a live query whose past estimates were scored."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from apps.accounts.choices import Role
from apps.accounts.models import User
from apps.admission.choices import Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion, LatencyObjective
from apps.admission.selectors import admission_standing
from apps.estimates.calibration import calibrations_refresh, group_of
from apps.estimates.models import AccuracyObservation
from apps.estimates.selectors import query_estimate_latest
from apps.estimates.services import ESTIMATE
from apps.queries.models import Query
from apps.queries.services import query_create
from tests.apps.estimates.runs import NOW, SPREAD, make_runs
from tests.apps.measurements.live import OPERATORS, body, live_query, make_live_cluster
from tests.apps.policies.documents import set_policy
from tests.apps.small_cluster import run_jobs, user

pytestmark = [pytest.mark.django_db, pytest.mark.moment]
_BOUNDS = itertools.count(10.0)  # another question each time: the same one would get the same answer


@pytest.fixture
def query() -> Query:
    """Live, estimated, and with a draft beside it that would share the stream processor."""
    cluster = make_live_cluster()
    query = live_query(cluster).query
    query_create(cluster=cluster, name="draft", body=body(), objective={"statistic": "worst", "bound_s": 10.0})
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    return query


@pytest.fixture
def admitter() -> User:
    return user(Role.ADMITTER)


def previewed(query: Query, admitter: User) -> AdmissionRequest:
    request, _ = ADMISSION.request(
        cluster=query.cluster,
        user=admitter,
        question=AdmissionQuestion(
            query="draft",
            objective=LatencyObjective("worst", next(_BOUNDS)),
            placement={operator["id"]: "stream" for operator in OPERATORS},
        ),
    )
    run_jobs()
    request.refresh_from_db()
    return request


def scored(query: Query, spread: float = SPREAD, **fields: Any) -> None:
    """Replace the query's runs by 60 others."""
    AccuracyObservation.objects.all().delete()
    estimate = query_estimate_latest(query)
    make_runs(query, 60, spread=spread, evidence=estimate.answer.evidence, **fields)
    calibrations_refresh({group_of(row) for row in AccuracyObservation.objects.all()}, now=NOW)


def test_preview_takes_the_factors_of_what_runs(query: Query, admitter: User) -> None:
    plain = previewed(query, admitter)
    assert plain.verdict == Verdict.ADMIT
    scored(query, 4 * SPREAD, covered=True)
    widened = previewed(query, admitter)
    before, after = (
        next(effect for effect in request.result["effects"] if effect["query"] == "errors")
        for request in (plain, widened)
    )
    assert before["widening"] is None and after["widening"]["runs"] == 60 and after["widening"]["factor"] > 2.0
    assert after["high_s"] > before["high_s"] == after["widening"]["stated_high_s"]
    own = next(effect for effect in widened.result["effects"] if effect["is_candidate"])
    assert own["widening"] is None
    assert admission_standing(plain).can_apply, "factors that move make no preview stale"


def test_lost_trust_is_for_a_person_and_makes_a_preview_stale(query: Query, admitter: User) -> None:
    trusting = previewed(query, admitter)
    scored(query, covered=False)
    assert not admission_standing(trusting).can_apply
    assert "the trust in estimates of running queries" in admission_standing(trusting).changes
    request = previewed(query, admitter)
    assert request.verdict == Verdict.REVIEW
    (reason,) = (reason for reason in request.result["reasons"] if reason["code"] == "trust_lost")
    assert reason["message"].startswith("Estimates of errors are not to be trusted: 0 of its last 40 intervals held")
    assert admission_standing(request).changes == ()
    scored(query, covered=True)
    assert not admission_standing(request).can_apply


def test_cluster_may_leave_lost_trust_to_its_admitters(query: Query, admitter: User) -> None:
    scored(query, covered=False)
    set_policy(query.cluster, evidence={"untrusted": "admit"})
    request = previewed(query, admitter)
    assert request.verdict == Verdict.ADMIT
    assert ("trust_lost", "info") in [(reason["code"], reason["severity"]) for reason in request.result["reasons"]]
