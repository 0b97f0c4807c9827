"""Scenarios and what-ifs: kept, asked once, overtaken, answered on a snapshot that is remembered."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_create, node_create
from apps.jobs.models import JobState
from apps.planning import sweeps
from apps.planning.choices import Find, RunState
from apps.planning.models import Scenario, WhatIf
from apps.planning.scenarios import scenario_create, scenario_delete, scenario_update
from apps.planning.what_ifs import WHAT_IF, scenario_answers, what_if_changes
from apps.queries.snapshots.cluster import cluster_snapshot
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db

MORE = [{"scale_source": "*", "by": 1.5}, {"resize_pool": "pool", "nodes": 3}]


@pytest.fixture
def cluster() -> Cluster:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "one", 0.6, "a")
    small_cluster.start_query(cluster, "two", 0.6, "b")
    return cluster


def ask(cluster: Cluster, **asked: Any) -> WhatIf:
    row, _ = WHAT_IF.request(cluster=cluster, user=None, **asked)
    small_cluster.run_jobs()
    row.refresh_from_db()
    return row


def test_a_scenario_is_validated_created_and_deleted(cluster: Cluster) -> None:
    scenario = scenario_create(cluster=cluster, name="Friday", user=None, changes=MORE)
    assert scenario.changes == MORE
    with pytest.raises(Conflict, match="Friday"):
        scenario_create(cluster=cluster, name="Friday", user=None)
    with pytest.raises(Malformed) as refused:
        scenario_update(scenario=scenario, changes=[{"lose_node": "zz"}, {"scale_source": "nope", "by": -1}])
    assert {fault.path for fault in refused.value.faults} == {"changes[0].lose_node", "changes[1].by"}
    scenario.refresh_from_db()
    assert scenario.changes == MORE
    with pytest.raises(Malformed):
        scenario_create(cluster=cluster, name="", user=None)
    scenario_delete(scenario=scenario)
    assert not Scenario.objects.exists()


def test_an_answer_of_compared_scenarios_becomes_stale_when_the_cluster_changes(cluster: Cluster) -> None:
    friday = scenario_create(cluster=cluster, name="Friday", user=None, changes=MORE, place="search")
    row = ask(cluster, scenarios=[{"name": "Now", "changes": [], "place": "keep"}, friday.pk])
    assert row.state == RunState.ANSWERED
    answer = row.result
    assert answer is not None
    assert [scenario["name"] for scenario in answer["scenarios"]] == ["Now", "Friday"]
    assert [scenario["node_count"] for scenario in answer["scenarios"]] == [2, 3]
    assert answer["scenarios"][0]["kept"] == ["one", "two"]
    assert row.snapshot == cluster_snapshot(cluster).digest
    assert what_if_changes(row) is None
    assert scenario_answers(cluster)[friday.pk][0] == row
    node_create(pool=cluster.pools.get(), name="c")
    assert any("c" in change for change in what_if_changes(row) or ())
    assert row.result == answer
    scenario_update(scenario=friday, changes=MORE[:1])
    assert friday.pk not in scenario_answers(cluster)  # the answer speaks of other changes


def test_a_repeated_question_reuses_the_answer_until_the_cluster_changes(cluster: Cluster) -> None:
    first = ask(cluster, find=Find.SURVIVAL)
    again, job = WHAT_IF.request(cluster=cluster, user=None, find=Find.SURVIVAL)
    assert (again.pk, job) == (first.pk, first.job)
    node_create(pool=cluster.pools.get(), name="c")
    other, _ = WHAT_IF.request(cluster=cluster, user=None, find=Find.SURVIVAL)
    assert other.pk != first.pk


def test_a_new_question_of_the_bench_cancels_the_previous_one(cluster: Cluster) -> None:
    user = small_cluster.user()
    rows = []
    for by in (1.1, 1.2):
        scenario = {"name": "On the bench", "changes": [{"scale_source": "*", "by": by}], "place": "search"}
        row, _ = WHAT_IF.request(cluster=cluster, user=user, scenarios=[scenario], from_bench=True)
        rows.append(row)
    rows[0].refresh_from_db()
    assert rows[0].state == RunState.CANCELLED
    assert rows[0].job is not None
    assert rows[0].job.state == JobState.CANCELLED
    small_cluster.run_jobs()
    rows[1].refresh_from_db()
    assert rows[1].state == RunState.ANSWERED
    WhatIf.objects.update(created_at="2020-01-01T00:00:00Z")
    kept = ask(cluster, find=Find.GROWTH)
    assert WHAT_IF.purge() == 2
    assert WhatIf.objects.get() == kept


def test_invalid_questions_are_refused_with_every_fault(cluster: Cluster) -> None:
    with pytest.raises(Malformed) as refused:
        WHAT_IF.request(
            cluster=cluster, user=None, scenarios=[7, {"name": "x", "place": "away"}, {"changes": [{"lose_node": "q"}]}]
        )
    paths = {fault.path for fault in refused.value.faults}
    assert paths == {"scenarios[0]", "scenarios[1].place", "scenarios[2].changes[0].lose_node"}
    with pytest.raises(Malformed) as refused:
        WHAT_IF.request(cluster=cluster, user=None, find=Find.CHEAPEST_MIX, options={"types": [{"name": "x"}], "no": 1})
    assert {fault.path for fault in refused.value.faults} >= {"options.types[0].price_per_hour", "options.no"}
    with pytest.raises(Impossible, match="no nodes"):
        WHAT_IF.request(cluster=cluster_create(slug="bare", name="Bare"), user=None)


def test_the_smallest_pool_and_cheapest_mix_come_with_a_proof(cluster: Cluster) -> None:
    pool = ask(cluster, find=Find.SMALLEST_POOL, scenarios=[{"name": "More", "changes": MORE[:1]}]).result
    assert pool is not None
    assert (pool["nodes"], pool["present"]) == (3, 2)  # two fit, and either may be lost
    assert pool["proof"]["nodes"] == 2
    mix = {"types": [{"name": "small", "capacity_cps": 1000.0, "cores": 1, "price_per_hour": 0.5, "max": 4}]}
    cheapest = ask(cluster, find=Find.CHEAPEST_MIX, options=mix).result
    assert cheapest is not None
    assert cheapest["counts"] == {"small": 1}
    front = ask(cluster, find=Find.PARETO, options=mix).result
    assert front is not None
    assert front["points"]


def post(api: APIClient, path: str, body: Any) -> Any:
    return api.post(f"/api/v1/{path}", body, format="json")


def test_a_scenario_is_created_changed_and_deleted_over_rest(api: APIClient, cluster: Cluster) -> None:
    body = {"cluster": "little", "name": "Friday", "changes": [{"scale_source": "*", "by": 1.5}]}
    created = post(api, "scenarios", body)
    assert (created.status_code, created.json()["place"], created.json()["created_by"]) == (201, "fill", "a-operator")
    path = created["Location"]
    assert post(api, "scenarios", body).status_code == 409
    etag = api.get(path)["ETag"]
    changed = api.patch(path, {"name": "Saturday"}, format="json", headers={"If-Match": etag})
    assert changed.json()["name"] == "Saturday"
    refused = api.patch(path, {"changes": [{"lose_node": "z"}]}, format="json")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (400, "changes[0].lose_node")
    assert [
        row["name"] for row in api.get("/api/v1/scenarios?cluster=little&name__contains=sat").json()["results"]
    ] == ["Saturday"]
    assert api.delete(path).status_code == 204


def test_a_what_if_is_requested_followed_and_read_over_rest(api: APIClient, cluster: Cluster) -> None:
    body = {"cluster": "little", "changes": [{"lose_node": "b"}], "options": {"intervals": False}}
    asked = post(api, "what-ifs", body)
    assert (asked.status_code, asked["Location"]) == (202, f"/api/v1/jobs/{asked.json()['id']}")
    small_cluster.run_jobs()
    answer = api.get(asked.json()["result_api_url"]).json()
    assert (answer["state"], answer["stale"]) == ("answered", False)
    part = answer["result"]["scenarios"][0]
    assert part["node_count"] == 1
    assert part["broken"] == ["one", "two"]  # 1.2 of a node's capacity
    again = post(api, "what-ifs", body)
    assert (again.status_code, again.json()["id"]) == (200, answer["id"])
    node_create(pool=cluster.pools.get(), name="c")
    stale = api.get(asked.json()["result_api_url"]).json()
    assert stale["stale"]
    assert stale["changes"]
    listed = api.get("/api/v1/what-ifs?cluster=little&find=compare&state=answered").json()["results"]
    assert [row["id"] for row in listed] == [answer["id"]]
    assert "result" not in listed[0]


def test_sweep_answers_at_once_or_refuses_a_large_cluster(
    api: APIClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"cluster": "little", "options": {"factor": 1.5, "sizes": [1, 2, 3]}}
    answer = post(api, "what-ifs/sweep", body)
    assert answer.status_code == 200
    assert (answer.json()["now"], answer.json()["smallest"]) == (2, 3)
    assert [size["state"] for size in answer.json()["sizes"]] == ["breached", "at_risk", "holds"]
    assert answer.json()["sizes"][0]["cost_per_hour"] is None
    refused = post(api, "what-ifs/sweep", {"cluster": "little", "options": {"sources": {"nope": 2}, "pool": "x"}})
    assert {fault["path"] for fault in refused.json()["faults"]} == {"options.sources.nope", "options.pool"}
    monkeypatch.setattr(sweeps, "is_quick", lambda deployment: False)
    large = post(api, "what-ifs/sweep", body)
    assert (large.status_code, large.json()["code"]) == (422, "too_large")
    asked = post(api, "what-ifs", {**body, "find": "sweep"})
    small_cluster.run_jobs()
    assert [size["nodes"] for size in api.get(asked.json()["result_api_url"]).json()["result"]["sizes"]] == [1, 2, 3]


def test_unreadable_what_ifs_are_refused_with_the_path(api: APIClient, cluster: Cluster) -> None:
    both = post(api, "what-ifs", {"cluster": "little", "changes": [], "scenarios": []})
    assert both.json()["faults"][0]["path"] == "changes"
    assert post(api, "what-ifs", {"cluster": "little", "find": "gold"}).status_code == 400
    assert post(api, "what-ifs", {"cluster": "nowhere"}).status_code == 400
    options = post(api, "what-ifs", {"cluster": "little", "find": "growth", "options": {"most": 0.5}})
    assert options.json()["faults"][0]["path"] == "options.most"
    huge = post(api, "what-ifs", {"cluster": "little", "scenarios": [2**64]})
    assert huge.json()["faults"][0]["path"] == "scenarios[0]"
