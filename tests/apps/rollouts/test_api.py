"""Configurations and rollouts over REST: who reads, who acts, and what is wrong by field."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from apps.rollouts.proposals import learned_receive
from apps.rollouts.services import policy_update
from tests.apps.rollouts.fleet import Behaviour, Fleet, fleet_of
from tests.apps.rollouts.learned_frames import frame_of, rows_of

pytestmark = pytest.mark.django_db

HERE = "/api/v1/clusters/eu-1"


@pytest.fixture
def fleet(db: None) -> Fleet:
    made = fleet_of().start()
    policy_update(cluster=made.cluster, automatic=False)
    return made


def test_config_is_created_started_and_rolled_back(fleet: Fleet, api: APIClient) -> None:
    body = {"settings": {"margin": 0.96}, "words": "a little more", "start": True}
    made = api.post(f"{HERE}/configs", body, format="json")
    assert made.status_code == 201
    assert made["Location"] == f"{HERE}/configs/1"
    shown = api.get(made["Location"]).json()
    assert (shown["name"], shown["state"], shown["author"]) == ("c-1", "rolling", "a-operator")
    assert shown["parts"][0] | {"document": None} == {
        "query": "s2s",
        "agent": "all agents",
        "changes": [["margin", "0.95", "0.96"]],
        "document": None,
    }
    rollout = api.get(f"{HERE}/rollouts/1").json()
    assert (rollout["state"], rollout["by"], len(rollout["members"])) == ("canary", "a-operator", 3)
    assert api.post(f"{HERE}/rollouts/1/pause").json()["state"] == "paused"
    assert api.post(f"{HERE}/rollouts/1/resume").json()["state"] == "canary"
    names = [member["agent"] for member in rollout["members"] if member["stage"] == 1]
    more = api.post(f"{HERE}/rollouts/1/canaries", {"agents": names[:1]}, format="json").json()
    assert sum(member["stage"] == 0 for member in more["members"]) == 2
    back = api.post(f"{HERE}/rollouts/1/roll-back", {"reason": "a mistake"}, format="json").json()
    assert (back["state"], back["back"], back["reasons"]) == ("rolling-back", "c-2", ["a mistake"])
    assert back["events"][-1]["words"] == "rolled back: a mistake"
    assert [row["name"] for row in api.get(f"{HERE}/configs?origin=rollback").json()["results"]] == ["c-2"]
    assert api.get(f"{HERE}/rollouts?state=rolling-back").json()["results"][0]["config"] == "c-1"


def test_check_stores_nothing(fleet: Fleet, api: APIClient) -> None:
    learned_receive([frame_of(fleet, [row for agent in fleet.agents for row in rows_of(agent)])])
    before = len(api.get(f"{HERE}/configs").json()["results"])
    found = api.post(f"{HERE}/configs/check", {"settings": {"method": "all-sp"}}, format="json").json()
    assert (found["health"], found["predicted_parts"]) == ("worse", 3)
    assert len(api.get(f"{HERE}/configs").json()["results"]) == before


def test_refused_config_is_started_by_force(fleet: Fleet, api: APIClient) -> None:
    learned_receive([frame_of(fleet, [row for agent in fleet.agents for row in rows_of(agent)])])
    made = api.post(f"{HERE}/configs", {"settings": {"method": "all-sp"}}, format="json").json()
    assert made["state"] == "refused"
    refused = api.post(f"{HERE}/configs/{made['number']}/start", {}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (409, "check_refused")
    assert refused.json()["faults"][0]["path"] == "force"
    fleet.behaviours[made["number"]] = Behaviour(bytes_per_record=86.0)
    forced = {"force": True, "canaries": ["a2"]}
    started = api.post(f"{HERE}/configs/{made['number']}/start", forced, format="json")
    assert started.status_code == 201
    canaries = [member["agent"] for member in started.json()["members"] if member["stage"] == 0]
    assert canaries == ["a2"]


def test_config_whose_start_is_refused_is_not_kept(fleet: Fleet, api: APIClient) -> None:
    learned_receive([frame_of(fleet, [row for agent in fleet.agents for row in rows_of(agent)])])
    before = len(api.get(f"{HERE}/configs").json()["results"])
    body = {"settings": {"method": "all-sp"}, "start": True}
    assert api.post(f"{HERE}/configs", body, format="json").json()["code"] == "check_refused"
    assert len(api.get(f"{HERE}/configs").json()["results"]) == before
    assert api.post(f"{HERE}/configs", {**body, "force": True}, format="json").json()["state"] == "rolling"


def test_faults_name_their_field(fleet: Fleet, api: APIClient) -> None:
    body = {"settings": {"margin": 2, "speed": 1}, "agents": ["a9"], "colour": "red"}
    unknown = api.post(f"{HERE}/configs", body, format="json").json()
    assert [fault["path"] for fault in unknown["faults"]] == ["colour"]
    body.pop("colour")
    told = api.post(f"{HERE}/configs", body, format="json")
    assert told.status_code == 400
    assert {fault["path"] for fault in told.json()["faults"]} == {"settings.margin", "settings.speed", "agents[0]"}
    assert api.get(f"{HERE}/configs/9").status_code == 404
    assert api.get(f"{HERE}/rollouts/9").status_code == 404
    assert api.get("/api/v1/clusters/nowhere/configs").status_code == 404


def test_policy_is_read_and_changed(fleet: Fleet, api: APIClient) -> None:
    read = api.get(f"{HERE}/rollout-policy")
    assert (read.json()["waves"], read.json()["automatic"]) == ([0.3, 1.0], False)
    changed = api.patch(f"{HERE}/rollout-policy", {"bytes_rel": 0.1}, format="json", HTTP_IF_MATCH=read["ETag"])
    assert (changed.status_code, changed.json()["bytes_rel"]) == (200, 0.1)
    stale = api.patch(f"{HERE}/rollout-policy", {"bytes_rel": 0.2}, format="json", HTTP_IF_MATCH=read["ETag"])
    assert stale.status_code == 412
    wrong = api.patch(f"{HERE}/rollout-policy", {"canary_epochs": 5, "waves": []}, format="json")
    assert wrong.status_code == 400
    assert {fault["path"] for fault in wrong.json()["faults"]} == {"canary_epochs", "waves"}
