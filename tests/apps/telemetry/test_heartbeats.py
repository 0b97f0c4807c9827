"""Heartbeats of agents every two seconds, and the part that is kept."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.telemetry import heartbeats
from apps.telemetry.configs import config_acknowledged
from apps.telemetry.directory import forget_facts
from apps.telemetry.epochs import epochs_of
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_state, policies_in_force
from tests.apps.domain import make_cluster
from tests.apps.telemetry.world import CHANGE, client_of, enrolled, epoch, heartbeat, live_at, probing
from tests.servers import RedisServer

ODD_EPOCHS: list[dict[str, Any]] = [
    {"e": -1},
    {"e": 1.5},
    {"e": True},
    {"p": [1.1]},
    {"p": ["1"]},
    {"p": [1] * 65},
    {"p": None},
    {"n": None},
    {"o": 2**60},
    {"u": -0.1},
    {"u": 1e300},
    {"d": "1"},
    {"v": 1.5},
    {"q": -1},
    {"qb": 1.5},
    {"l": "soon"},
    {"l": 1e300},
    {"x": [1, 2]},
    {"x": [1, 2, None]},
    {"w": [[1, 2, 3, 4, 5]]},
    {"w": [[1, None, None, 4, 5, 6.5]]},
    {"w": [[1, None, None, 4, 5, 6]] * 21},
    {"t": [[0.0]]},
    {"t": [[0.0, -1.0]]},
    {"t": [[0.0, 1.0]] * 41},
    {"s": "c-1"},
]

#: How an agent's queries share its core, as a heartbeat tells it.
SCHEDULE: dict[str, Any] = {
    "policy": "klink",
    "mode": "latency",
    "memory_bytes": 1024,
    "memory_bound": 8_388_608,
    "cycle_ms": 120.0,
    "starved": 2,
    "reason": "the next windows count",
    "refined": {"version": 9, "config": "c-9"},
    "refused": None,
}


@pytest.mark.django_db
class TestHeartbeat:
    def test_answer_holds_time_config_version_and_progress(self) -> None:
        _, (joined,) = live_at(probing(), "a1")
        answer = heartbeat(client_of(joined), joined)
        joined.agent.refresh_from_db()
        assert answer.json() == {
            "time": pytest.approx(time.time(), abs=5),
            "config_version": joined.agent.config_version,
            "accepted_seq": 0,
            "committed_seq": 0,
        }

    def test_row_is_written_for_changes_and_at_intervals_only(self) -> None:
        joined = enrolled(make_cluster())
        client = client_of(joined)
        heartbeat(client, joined)
        with CaptureQueriesContext(connection) as queries:
            for _ in range(5):
                assert heartbeat(client, joined, cpu_cores=0.02).status_code == 200
        assert not [
            captured_query for captured_query in queries.captured_queries if captured_query["sql"].startswith("UPDATE")
        ]
        assert len(queries.captured_queries) == 5  # one read each
        heartbeat(client, joined, cpu_cores=0.19)
        joined.agent.refresh_from_db()
        assert joined.agent.heartbeat["cpu_cores"] == 0.19
        heartbeat(client, joined, cpu_cores=0.19, config_version=3)
        joined.agent.refresh_from_db()
        assert joined.agent.heartbeat["config_version"] == 3
        heartbeats._heard[str(joined.agent.pk)].written -= heartbeats.WRITE_S
        heartbeat(client, joined, cpu_cores=0.2)
        joined.agent.refresh_from_db()
        assert joined.agent.heartbeat["cpu_cores"] == 0.2

    def test_changes_are_announced_at_once_and_numbers_at_intervals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[str] = []
        joined = enrolled(make_cluster())
        client = client_of(joined)
        monkeypatch.setattr(heartbeats, "announce", told.append)
        heartbeat(client, joined)
        heartbeats._heard[str(joined.agent.pk)].written -= heartbeats.WRITE_S
        heartbeat(client, joined)
        assert told == ["telemetry:eu-1"]
        heartbeat(client, joined, cpu_cores=0.2)
        assert told == ["telemetry:eu-1"] * 2

    def test_clock_skew_is_the_best_of_several_samples(self) -> None:
        joined = enrolled(make_cluster())
        client = client_of(joined)
        for delay_s in (0.4, 0.05, 0.3):  # how long the request was under way
            heartbeats._heard.setdefault(str(joined.agent.pk), heartbeats._AgentMemory()).written = 0.0
            heartbeat(client, joined, time=time.time() + 20 - delay_s)
        joined.agent.refresh_from_db()
        assert joined.agent.clock_offset_s == pytest.approx(19.95, abs=0.2)
        assert "s ahead of the console's" in agent_state(joined.agent).notes[0]
        for _ in range(heartbeats._SAMPLES):  # it was set back
            heartbeats._heard[str(joined.agent.pk)].written = 0.0
            heartbeat(client, joined, time=time.time() - 3)
        joined.agent.refresh_from_db()
        assert joined.agent.clock_offset_s == pytest.approx(-3, abs=0.5)

    def test_unknown_fields_are_kept(self) -> None:
        joined = enrolled(make_cluster())
        assert heartbeat(client_of(joined), joined, newer={"thing": 1}).status_code == 200
        joined.agent.refresh_from_db()
        assert joined.agent.heartbeat["newer"] == {"thing": 1}

    def test_long_texts_are_cut(self) -> None:
        joined = enrolled(make_cluster())
        assert heartbeat(client_of(joined), joined, faults=["x" * 500] * 60).status_code == 200
        joined.agent.refresh_from_db()
        assert joined.agent.heartbeat["faults"] == ["x" * 400] * 50

    @pytest.mark.parametrize(
        "says",
        [
            {"life": "x y"},
            {"time": "now"},
            {"time": None},
            {"sent_seq": -1},
            {"spool": {"state": "odd"}},
            {"queries": [{}]},
            {"queries": {}},
            {"collectors": [1]},
            {"faults": [{}]},
            {"queries": [{"query": "c/q", "refined": {"config": "c-1"}}]},
            {"queries": [{"query": "c/q", "moves": -1}]},
            {"queries": [{"query": "c/q", "epochs": {}}]},
            {"queries": [{"query": "c/q", "epochs": [7]}]},
            *[{"queries": [{"query": "c/q", "epochs": [epoch(1) | odd]}]} for odd in ODD_EPOCHS],
            {"queries": [{"query": "c/q", "changes": [CHANGE | {"to": [2]}]}]},
            {"queries": [{"query": "c/q", "changes": [CHANGE | {"epochs": -1}]}]},
        ],
    )
    def test_invalid_heartbeat_is_refused(self, says: dict[str, Any]) -> None:
        joined = enrolled(make_cluster())
        answer = heartbeat(client_of(joined), joined, **says)
        assert (answer.status_code, answer.json()["faults"][0]["path"].split(".")[0].split("[")[0]) == (400, *says)

    def test_heartbeat_for_another_agent_is_refused(self) -> None:
        cluster = make_cluster()
        one, two = enrolled(cluster, "a1"), enrolled(cluster, "a2")
        answer = heartbeat(client_of(one), two)
        assert (answer.status_code, answer.json()["code"]) == (403, "another_agent")
        assert client_of(one).get(f"/api/v1/agents/{two.agent.pk}/config").status_code == 403

    def test_heartbeat_of_a_disabled_agent_is_refused_and_changes_nothing(self) -> None:
        joined = enrolled(make_cluster())
        Agent.objects.filter(pk=joined.agent.pk).update(enabled=False)
        forget_facts()
        answer = heartbeat(client_of(joined), joined)
        assert (answer.status_code, answer.json()["code"]) == (403, "agent_disabled")
        assert client_of(joined).get(f"/api/v1/agents/{joined.agent.pk}/config").status_code == 403
        assert Agent.objects.get(pk=joined.agent.pk).last_seen is None

    def test_too_long_heartbeat_returns_413(self) -> None:
        joined = enrolled(make_cluster())
        assert heartbeat(client_of(joined), joined, more="x" * 1_100_000).status_code == 413

    def test_load_factors_are_kept_in_the_row_and_epochs_in_redis(self) -> None:
        live, (joined,) = live_at(probing(), "a1")
        row = {
            "query": live.key,
            "plan": live.plan,
            "load_factors": [1.0, 0.4, 0.0],
            "phase": "adapt",
            "adapting": "stable",
            "reason": "y" * 500,
            "z": 0.97,
            "refined": {"version": 7, "config": "c-7", "newer": 1},
            "refused": {"version": None, "config": None, "reasons": ["it is torn"]},
            "moves": 3,
            "stable_epochs": 12,
            "changes": [CHANGE] * 12,
            "epochs": [epoch(number) for number in range(1, 4)],
        }
        answer = heartbeat(client_of(joined), joined, queries=[row, {"query": "eu-1/other", "epochs": [epoch(1)]}])
        assert answer.status_code == 200, answer.json()
        joined.agent.refresh_from_db()
        kept = joined.agent.heartbeat["queries"][0]
        assert "epochs" not in kept
        assert (kept["phase"], kept["z"], kept["moves"], kept["changes"]) == ("adapt", 0.97, 3, [CHANGE] * 10)
        assert kept["refined"] == {"version": 7, "config": "c-7"}
        assert kept["refused"] == {"version": None, "config": None, "reasons": ["it is torn"]}
        assert kept["reason"] == "y" * 400
        found = epochs_of([joined.agent.pk])[str(joined.agent.pk)]
        assert set(found) == {live.key}, "none of a query that it has no part in"
        assert [row.epoch_us for row in found[live.key]] == [epoch(number)["e"] for number in range(1, 4)]

    def test_schedule_report_is_kept(self) -> None:
        live, (joined,) = live_at(probing(), "a1")
        e = epoch(1)["e"]
        told = {"q": 3, "qb": 258, "l": -0.5, "x": [e + 4, e + 2, e + 9], "s": 9, "oc": 4, "ot": 3, "sl": 1}
        told |= {"w": [[e, None, None, e + 1, e + 2, e + 3]], "t": [[0, 120], [500.5, 20]]}
        row = {"query": live.key, "late": "no record for 90 s", "epochs": [epoch(1, **told), epoch(2)]}
        assert heartbeat(client_of(joined), joined, queries=[row], schedule=SCHEDULE).status_code == 200
        joined.agent.refresh_from_db()
        kept = joined.agent.heartbeat
        assert (kept["schedule"], kept["queries"][0]["late"]) == (SCHEDULE, "no record for 90 s")
        with_it, without = epochs_of([joined.agent.pk])[str(joined.agent.pk)][live.key]
        assert (with_it.queued, with_it.queued_bytes, with_it.slack_s, with_it.schedule_version) == (3, 258, -0.5, 9)
        assert (with_it.expected, with_it.spans) == ((e + 4, e + 2, e + 9), ((0.0, 120.0), (500.5, 20.0)))
        assert with_it.sweeps == ((e, None, None, e + 1, e + 2, e + 3),)
        assert (without.queued, without.slack_s, without.sweeps, without.schedule_version) == (0, None, (), None)
        assert (with_it.timed, with_it.in_time, with_it.shed_late) == (4, 3, 1)
        assert (without.timed, without.in_time, without.shed_late) == (0, 0, 0)
        assert [entry.policy for entry in policies_in_force(joined.agent.cluster)] == ["klink"]

    def test_heartbeat_of_an_older_agent_has_no_schedule(self) -> None:
        joined = enrolled(make_cluster())
        assert heartbeat(client_of(joined), joined).status_code == 200
        assert policies_in_force(joined.agent.cluster) == []

    def test_heartbeat_is_answered_without_redis(self, redis_server: RedisServer, settings: Any) -> None:
        live, (joined,) = live_at(probing(), "a1")
        client = client_of(joined)
        settings.REDIS_URL = redis_server.url
        redis_server.stop()
        answer = heartbeat(client, joined, queries=[{"query": live.key, "epochs": [epoch(1)]}])
        assert (answer.status_code, answer.json()["accepted_seq"]) == (200, None)
        assert epochs_of([joined.agent.pk]) == {}

    def test_acknowledgement_of_a_refined_document_sends_a_signal_once(self) -> None:
        live, (joined,) = live_at(probing(), "a1")
        told: list[dict[str, Any]] = []

        def hear(agent: Agent, **_: Any) -> None:
            told.append(Agent.objects.get(pk=agent.pk).heartbeat["queries"][0])

        def fail(**_: Any) -> None:
            raise RuntimeError("of a receiver")

        config_acknowledged.connect(fail)
        config_acknowledged.connect(hear)
        try:
            for refined, refused in ((None, None), (None, None), (7, None), (7, None), (7, 8), (7, 8), (None, None)):
                row: dict[str, Any] = {"query": live.key}
                row["refined"] = {"version": refined, "config": f"c-{refined}"} if refined else None
                row["refused"] = {"version": refused, "config": "c-8", "reasons": ["older"]} if refused else None
                assert heartbeat(client_of(joined), joined, queries=[row]).status_code == 200
        finally:
            config_acknowledged.disconnect(fail)
            config_acknowledged.disconnect(hear)
        assert [(row["refined"] and 7, row["refused"] and 8) for row in told] == [
            (None, None),
            (7, None),
            (7, 8),
            (None, None),
        ]
