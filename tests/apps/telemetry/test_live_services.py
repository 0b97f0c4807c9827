"""Queries go live: only what can be executed, with load factors by hand, in step with the query."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.services import cluster_update
from apps.queries.models import Query
from apps.queries.services import query_start, query_stop, query_version_create
from apps.telemetry import heartbeats
from apps.telemetry.agent_services import agent_update
from apps.telemetry.configs import agent_config, fixed_settings, stream_plan
from apps.telemetry.live_services import assignment_set, live_delete, live_start, live_stop
from apps.telemetry.models import Agent, Assignment, KnownPlan, LiveQuery
from apps.telemetry.sources import source_delete, source_upsert, table_delete, table_upsert
from engine.dataflow import Pipeline
from tests.apps.domain import make_cluster
from tests.apps.telemetry.world import (
    EXPRESSIONS,
    SOURCE,
    body,
    client_of,
    enrolled,
    heartbeat,
    live_at,
    probing,
    running,
)

pytestmark = pytest.mark.django_db

JOIN = {"op": "join", "table": "tor_of", "on": {"src_ip": "ip"}, "take": {"src_tor": "tor"}}


def joining() -> dict[str, Any]:
    return {"window": EXPRESSIONS["window"], "tors": JOIN, "rtt": EXPRESSIONS["rtt"]}


def with_table() -> Query:
    cluster = make_cluster()
    source_upsert(cluster=cluster, source_id="probes", **SOURCE)
    table_upsert(cluster=cluster, name="tor_of", columns={"tor": "string", "ip": "string"}, rows=[["t1", "10.0.0.1"]])
    return running(cluster, joining())


class TestStart:
    def test_version_becomes_a_pipeline(self) -> None:
        live, _ = live_at(probing(), "a1", retain_s=60.0)
        pipeline = Pipeline.parse(live.pipeline)
        assert (live.plan, live.source_operators) == (pipeline.digest, 3)
        assert [operator.id for operator in pipeline.operators] == ["window", "good", "rtt"]
        assert live.assignments.get().settings == {}
        assert KnownPlan.objects.get().digest == live.plan

    def test_only_a_running_query_goes_live_and_only_once(self) -> None:
        query = probing()
        live, (joined,) = live_at(query, "a1")
        with pytest.raises(Conflict, match="live already"):
            live_start(query=query, agents=[joined.agent])
        query_stop(query=query)
        live.refresh_from_db()
        assert (live.state, live.fault) == ("stopped", "The query was stopped.")
        with pytest.raises(Conflict, match="only a running one"):
            live_start(query=query, agents=[joined.agent])

    def test_stopped_live_query_starts_again_under_its_name(self) -> None:
        query = probing()
        live, (_, two) = live_at(query, "a1", "a2")
        live_stop(live=live_stop(live=live))
        again = live_start(query=query, agents=[two.agent])
        assert (again.pk, again.state, again.stopped_at) == (live.pk, "starting", None)
        assert {part.agent.name: part.enabled for part in again.assignments.all()} == {"a1": False, "a2": True}
        live_stop(live=again)
        live_delete(live=again)
        assert not LiveQuery.objects.exists()
        assert KnownPlan.objects.get().live is None

    def test_load_factors_are_set_by_hand_and_returned_to_the_agent(self) -> None:
        live, (_, two) = live_at(probing(), "a1", "a2", settings={"margin": 0.9})
        assignment_set(live=live, agent=two.agent, settings=fixed_settings([1, 0.5, 0]))
        parts = {part.agent.name: part for part in live.assignments.all()}
        assert {name: part.settings for name, part in parts.items()} == {
            "a1": {"margin": 0.9},
            "a2": {"method": "fixed", "load_factors": [1.0, 0.5, 0.0]},
        }
        assert [(part.by_hand, part.load_factors) for part in parts.values()] == [(False, []), (True, [1.0, 0.5, 0.0])]
        assert assignment_set(live=live, agent=two.agent, weight=2.0).by_hand
        assert assignment_set(live=live, agent=two.agent, settings={}).settings == {}

    def test_reported_load_factors_are_shown_unless_set_by_hand(self) -> None:
        live, (joined,) = live_at(probing(), "a1")
        rows = [
            {"query": "eu-1/other", "plan": live.plan, "load_factors": [0.1]},
            {"query": live.key, "plan": live.plan, "load_factors": [1.0, 0.4, 0.0]},
        ]
        heartbeat(client_of(joined), joined, queries=rows)
        assert live.assignments.get().load_factors == [1.0, 0.4, 0.0]
        heartbeats._heard.clear()
        heartbeat(client_of(joined), joined, queries=[rows[0], {**rows[1], "plan": "0" * 64}])
        assert live.assignments.get().load_factors == [], "those of another pipeline's operators"

    @pytest.mark.parametrize(
        ("says", "path"),
        [
            *[
                ({"method": "fixed", "load_factors": factors}, path)
                for factors, path in (
                    ([1, 1], "settings.load_factors"),
                    ([1, 1, 1, 1], "settings.load_factors"),
                    ([1, 1, 1.01], "settings.load_factors[2]"),
                    ([1, -0.1, 1], "settings.load_factors[1]"),
                    ([1, True, 1], "settings.load_factors[1]"),
                    ([1, "x", 1], "settings.load_factors[1]"),
                    ([1, float("nan"), 1], "settings.load_factors[1]"),
                    ("111", "settings.load_factors"),
                    (7, "settings.load_factors"),
                )
            ],
            ({"method": "fixed"}, "settings.load_factors"),
            ({"method": "scalar", "load_factors": [1, 1, 1]}, "settings.load_factors"),
            ({"method": "magic"}, "settings.method"),
            ({"margin": 0.5}, "settings.margin"),
            ({"marign": 0.95}, "settings.marign"),
            ([1, 1, 1], "settings"),
        ],
    )
    def test_invalid_settings_are_named(self, says: Any, path: str) -> None:
        query = probing()
        agent = enrolled(query.cluster).agent
        with pytest.raises(Malformed) as refused:
            live_start(query=query, agents=[agent], settings=says)
        assert refused.value.faults[0].path == path

    def test_agent_of_another_cluster_is_refused(self) -> None:
        query, other = probing(), make_cluster("other")
        with pytest.raises(Malformed, match="another cluster"):
            live_start(query=query, agents=[enrolled(other).agent])
        with pytest.raises(Malformed, match="at least one"):
            live_start(query=query, agents=[])

    @pytest.mark.parametrize(
        ("expressions", "words"),
        [
            ({"good": EXPRESSIONS["good"], "rtt": EXPRESSIONS["rtt"]}, "no window before it"),
            ({"window": EXPRESSIONS["window"], "good": EXPRESSIONS["good"]}, "there is no aggregate"),
            ({**EXPRESSIONS, "good": {"op": "filter", "where": "err_cod = 0"}}, "err_cod"),
            (joining(), "'tors' joins the table 'tor_of', which does not exist"),
        ],
    )
    def test_pipeline_that_cannot_run_names_its_operators(self, expressions: dict[str, Any], words: str) -> None:
        query = probing(expressions=expressions)
        with pytest.raises(Impossible) as refused:
            live_start(query=query, agents=[enrolled(query.cluster).agent])
        assert refused.value.code == "not_executable"
        assert any(words in fault.message for fault in refused.value.faults), refused.value.faults
        assert not LiveQuery.objects.exists()

    def test_uncollected_source_and_missing_expressions_are_refused(self) -> None:
        cluster = make_cluster()
        plain = body()
        del plain["operators"][1]["expression"]
        from tests.apps.domain import make_arrivals, make_query, start

        make_arrivals(cluster, "probes")
        query = start(make_query(cluster, "s2s", body=plain))
        with pytest.raises(Impossible) as refused:
            live_start(query=query, agents=[enrolled(cluster).agent])
        assert [fault.path for fault in refused.value.faults] == ["window", "good"]
        assert "which no agent collects" in refused.value.faults[0].message
        assert "has no expression" in refused.value.faults[1].message

    def test_fused_operators_are_expanded(self) -> None:
        fused = {"fused": [{"id": name, "expression": EXPRESSIONS[name]} for name in ("window", "good")]}
        query = probing(expressions=EXPRESSIONS)
        operator = query.versions.get().operators.get(name="window")
        operator.extra = {"expression": fused}
        operator.save()
        second = query.versions.get().operators.get(name="good")
        second.extra = {"expression": {"op": "filter", "where": "rtt_us < 1000"}}
        second.name = "near"
        second.save()
        live, _ = live_at(query, "a1")
        assert [row["id"] for row in live.pipeline["operators"]] == ["window", "good", "near", "rtt"]


class TestChanges:
    def test_new_version_replaces_the_old_plan(self) -> None:
        query = probing()
        live, _ = live_at(query, "a1", "a2", settings=fixed_settings([1, 0.25, 0]))
        assignment_set(live=live, agent=Agent.objects.get(name="a2"), settings={"margin": 0.92})
        plan = live.plan
        expressions = {
            "window": EXPRESSIONS["window"],
            "near": {"op": "filter", "where": "rtt_us < 1000"},
            "good": EXPRESSIONS["good"],
            "rtt": EXPRESSIONS["rtt"],
        }
        version = query_version_create(query=query, body=body(expressions))
        where = {operator.name: "n1" for operator in version.operators.all()}
        query_start(version=version, placement=where)
        live.refresh_from_db()
        assert (live.version_id, live.state, live.source_operators) == (version.pk, "starting", 4)
        assert live.plan != plan
        assert [part.settings for part in live.assignments.all()] == [
            fixed_settings([1.0, 1.0, 0.25, 0.0]),
            {"margin": 0.92},
        ]
        assert set(KnownPlan.objects.values_list("digest", flat=True)) == {plan, live.plan}

    def test_version_that_cannot_run_stops_the_live_query(self) -> None:
        query = probing()
        live, _ = live_at(query, "a1")
        version = query_version_create(query=query, body=body({"good": EXPRESSIONS["good"]}))
        query_start(version=version, placement={"good": "n1"})
        live.refresh_from_db()
        assert live.state == "stopped"
        assert "Version 2 cannot be executed: there is no aggregate" in live.fault

    def test_renamed_cluster_renames_the_key_of_frames(self) -> None:
        query = probing()
        live, (joined,) = live_at(query, "a1")
        cluster_update(cluster=query.cluster, slug="eu-2")
        assert stream_plan()["queries"][0]["query"] == "eu-2/s2s"
        assert agent_config(Agent.objects.get())["queries"][0]["query"] == "eu-2/s2s"
        known = KnownPlan.objects.filter(agents=joined.agent, digest=live.plan).values_list("query", flat=True)
        assert set(known) == {"eu-1/s2s", "eu-2/s2s"}

    def test_new_rows_of_a_static_table_change_the_plan(self) -> None:
        query = with_table()
        live, _ = live_at(query, "a1")
        plan = live.plan
        rows = [["t1", "10.0.0.1"], ["t2", "10.0.0.2"]]
        table = table_upsert(cluster=query.cluster, name="tor_of", rows=rows)
        live.refresh_from_db()
        assert live.plan != plan
        assert Pipeline.parse(live.pipeline).tables["tor_of"].data.to_pydict() == {
            "tor": ["t1", "t2"],
            "ip": ["10.0.0.1", "10.0.0.2"],
        }
        with pytest.raises(Conflict, match="could no longer be executed"):
            table_upsert(cluster=query.cluster, name="tor_of", columns={"a": "string"}, rows=[])
        with pytest.raises(Conflict, match="joined with by"):
            table_delete(table=table)
        live_stop(live=live)
        table_delete(table=table)

    def test_columns_of_a_source_in_use_cannot_change(self) -> None:
        query = probing()
        live, _ = live_at(query, "a1")
        source_upsert(cluster=query.cluster, source_id="probes", lateness_s=5.0)
        fewer = {name: kind for name, kind in SOURCE["columns"].items() if name != "dst_cluster"}
        with pytest.raises(Conflict, match="stop them first"):
            source_upsert(cluster=query.cluster, source_id="probes", columns=fewer)
        live_stop(live=live)
        source = source_upsert(cluster=query.cluster, source_id="probes", columns=fewer)
        with pytest.raises(Conflict, match="is read by s2s"):
            source_delete(source=source)
        live_delete(live=live)
        source_delete(source=source)


class TestStreamPlan:
    def test_plan_version_grows_with_each_change_only(self, api: APIClient) -> None:
        answer = api.get("/api/v1/stream-processor/plan")
        assert answer.json()["queries"] == []
        live, (one, two) = live_at(probing(), "a1", "a2")
        first = api.get("/api/v1/stream-processor/plan")
        again = api.get("/api/v1/stream-processor/plan", headers={"If-None-Match": first["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        (query,) = first.json()["queries"]
        assert query["agents"] == sorted([str(one.agent.pk), str(two.agent.pk)])
        assert (query["query"], query["plan"], query["subinterval_s"]) == ("eu-1/s2s", live.plan, 1.0)
        assert Pipeline.parse(query["pipeline"]).digest == live.plan
        assert first.json()["version"] == answer.json()["version"] + 1
        assignment_set(
            live=live, agent=one.agent, settings=fixed_settings([0, 0, 0])
        )  # no business of the stream processor
        assert stream_plan()["version"] == first.json()["version"]
        agent_update(agent=one.agent, enabled=False)
        after = stream_plan()
        assert after["version"] == first.json()["version"] + 1
        assert after["queries"][0]["agents"] == [str(two.agent.pk)]
        live_stop(live=live)
        assert stream_plan()["queries"] == []

    def test_stream_plan_names_the_relay_of_agents_below_it(self) -> None:
        live, (below,) = live_at(probing(), "below")
        relay = enrolled(live.query.cluster, "relay")
        agent_update(agent=relay.agent, kind="relay", listen="10.0.0.9:9100")
        agent_update(agent=below.agent, parent=relay.agent)
        assert stream_plan()["queries"][0]["agents"] == [str(relay.agent.pk)]

    @pytest.mark.parametrize(
        ("listen", "url"),
        [
            ("10.0.0.9:9100", "http://10.0.0.9:9100"),
            ("0.0.0.0:91", "http://rack-1:91"),
            ("[::]:91", "http://rack-1:91"),
        ],
    )
    def test_relay_on_all_addresses_is_reached_at_its_host(self, listen: str, url: str) -> None:
        live, (below,) = live_at(probing(), "below")
        relay = enrolled(live.query.cluster, "relay", host="rack-1")
        agent_update(agent=relay.agent, kind="relay", listen=listen)
        assert agent_config(agent_update(agent=below.agent, parent=relay.agent))["parent"] == {"url": url}

    def test_past_plans_are_served_by_digest(self, api: APIClient) -> None:
        live, _ = live_at(probing(), "a1")
        live_stop(live=live)
        live_delete(live=live)
        answer = api.get(f"/api/v1/stream-processor/pipelines/{live.plan}")
        assert Pipeline.parse(answer.json()).digest == live.plan
        assert api.get(f"/api/v1/stream-processor/pipelines/{'0' * 64}").status_code == 404


class TestRest:
    def test_query_goes_live_changes_and_stops(self, api: APIClient) -> None:
        query = probing()
        for name in ("a1", "a2"):
            enrolled(query.cluster, name)
        wanted = {"cluster": "eu-1", "query": "s2s", "agents": ["a1"], "settings": fixed_settings([1, 1, 0.5])}
        made = api.post("/api/v1/live-queries", wanted, format="json", headers={"Idempotency-Key": "k"})
        assert made.status_code == 201, made.json()
        again = api.post("/api/v1/live-queries", wanted, format="json", headers={"Idempotency-Key": "k"})
        assert (again.status_code, again["Idempotency-Replayed"]) == (201, "true")
        path, seen = made["Location"], api.get(made["Location"])
        change = {"retain_s": 60, "assignments": [{"agent": "a2", "settings": {"method": "all-sp"}, "weight": 2}]}
        changed = api.patch(path, change, format="json", headers={"If-Match": seen["ETag"]})
        assert changed.status_code == 200, changed.json()
        assert [
            (assignment["agent"], assignment["settings"], assignment["weight"])
            for assignment in changed.json()["assignments"]
        ] == [
            ("a1", fixed_settings([1.0, 1.0, 0.5]), 1.0),
            ("a2", {"method": "all-sp"}, 2.0),
        ]
        assert api.patch(path, change, format="json", headers={"If-Match": seen["ETag"]}).status_code == 412
        assert api.delete(path).status_code == 409
        assert api.post(f"{path}/stop").json()["state"] == "stopped"
        assert [row["query"] for row in api.get("/api/v1/live-queries?state=stopped").json()["results"]] == ["s2s"]
        assert api.delete(path).status_code == 204

    def test_invalid_change_changes_nothing(self, api: APIClient) -> None:
        live, _ = live_at(probing(), "a1")
        path = f"/api/v1/live-queries/{live.pk}"
        before = api.get(path).json()
        parts = [{"agent": "a1", "settings": fixed_settings([n, 0, 0])} for n in (0, 2)]
        answer = api.patch(path, {"assignments": parts}, format="json")
        assert (answer.status_code, answer.json()["faults"][0]["path"]) == (400, "settings.load_factors[0]")
        for change, status in (
            ({"assignments": [{"agent": "nobody"}]}, 404),
            ({"assignments": [{"agent": "a1", "factors": []}]}, 400),
            ({"retain_s": 0}, 400),
            ({"idle_after_s": None}, 400),
            ({"state": "running"}, 400),
        ):
            assert api.patch(path, change, format="json").status_code == status, change
        assert api.get(path).json() == before

    def test_check_shows_where_each_operator_may_run(self, api: APIClient) -> None:
        exact = {**EXPRESSIONS["rtt"], "compute": {"ips": "count(distinct dst_ip)"}}
        probing(expressions={**EXPRESSIONS, "rtt": exact})
        says = api.get("/api/v1/live-queries/check?cluster=eu-1&query=s2s").json()
        assert (says["source"], says["source_operators"]) == ("probes", 2)
        assert [(operator["id"], operator["allowed"], operator["rule"]) for operator in says["operators"]] == [
            ("window", True, None),
            ("good", True, None),
            ("rtt", False, 1),
        ]
        assert api.get("/api/v1/live-queries/check?cluster=eu-1&query=nothing").status_code == 404
        assert api.get("/api/v1/live-queries/check?cluster=eu-1&query=s2s&version=x").status_code == 400

    def test_check_of_a_pipeline_that_cannot_run_lists_its_faults(self, api: APIClient) -> None:
        probing(expressions={"good": EXPRESSIONS["good"]})
        says = api.get("/api/v1/live-queries/check?cluster=eu-1&query=s2s").json()
        assert (says["executable"], bool(says["faults"])) == (False, True)
        wanted = {"cluster": "eu-1", "query": "s2s", "agents": ["a1"]}
        assert api.post("/api/v1/live-queries", wanted, format="json").status_code == 404  # no such agent yet
        enrolled(Query.objects.get().cluster)
        answer = api.post("/api/v1/live-queries", wanted, format="json")
        assert (answer.status_code, answer.json()["code"]) == (422, "not_executable")


def test_statements_of_a_start_do_not_grow_with_four_for_each_agent() -> None:
    """Assignments are written together, and parts of configurations read; what is left is an agent's version."""

    def statements(query: Query, names: range) -> int:
        agents = [enrolled(query.cluster, f"{query.name}-{name}").agent for name in names]
        with CaptureQueriesContext(connection) as captured:
            live_start(query=query, agents=agents)
        return len(captured)

    first = probing()
    few = statements(first, range(3))
    many = statements(running(first.cluster, name="other"), range(23))
    assert many - few <= 4 * 20
    assert Assignment.objects.count() == 26


def test_agents_that_come_again_keep_their_assignment_with_new_settings() -> None:
    query = probing()
    live, (one,) = live_at(query, "a1")
    by_hand = fixed_settings([0.5] * live.source_operators)
    live_stop(live=live)
    two = enrolled(query.cluster, "a2").agent
    again = live_start(query=query, agents=[one.agent, one.agent, two], settings=by_hand)
    assert again.pk == live.pk
    found = {part.agent.name: (part.enabled, part.settings["load_factors"]) for part in again.assignments.all()}
    assert found == dict.fromkeys(("a1", "a2"), (True, by_hand["load_factors"]))
