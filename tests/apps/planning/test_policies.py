"""Policies that agents say are in force: every answer that rests on a snapshot of the cluster takes them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.planning.choices import Find
from apps.planning.forecast_findings import forecast_latest
from apps.planning.forecasts import FORECAST
from apps.planning.load_histories import history_create_from_generator
from apps.planning.models import WhatIf
from apps.planning.placement_search import PLACEMENT
from apps.planning.plans import PLANS, comparison_latest
from apps.planning.what_ifs import WHAT_IF
from apps.queries.documents import document_export, document_import
from apps.queries.services import query_create, query_start
from apps.queries.snapshots.cluster import cluster_parts, cluster_snapshot
from apps.queries.snapshots.contents import snapshot_changes
from apps.telemetry.models import Agent
from engine.document.deployment import Deployment
from tests.apps import small_cluster
from tests.apps.planning.plan_examples import plan

pytestmark = pytest.mark.django_db

KLINK = "runs Klink: how much higher it ends there is not known"


@pytest.fixture
def cluster() -> Cluster:
    """Two queries share the only node, with room to spare by stimulus time."""
    cluster = small_cluster.small_cluster(nodes=("a",))
    small_cluster.start_query(cluster, "one", 0.3, "a", bound_s=5.0)
    small_cluster.start_query(cluster, "two", 0.3, "a", bound_s=5.0)
    return cluster


def say(cluster: Cluster, policy: str) -> None:
    """An agent of every node says which policy it runs."""
    for node in cluster.nodes.all():
        Agent.objects.update_or_create(
            cluster=cluster, name=node.name, defaults={"heartbeat": {"schedule": {"policy": policy}}}
        )


def answered(cluster: Cluster, find: Find, **asked: Any) -> WhatIf:
    row, _ = WHAT_IF.request(cluster=cluster, user=None, find=find, **asked)
    jobs = small_cluster.run_jobs()
    assert not jobs or not jobs[-1].error, jobs[-1].error
    row.refresh_from_db()
    return row


def shown(client: Client, path: str) -> str:
    client.force_login(small_cluster.user())
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_snapshot_names_the_policies_and_changes_with_them(cluster: Cluster) -> None:
    before = cluster_snapshot(cluster)
    say(cluster, "stimulus-time")
    assert cluster_snapshot(cluster).digest == before.digest
    say(cluster, "klink")
    after = cluster_snapshot(cluster)
    assert after.deployment.other_policies == {"a": "klink"} and after.digest != before.digest
    assert snapshot_changes(before.parts, cluster_parts(cluster)) == ["node a: scheduling policy changed"]
    say(cluster, "fcfs")
    changed = snapshot_changes(after.parts, cluster_parts(cluster))
    assert changed == ["node a: scheduling policy changed from klink to fcfs"]


def test_node_that_is_still_to_come_runs_the_loosest_policy_there_is(cluster: Cluster) -> None:
    say(cluster, "fcfs")
    deployment = cluster_snapshot(cluster).deployment
    assert deployment.scheduling == "fcfs" and [node.scheduling for node in deployment.nodes] == ["fcfs"]


def test_exported_document_names_the_policies_and_comes_back_with_a_note(cluster: Cluster) -> None:
    say(cluster, "klink")
    document = document_export(cluster)
    assert Deployment.parse(document).other_policies == {"a": "klink"}
    done = document_import(cluster=cluster, document=document, dry_run=True)
    assert "node a: the document has klink; here its agents say which policy it runs" in done.notes


def test_what_if_says_holds_only_by_stimulus_time(cluster: Cluster, client: Client, api: APIClient) -> None:
    plain = answered(cluster, Find.COMPARE).result["scenarios"][0]
    assert plain["kept"] == ["one", "two"] and "scheduling" not in plain["queries"]["one"]
    say(cluster, "klink")
    row = answered(cluster, Find.COMPARE)
    part = api.get(f"/api/v1/what-ifs/{row.pk}").json()["result"]["scenarios"][0]
    assert (part["kept"], part["at_risk"]) == ([], ["one", "two"])
    assert KLINK in part["queries"]["one"]["scheduling"]["lacking"]
    assert part["queries"]["one"]["probability"] is None
    assert KLINK in shown(client, f"/c/{cluster.slug}/provisioning/what-ifs/{row.pk}/")


def test_known_factor_widens_a_what_if_and_lowers_its_probability(cluster: Cluster) -> None:
    plain = answered(cluster, Find.COMPARE).result["scenarios"][0]["queries"]["one"]
    say(cluster, "fcfs")
    fifo = answered(cluster, Find.COMPARE).result["scenarios"][0]["queries"]["one"]
    assert fifo["scheduling"]["high_s"] > plain["high_s"] == fifo["high_s"]
    assert fifo["state"] == "holds"  # the widened end is within 5 s
    assert fifo["probability"]["share"] <= plain["probability"]["share"]


@pytest.mark.parametrize("find", [Find.SMALLEST_POOL, Find.SURVIVAL, Find.GROWTH])
def test_provisioning_answers_carry_the_gap(cluster: Cluster, client: Client, find: Find) -> None:
    say(cluster, "klink")
    row = answered(cluster, find, options={"lose_one": False, "max_nodes": 1} if find == Find.SMALLEST_POOL else {})
    assert set(row.result["at_risk"]) == {"one", "two"}
    assert all(entry["state"] == "at_risk" for entry in row.result["objectives"])
    assert KLINK in " ".join([*row.result["notes"], *row.result["assumed"]])
    if find == Find.SMALLEST_POOL:
        assert row.result["nodes"] == 1 and row.result["reservation"] == ", all of them by stimulus time only"
    assert KLINK in shown(client, f"/c/{cluster.slug}/provisioning/what-ifs/{row.pk}/")


def test_quick_sweep_is_unproven_under_klink_and_stricter_under_a_known_factor(
    cluster: Cluster, api: APIClient
) -> None:
    asked = {"cluster": cluster.slug, "options": {"lose_one": False, "sizes": [1]}}

    def swept() -> dict[str, Any]:
        answer = api.post("/api/v1/what-ifs/sweep", asked, format="json")
        assert answer.status_code == 200, answer.json()
        return answer.json()

    plain = swept()
    assert (plain["sizes"][0]["state"], plain["lacking"]) == ("holds", "")
    say(cluster, "klink")
    klink = swept()
    assert klink["sizes"][0]["state"] == "unknown" and KLINK in klink["lacking"] and KLINK in klink["basis"]
    say(cluster, "fcfs")
    fifo = swept()
    assert fifo["sizes"][0]["state"] == "holds" and "1.63 times as high" in fifo["lacking"]


def test_placement_search_says_what_its_states_lack(cluster: Cluster, client: Client, api: APIClient) -> None:
    say(cluster, "klink")
    run, _ = PLACEMENT.request(cluster=cluster, user=None, budget_s=0.2)
    small_cluster.run_jobs()
    proposal = api.get(f"/api/v1/placements/{run.pk}").json()["proposal"]
    rows = {row["query"]: row for row in proposal["queries"]}
    assert rows["one"]["after_state"] == "at_risk" and KLINK in rows["one"]["scheduling"]["lacking"]
    assert any(KLINK in message for message in proposal["messages"])
    assert KLINK in shown(client, f"/c/{cluster.slug}/placement/{run.pk}/")


def test_plan_comparison_says_what_its_estimates_lack(cluster: Cluster, client: Client) -> None:
    say(cluster, "klink")
    query = query_create(cluster=cluster, name="q", body=plan(), objective={"statistic": "worst", "bound_s": 20.0})
    query_start(version=query.versions.get(), placement={"parse": "a", "hot": "a"})
    query.refresh_from_db()
    PLANS.request(query=query)
    small_cluster.run_jobs()
    comparison = comparison_latest(query)
    assert comparison is not None
    ranked = comparison.result["plans"][0]
    assert KLINK in ranked["scheduling"]["lacking"] and ranked["state"] != "holds"
    assert KLINK in shown(client, f"/c/{cluster.slug}/queries/q/plans/")


def test_forecast_leaves_to_a_person_what_klink_may_end_at(cluster: Cluster, client: Client) -> None:
    say(cluster, "klink")
    spec = {"peak_rate_eps": 82.0, "weeks": 4, "growth_per_week": 0.0, "noise": 0.02}
    history_create_from_generator(cluster=cluster, source_id="clicks", spec=spec)
    FORECAST.request(cluster=cluster, horizon_days=14)
    small_cluster.run_jobs()
    row = forecast_latest(cluster)
    assert row is not None
    one = next(entry for entry in row.result["queries"] if entry["query"] == "one")
    assert one["is_for_person"] and KLINK in one["lacking"]
    page = shown(client, f"/c/{cluster.slug}/provisioning/forecast/")
    assert KLINK in page and "Every objective holds" not in page
