"""Schedules of agents over REST: read, previewed, switched, replayed."""

from __future__ import annotations

import time

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.rollouts.models import RefinedConfig
from apps.rollouts.services import schedule_preview
from tests.apps.rollouts.fleet import Fleet, fleet_of, join
from tests.apps.rollouts.schedule_epochs import agent_with_two, epochs
from tests.apps.small_cluster import run_jobs
from tests.apps.telemetry.test_heartbeats import SCHEDULE
from tests.apps.telemetry.world import client_of, heartbeat, live_at, probing

pytestmark = pytest.mark.django_db

HERE = "/api/v1/clusters/eu-1/schedule"
IN_TURN = {"policy": "round-robin"}


@pytest.fixture
def fleet(db: None) -> Fleet:
    return fleet_of("a1", "a2").start()


def test_schedules_of_a_cluster_are_shown(fleet: Fleet, api: APIClient) -> None:
    found = api.get(HERE).json()
    assert (found["cluster"], found["last_s"], found["left_out"]) == ("eu-1", 300.0, 0)
    one, two = found["agents"]
    assert (one["agent"], one["policy"], one["mode"], two["agent"]) == ("a1", "klink", "latency", "a2")
    assert (one["memory_bytes"], one["memory_bound"], one["config"], one["behind"]) == (860, 8_388_608, None, False)
    (query,) = one["queries"]
    assert (query["query"], query["period_s"], query["queued"]) == ("s2s", 10.0, 10)
    assert query["backlog_s"] == pytest.approx(3.3)
    assert one["windows"] == query["windows"] > 0
    assert query["latency_mean_s"] == pytest.approx(0.41, abs=0.02)
    assert (query["timed"], query["in_time_share"], query["shed_late"]) == (0, None, 0)
    only = api.get(HERE, {"agent": "a2", "last_s": 10}).json()
    assert [row["agent"] for row in only["agents"]] == ["a2"]
    for wrong in ("5", "nan", "inf", "soon"):
        told = api.get(HERE, {"last_s": wrong})
        assert (told.status_code, told.json()["faults"][0]["path"]) == (400, "last_s")
    assert api.get(HERE, {"agent": "a9"}).status_code == 404
    assert api.get("/api/v1/clusters/nowhere/schedule").status_code == 404


