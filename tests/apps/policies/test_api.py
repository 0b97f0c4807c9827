"""Policies over REST: all faults at once, versions, nothing new for the same, and what last month would have been."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.accounts.teams import team_create
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.fleet.models import Cluster
from apps.policies.models import PolicyVersion
from apps.policies.selectors import policy_of
from apps.queries.services import query_update
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db
PATH = "/api/v1/clusters/little/policy"


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster()


def put(api: APIClient, **asked: Any) -> Any:
    return api.put(PATH, asked, format="json")


def test_policy_is_applied_once_and_the_same_makes_no_version(api_of: Any, cluster: Cluster) -> None:
    api = api_of("admin")
    assert api.get(PATH).json()["version"] == 0
    text = "margin: 0.1\nfreezes:\n- name: weekend\n  every: {days: [sat, sun], at: '00:00', hours: 24}\n"
    first = put(api, text=text, note="quiet weekends")
    assert (first.status_code, first.json()["version"], first.json()["is_new"]) == (200, 1, True)
    again = put(api, policy=first.json()["policy"])
    assert (again.json()["version"], again.json()["is_new"]) == (1, False)
    assert put(api, policy={}, base=0).json()["code"] == "policy_moved"
    second = put(api, policy={}, base=1)
    assert second.json()["version"] == 2
    listed = api.get(f"{PATH}/versions").json()["results"]
    assert [(row["version"], row["note"]) for row in listed] == [(2, ""), (1, "quiet weekends")]
    checked = api.post(f"{PATH}/check", {"policy": {"margin": 0.2}}, format="json").json()
    assert checked == {"base": 2, "differences": [{"path": "margin", "before": 0.0, "after": 0.2}]}


def test_every_fault_is_told_and_nothing_is_stored(api_of: Any, cluster: Cluster) -> None:
    team_create(name="payments")
    policy = {
        "margin": 3,
        "override": {"roles": ["admin"], "second_person": True},
        "teams": [{"team": "payment", "quotas": {"pools": [{"pool": "pol", "share": 0.5}]}}],
    }
    refused = put(api_of("admin"), policy=policy)
    assert refused.status_code == 400
    told = {fault["path"]: fault["message"] for fault in refused.json()["faults"]}
    assert set(told) == {"margin", "override.second_person", "teams[0].team", "teams[0].quotas.pools[0].pool"}
    assert "did you mean 'payments'?" in told["teams[0].team"]
    assert "only one active person" in told["override.second_person"]
    assert put(api_of("admin"), text="a: [").json()["faults"][0]["path"] == "text"
    assert put(api_of("admitter"), policy={}).status_code == 403
    assert not PolicyVersion.objects.exists()


def test_quota_stays_with_a_team_that_is_renamed(cluster: Cluster, api_of: Any) -> None:
    team = team_create(name="payments")
    put(api_of("admin"), policy={"teams": [{"team": "payments", "quotas": {"queries": {"nominal": 1}}}]})
    team.name = "billing"
    team.save()
    cluster.refresh_from_db()
    assert [entry.team for entry in policy_of(cluster).teams] == ["billing"]


def test_preview_tells_which_decisions_would_be_otherwise(api_of: Any, cluster: Cluster) -> None:
    start_query(cluster, "first", 0.1, "a")
    for name in ("second", "third"):
        query = make_query(cluster, name, 0.2)
        ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query=name))
    run_jobs()
    query_update(query=query, team="payments")
    ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query="third"))
    run_jobs()
    ask = lambda policy: api_of("viewer").post(f"{PATH}/preview", {"policy": policy}, format="json").json()  # noqa: E731
    same = ask({})
    assert (same["decisions"], same["replayed"], same["otherwise"], same["lacking"]) == (3, 3, 0, [])
    strict = ask({"evidence": {"assumed": "reject"}})
    assert strict["otherwise"] == 3
    assert {(row["then"], row["now"]) for row in strict["listed"]} == {("admit", "reject")}
    frozen = {"name": "now", "every": {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "at": "00:00",
                                       "hours": 24}, "teams": ["payments"]}  # fmt: skip
    assert [row["query"] for row in ask({"freezes": [frozen]})["listed"]] == ["third"]
    quotas = ask({"teams": [{"team": "payments", "quotas": {"cores": {"nominal": 0.1}}}]})
    assert (quotas["replayed"], quotas["otherwise"]) == (2, 0)
    assert quotas["lacking"] == ["1 decision: what its team used was not counted, since its policy had no quotas"]
