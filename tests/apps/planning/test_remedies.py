"""Remedies of running queries: found by a job, kept with the cluster's state, previewed, over REST and in mails."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.db.models import QuerySet
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.grants import grant_give
from apps.accounts.models import User
from apps.accounts.services import token_create
from apps.accounts.teams import team_named
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import JobKind
from apps.planning.models import Forecast, PlacementRun, WhatIf
from apps.planning.remedies import placement_limits, remedies_by_query, remedies_latest, remedies_request
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


def test_members_of_a_team_see_others_in_sums_and_what_to_ask_an_operator_for() -> None:
    cluster = small_cluster()
    team, canary = team_named("bids"), "zqcanaryzqzq"
    start_query(cluster, canary, 0.5, "a", bound_s=1000.0)
    start_query(cluster, f"{canary}-b", 0.9, "b", bound_s=2.0)
    late = start_query(cluster, "late", 0.45, "a", bound_s=0.015)
    QuerySet(Query).filter(pk=late.pk).update(team=team, priority=5)
    member = User.objects.create_user("member")
    grant_give(user=member, role="operator", team=team)
    client, page = APIClient(), Client()
    _, secret = token_create(user=member, name="t", scopes=sorted(member.scopes))
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    page.force_login(member)
    path = f"/api/v1/queries/{late.pk}/remedies"
    asked = client.post(path, {}, format="json")
    assert asked.status_code == 202 and all(job.error is None for job in run_jobs())
    again, shown = client.post(path, {}, format="json"), client.get(path)
    assert again.json()["state"] == "succeeded" and again.json()["result"] is None
    found, read = shown.json(), page.get("/c/little/queries/late/remedies/").content.decode()
    whole = remedies_latest(late)
    assert whole is not None and canary in str(whole.answer.to_dict()), "others are in it"
    assert not any(canary in text for text in (again.content.decode(), shown.content.decode(), read))
    kinds = {row["kind"]: (row, part) for row, part in zip(found["answer"]["remedies"], found["parts"], strict=True)}
    assert {"stop", "objective"} <= kinds.keys()
    stop, part = kinds["stop"]
    assert stop["title"] == "Stop 1 query of other teams for now" and part["others"] == 1
    assert part["request"] in html.unescape(read) and part["request"].endswith(f"{stop['title']}.")
    assert kinds["objective"][1]["request"] == "" and "Edit objective" in read and "Preview" not in read
    refused = client.post(f"{path}/preview", {"remedy": stop["id"]}, format="json")
    assert refused.status_code == 403 and part["request"] in refused.json()["detail"]
    assert page.post("/c/little/queries/late/remedies/preview/", {"remedy": stop["id"]}).status_code in {403, 404}


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