def test_response_is_limited_in_agents_and_epochs(
    fleet: Fleet, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.rollouts.schedule_selectors.MAX_EPOCHS", 250)
    for last_s, shown in ((100, ["a1", "a2"]), (200, ["a1"]), (900, ["a1"])):
        found = api.get(HERE, {"last_s": last_s}).json()
        assert ([row["agent"] for row in found["agents"]], found["left_out"]) == (shown, 2 - len(shown))
    assert [row["agent"] for row in api.get(HERE, {"agent": "a2"}).json()["agents"]] == ["a2"]


def test_sql_count_of_a_preview_does_not_grow_with_agents() -> None:
    asked = []
    fleet = fleet_of("a1").start(1)
    for joining in ((), ("a2", "a3", "a4")):
        for name in joining:
            join(fleet, name)
        with CaptureQueriesContext(connection) as seen:
            schedule_preview(cluster=fleet.cluster, settings=IN_TURN)
        asked.append(len(seen))
    assert asked[0] == asked[1]


def test_schedule_of_an_agent_is_shown_by_epoch(api: APIClient) -> None:
    agent, (live, _) = agent_with_two()
    now_s = time.time()
    rows = epochs(agent, live, seconds=30, now_s=now_s)
    found = api.get(f"/api/v1/agents/{agent.pk}/schedule").json()
    assert (found["agent"], found["policy"], found["last_s"]) == ("a1", None, 300.0)
    track = next(lane for lane in found["timeline"] if lane["query"] == "s2s")
    assert track["epochs"][0] == [rows[0].epoch_us, [[0.0, 20.0]], 0.8, 7]
    assert track["sweeps"][0] == list(next(row.sweeps[0] for row in rows if row.sweeps))
    assert found["memory"][0] == [rows[0].epoch_us, 602]
    assert (found["expected_windows"], found["hit_rate"]) == (3, 1.0)
    assert api.get("/api/v1/agents/00000000-0000-0000-0000-000000000000/schedule").status_code == 404


def test_switch_is_previewed_and_made_once(fleet: Fleet, api: APIClient) -> None:
    seen = api.post(HERE, {"settings": IN_TURN, "canaries": ["a2"]}, format="json")
    assert seen.status_code == 200, seen.json()
    preview = seen.json()
    assert (preview["made"], preview["config"], preview["unchanged"]) == (False, None, False)
    assert preview["agents"][1] == {
        "name": "a2",
        "policy_before": "klink",
        "policy_after": "round-robin",
        "is_canary": True,
        "changes": [["policy", "klink", "round-robin"]],
    }
    assert (preview["stages"], preview["settings"]["cycle_ms"]) == ([1, 1], 120.0)
    assert preview["judged"][0].startswith("window latency, mean and p99")
    assert preview["least_s"] == 2 * (5 + 10 + 100)  # settled, a window that is whole, ten windows of ten seconds
    assert not RefinedConfig.objects.exists()
    body = {"mode": "apply", "settings": IN_TURN, "canaries": ["a2"], "words": "in turn"}
    made = api.post(HERE, body, format="json")
    assert (made.status_code, made["Location"]) == (201, "/api/v1/clusters/eu-1/rollouts/1")
    assert (made.json()["made"], made.json()["config"], made.json()["rollout"]) == (True, "c-1", "canary")
    again = api.post(HERE, body, format="json")
    assert (again.status_code, again.json()["made"], again.json()["config"]) == (200, False, "c-1")
    shown = api.get("/api/v1/clusters/eu-1/configs/1").json()
    assert (shown["schedule"], shown["settings"], shown["words"], shown["parts"]) == (IN_TURN, {}, "in turn", [])
    (part,) = shown["schedules"]
    assert (part["agent"], part["changes"]) == ("all agents", [["policy", "klink", "round-robin"]])


def test_faults_name_their_field(fleet: Fleet, api: APIClient) -> None:
    body = {"settings": {"policy": "lifo"}, "agents": ["a1", "a9"], "canaries": ["a2"]}
    told = api.post(HERE, body, format="json")
    assert told.status_code == 400
    assert {fault["path"] for fault in told.json()["faults"]} == {"settings.policy", "agents[1]", "canaries[0]"}
    assert api.post(HERE, {"settings": {}, "colour": 1}, format="json").json()["faults"][0]["path"] == "colour"
    both = {"schedule": {}, "queries": ["s2s"]}
    told = api.post("/api/v1/clusters/eu-1/configs", both, format="json")
    assert [fault["path"] for fault in told.json()["faults"]] == ["queries"]
    assert api.post("/api/v1/clusters/eu-1/configs", {}, format="json").json()["faults"][0]["path"] == "settings"


def test_replay_is_a_job_and_names_missing_data(api: APIClient) -> None:
    agent, lives = agent_with_two()
    missing = api.post(f"{HERE}/replay", {"agent": "a1"}, format="json")
    assert (missing.status_code, missing.json()["code"]) == (422, "too_little_recorded")
    now_s = time.time()
    for live in lives:
        epochs(agent, live, now_s=now_s)
    body = {"agent": "a1", "policies": ["klink", "fcfs"]}
    asked = api.post(f"{HERE}/replay", body, format="json")
    assert asked.status_code == 202
    run_jobs()
    result = api.get(asked["Location"]).json()
    assert (result["state"], set(result["result"]["policies"])) == ("succeeded", {"klink", "fcfs"})
    assert result["result_url"] == "/c/eu-1/sources/schedule/?agent=a1#replay"


def test_replay_with_wait_returns_its_result(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent, lives), now_s = agent_with_two(), time.time()
    for live in lives:
        epochs(agent, live, now_s=now_s)
    monkeypatch.setattr("apps.jobs.api.job_wait", lambda job, wait_s: (run_jobs(), job.refresh_from_db()))
    found = api.post(f"{HERE}/replay", {"agent": "a1"}, format="json", HTTP_PREFER="wait=10").json()
    assert (found["agent"], found["epochs"], found["windows"]) == ("a1", 60, 36)
    assert found["policies"]["klink"]["queries"]["quick"]["windows"] > 0


def test_heartbeat_is_shown_at_once(api: APIClient) -> None:

    _, (joined,) = live_at(probing(), "a1")
    said = {**SCHEDULE, "mode": "memory"}
    assert heartbeat(client_of(joined), joined, schedule=said).status_code == 200
    (row,) = api.get(HERE).json()["agents"]
    assert (row["policy"], row["mode"], row["starved"], row["config"]) == ("klink", "memory", 2, "c-9")
