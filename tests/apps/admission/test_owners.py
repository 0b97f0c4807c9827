"""Admitters of a team alone apply decisions that leave the queries of others be, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import QuerySet
from rest_framework.test import APIClient

from apps.accounts.grants import grant_give
from apps.accounts.models import User
from apps.accounts.services import token_create
from apps.accounts.teams import team_named
from apps.admission.choices import AdmissionState
from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.core.errors import Forbidden
from apps.queries.models import Query
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db

_MOVE = {"kind": "move", "operator": "calm/work", "node": "b", "core": 0}


@pytest.fixture
def asked() -> AdmissionRequest:
    """A preview that passes, on a query of the team `bids`; `calm` is nobody's."""
    cluster = small_cluster()
    start_query(cluster, "calm", 0.4, "a")
    make_query(cluster, "own", 0.2)
    QuerySet(Query).filter(name="own").update(team=team_named("bids"))
    request, _ = ADMISSION.request(cluster=cluster, user=user(), question=AdmissionQuestion(query="own"))
    run_jobs()
    request.refresh_from_db()
    assert request.result
    return request


def _client(request: AdmissionRequest, *, sees_all: bool) -> APIClient:
    """Of an admitter of the team."""
    decider = User.objects.create_user(f"decider-{sees_all}")
    grant_give(user=decider, role="admitter", team=team_named("bids"))
    if sees_all:
        grant_give(user=decider, role="viewer", cluster=request.cluster)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token_create(user=decider, name='t', scopes=['read', 'admit'])[1]}")
    return client


@pytest.mark.parametrize("sees_all", [True, False])
def test_what_moves_others_takes_the_cluster(asked: AdmissionRequest, sees_all: bool) -> None:
    result: dict[str, Any] = {**(asked.result or {}), "changes": [_MOVE]}
    AdmissionRequest.objects.filter(pk=asked.pk).update(result=result)
    client, path = _client(asked, sees_all=sees_all), f"/api/v1/admissions/{asked.pk}"
    standing = client.get(path).json()["standing"]
    assert not standing["can_apply"] and "1 query of other teams" in standing["why_not"]
    refused = client.post(f"{path}/apply")
    assert (refused.status_code, refused.json()["code"]) == (403, "owners")
    assert ("(calm)" in refused.json()["detail"]) == sees_all
    assert "on the cluster little" in refused.json()["detail"]
    assert Query.objects.get(name="own").state == "draft"


@pytest.mark.parametrize("sees_all", [True, False])
def test_what_leaves_others_be_is_applied(asked: AdmissionRequest, sees_all: bool) -> None:
    applied = _client(asked, sees_all=sees_all).post(f"/api/v1/admissions/{asked.pk}/apply")
    assert (applied.status_code, applied.json()["state"]) == (200, "applied"), applied.content
    assert Query.objects.get(name="own").state == "running"


def test_an_override_that_others_would_pay_for_takes_the_cluster(asked: AdmissionRequest) -> None:
    effects = [{**row, "after_state": "breached"} for row in (asked.result or {})["effects"]]
    result = {**(asked.result or {}), "effects": effects}
    AdmissionRequest.objects.filter(pk=asked.pk).update(verdict="reject", result=result)
    client, path = _client(asked, sees_all=True), f"/api/v1/admissions/{asked.pk}"
    assert not client.get(path).json()["standing"]["can_override"]
    refused = client.post(f"{path}/override", {"reason": "It is worth it."}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "owners"), refused.content


def test_a_job_does_later_only_what_its_asker_may(asked: AdmissionRequest) -> None:
    """Out of a request there is no caller: the reach of the person counts."""
    QuerySet(AdmissionRequest).filter(pk=asked.pk).update(result={**(asked.result or {}), "changes": [_MOVE]})
    decider = User.objects.create_user("decider")
    grant_give(user=decider, role="admitter", team=team_named("bids"))
    with pytest.raises(Forbidden, match="other teams"):
        admission_apply(request=asked, user=decider)
    QuerySet(Query).filter(name="calm").update(team=team_named("bids"))
    again, _ = ADMISSION.request(parent=asked, user=user(name="again"))
    run_jobs()
    again.refresh_from_db()
    QuerySet(AdmissionRequest).filter(pk=again.pk).update(result={**(again.result or {}), "changes": [_MOVE]})
    assert admission_apply(request=again, user=decider).state == AdmissionState.APPLIED
