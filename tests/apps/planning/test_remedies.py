"""Remedies of running queries: found by a job, kept with the cluster's state, previewed, over REST and in mails."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import JobKind
from apps.planning.models import Forecast, PlacementRun, WhatIf
from apps.planning.remedies import placement_limits, remedies_by_query, remedies_request
from apps.queries.models import Query
from engine.document.elements import Replica
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db


@pytest.fixture
def late(db: None) -> Query:
    """`late` and `other` have more to do on node a than it can; b is free."""
    cluster = small_cluster()
    start_query(cluster, "other", 0.6, "a", bound_s=1000.0)
    return start_query(cluster, "late", 0.6, "a")


def remedies(api: APIClient, query: Query) -> Any:
    assert api.post(f"/api/v1/queries/{query.pk}/remedies", {}, format="json").status_code == 202
    assert all(job.error is None for job in run_jobs())
    return api.get(f"/api/v1/queries/{query.pk}/remedies").json()


def test_remedies_are_found_by_a_job_once_for_a_state_of_the_cluster(late: Query, api: APIClient) -> None:
    assert api.get(f"/api/v1/queries/{late.pk}/remedies").status_code == 404
    found = remedies(api, late)
    first = found["answer"]["remedies"][0]
    assert (first["kind"], first["state"], found["is_stale"], found["at_load"]) == ("move", "holds", False, None)
    assert [replica["node"] for replicas in first["placement"].values() for replica in replicas] == ["b"]
    assert first["effects"][0]["query"] == "late" and not first["breaks"]
    job = remedies_request(query=late)
    assert job.is_finished, "nothing has changed: the same remedies"
    assert remedies_by_query([late]).keys() == {late.pk}


def test_remedies_of_another_state_are_stale_and_not_previewed(late: Query, api: APIClient) -> None:
    remedies(api, late)
    node_update(node=late.cluster.nodes.get(name="b"), capacity_cps=500.0)
    assert api.get(f"/api/v1/queries/{late.pk}/remedies").json()["is_stale"] is True
    assert remedies_by_query([late]) == {}
    refused = api.post(f"/api/v1/queries/{late.pk}/remedies/preview", {"remedy": "move-1"}, format="json")
    assert refused.status_code == 409
    assert not remedies_request(query=late).is_finished


def test_new_forecast_asks_anew_of_a_query_that_held(late: Query) -> None:
    holding = start_query(late.cluster, "holding", 0.1, "b")
    remedies_request(query=holding)
    run_jobs()
    assert remedies_request(query=holding).is_finished
    Forecast.objects.create(
        cluster=late.cluster, bucket_s=3600, starts_at=timezone.now(), horizon=24, duration_s=1.0, result={}, series={}
    )
    assert not remedies_request(query=holding).is_finished


def test_move_is_previewed_as_a_placement_that_makes_that_move_alone(late: Query, api: APIClient) -> None:
    move = remedies(api, late)["answer"]["remedies"][0]
    path = f"/api/v1/queries/{late.pk}/remedies/preview"
    found = api.post(path, {"remedy": move["id"]}, format="json").json()
    run_jobs()
    run = PlacementRun.objects.get()
    assert found["address"] == f"/api/v1/placements/{run.pk}"
    assert {row.operator: [part["node"] for part in row.after] for row in run.moves.all()} == {
        name: [replica["node"] for replica in replicas] for name, replicas in move["placement"].items()
    }


def test_parts_on_several_nodes_are_previewed_on_these_alone() -> None:
    placement = {"q/one": [Replica("a")], "q/split": [Replica("a", 0, 0.5), Replica("c", 0, 0.5)]}
    limits = placement_limits(placement, ["a", "b", "c", "d"])
    assert limits == {"pin": {"q/one": "a"}, "forbid": {"q/split": ["b", "d"]}, "max_moves": 3}


def test_change_is_previewed_as_a_scenario_beside_what_is(late: Query, api: APIClient) -> None:
    found = remedies(api, late)["answer"]["remedies"]
    share = next(remedy for remedy in found if remedy["kind"] == "scale_rate")
    api.post(f"/api/v1/queries/{late.pk}/remedies/preview", {"remedy": share["id"]}, format="json")
    run_jobs()
    asked = WhatIf.objects.get()
    assert asked.state == "answered" and [entry["changes"] for entry in asked.scenarios] == [[], share["changes"]]


def test_unknown_remedy_is_refused_with_those_there_are(late: Query, api: APIClient) -> None:
    remedies(api, late)
    refused = api.post(f"/api/v1/queries/{late.pk}/remedies/preview", {"remedy": "magic"}, format="json")
    assert refused.status_code == 400 and "allowed: move-1" in refused.json()["faults"][0]["message"]


@pytest.mark.parametrize(("name", "why"), [("idle", "objective"), ("draft", "draft")])
def test_query_without_a_promise_or_that_does_not_run_needs_none(
    late: Query, api: APIClient, name: str, why: str
) -> None:
    query = start_query(late.cluster, name, 0.1, "b", bound_s=None)
    if name == "draft":
        query.state = "draft"
        query.save()
    refused = api.post(f"/api/v1/queries/{query.pk}/remedies", {}, format="json")
    assert refused.status_code == 422 and why in refused.json()["detail"]


def test_draining_node_takes_nothing(late: Query, api: APIClient) -> None:
    node_update(node=late.cluster.nodes.get(name="b"), state="draining")
    found = remedies(api, late)["answer"]
    assert "b" not in {r["node"] for row in found["remedies"] for rs in row["placement"].values() for r in rs}
    assert JobKind.REMEDIES in {job.kind for job in Cluster.objects.get().jobs.all()}
