"""Agents join with tokens, say how they are, and are told what to do."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.services import token_digest
from apps.core.errors import Malformed, NotAuthenticated
from apps.telemetry.agent_services import agent_enrol, agent_update, enrolment_create, enrolment_revoke
from apps.telemetry.models import BUDGET_CORES, Agent, AgentKind, AgentState, EnrolmentToken
from apps.telemetry.selectors import agent_state
from tests.apps.concurrency import run_concurrently
from tests.apps.domain import make_cluster
from tests.apps.telemetry.world import CHANGE, client_of, enrolled, heartbeat

FACTS = {"host": "web-7", "version": "0.1.0", "cores": 8, "capacity_cps": 3e9}


def enrol(token: str, name: str = "a1", client: APIClient | None = None, **facts: Any) -> Any:
    body = {"token": token, "name": name, **FACTS, **facts}
    return (client or APIClient()).post("/api/v1/agents/enrol", body, format="json")


@pytest.mark.django_db
class TestEnrolment:
    def test_enrolment_makes_an_agent_and_shows_its_secret_once(self, api: APIClient) -> None:
        cluster = make_cluster()
        made = api.post("/api/v1/enrolment-tokens", {"cluster": "eu-1", "note": "rack 7"}, format="json")
        assert (made.status_code, made["Cache-Control"]) == (201, "no-store")
        token = made.json()["secret"]
        joined = enrol(token, "n1")
        assert joined.status_code == 201
        says = joined.json()
        assert (says["cluster"], says["heartbeat_s"]) == ("eu-1", 2.0)
        agent = cluster.agents.get()
        assert (str(agent.pk), agent.host, agent.cores, agent.node.name) == (says["agent"], "web-7", 8, "n1")
        stored = EnrolmentToken.objects.get()
        assert (stored.digest, agent.secret_hash) == (token_digest(token), token_digest(says["secret"]))
        for path in ("enrolment-tokens", f"enrolment-tokens/{stored.pk}", f"agents/{agent.pk}", "agents"):
            text = api.get(f"/api/v1/{path}").content.decode()
            assert token not in text
            assert says["secret"] not in text
            assert agent.secret_hash not in text

    def test_token_works_as_often_as_allowed(self) -> None:
        _, token = enrolment_create(cluster=make_cluster(), user=None, uses=2)
        assert [enrol(token, name).status_code for name in ("a", "b", "c")] == [201, 201, 401]
        assert enrol(token, "c").json()["code"] == "token_used_up"

    def test_refused_enrolment_uses_up_nothing(self) -> None:
        found, token = enrolment_create(cluster=make_cluster(), user=None)
        assert enrol(token, "No such name!").status_code == 400
        found.refresh_from_db()
        assert (found.uses_left, found.used) == (1, 0)

    def test_expired_revoked_or_unknown_token_is_refused(self) -> None:
        cluster = make_cluster()
        found, token = enrolment_create(cluster=cluster, user=None)
        EnrolmentToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        assert enrol(token).json()["code"] == "token_expired"
        found, token = enrolment_create(cluster=cluster, user=None)
        enrolment_revoke(token=enrolment_revoke(token=found))
        assert enrol(token).json()["code"] == "token_revoked"
        assert enrol("sle_guessed").json()["code"] == "not_authenticated"
        assert not cluster.agents.exists()

    def test_token_is_bound_to_its_networks(self) -> None:
        _, token = enrolment_create(cluster=make_cluster(), user=None, networks=["10.1.0.0/16"])
        answer = enrol(token)
        assert (answer.status_code, answer.json()["code"]) == (403, "token_network")
        assert enrol(token, client=APIClient(REMOTE_ADDR="10.1.2.3")).status_code == 201

    def test_token_with_uses_left_takes_over_no_known_agent(self) -> None:
        """A rack's token in the wrong hands must not speak for the agents that have joined with it."""
        cluster = make_cluster()
        _, token = enrolment_create(cluster=cluster, user=None, uses=9)
        secret = enrol(token, "web-7").json()["secret"]
        Agent.objects.update(last_seen=timezone.now() - timedelta(days=1))
        for shown in ({}, {"old_secret": ""}, {"old_secret": "sla_guessed"}, {"old_secret": token}):
            answer = enrol(token, "web-7", **shown)
            assert (answer.status_code, answer.json()["code"]) == (403, "agent_known"), shown
        assert cluster.agents.get().secret_hash == token_digest(secret)
        stored = EnrolmentToken.objects.get()
        assert (stored.uses_left, stored.used) == (8, 1)

    def test_secret_of_one_agent_takes_over_no_other(self) -> None:
        cluster = make_cluster()
        _, token = enrolment_create(cluster=cluster, user=None, uses=9)
        mine, _ = (enrol(token, name).json()["secret"] for name in ("mine", "theirs"))
        assert enrol(token, "theirs", old_secret=mine).json()["code"] == "agent_known"

    def test_agent_without_a_secret_is_taken_over_with_none(self) -> None:
        cluster = make_cluster()
        _, token = enrolment_create(cluster=cluster, user=None, uses=9)
        enrol(token)
        Agent.objects.update(secret_hash="")
        assert enrol(token, old_secret="").json()["code"] == "agent_known"

    @pytest.mark.parametrize("is_bound", [True, False])
    def test_enrolment_under_a_known_name_renews_the_secret(self, is_bound: bool) -> None:
        cluster = make_cluster()
        first = enrolled(cluster, "a1", host="web-7")
        agent_update(agent=first.agent, kind=AgentKind.RELAY, listen="10.0.0.1:9100")
        _, token = enrolment_create(cluster=cluster, user=None, agent_name="a1" if is_bound else "")
        second = enrol(token, **({} if is_bound else {"old_secret": first.secret})).json()
        assert second["agent"] == str(first.agent.pk)
        assert heartbeat(client_of(first), first).status_code == 401
        assert cluster.agents.get().kind == AgentKind.RELAY

    def test_token_bound_to_a_name_is_for_no_other(self, api: APIClient) -> None:
        make_cluster()
        asked = {"cluster": "eu-1", "agent_name": "web-7"}
        made = api.post("/api/v1/enrolment-tokens", asked, format="json").json()
        assert made["agent_name"] == "web-7"
        answer = enrol(made["secret"], "web-8")
        assert (answer.status_code, answer.json()["code"]) == (403, "token_name")
        assert enrol(made["secret"], "web-7").status_code == 201

    def test_name_in_use_on_another_host_is_refused(self) -> None:
        cluster = make_cluster()
        first = enrolled(cluster, "a1", host="web-7")
        assert heartbeat(client_of(first), first).status_code == 200
        _, token = enrolment_create(cluster=cluster, user=None, uses=3, agent_name="a1")
        answer = enrol(token, host="web-8")
        assert (answer.status_code, "'web-7'" in answer.json()["detail"]) == (409, True)
        assert enrol(token, host="web-7").status_code == 201
        Agent.objects.update(last_seen=timezone.now() - timedelta(minutes=1))
        assert enrol(token, host="web-8").status_code == 201

    def test_every_fault_of_a_token_is_listed(self) -> None:
        past = timezone.now() - timedelta(days=1)
        with pytest.raises(Malformed) as refused:
            enrolment_create(cluster=make_cluster(), user=None, uses=0, expires_at=past, networks=["x", "10.0.0.0/8"])
        assert {fault.path for fault in refused.value.faults} == {"uses", "expires_at", "networks[0]"}

    @pytest.mark.parametrize("path", ["agents/enrol", "enrolment-tokens"])
    def test_response_with_a_secret_is_not_stored_for_idempotency(self, api: APIClient, path: str) -> None:
        make_cluster()
        answer = api.post(f"/api/v1/{path}", {"cluster": "eu-1"}, format="json", headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["faults"][0]["path"]) == (400, "Idempotency-Key")

    def test_invalid_bodies_are_refused(self) -> None:
        for body in ({}, [], {"token": 1}, {"token": "x", "name": None}, {"token": "x", "name": "a", "cores": -1}):
            assert APIClient().post("/api/v1/agents/enrol", body, format="json").status_code in {400, 401}

    def test_command_creates_a_token(self, capsys: pytest.CaptureFixture[str]) -> None:
        make_cluster()
        call_command("agent_token", "--cluster", "eu-1", "--uses", "3", "--hours", "1")
        token = capsys.readouterr().out.strip()
        assert [enrol(token, name).status_code for name in ("a", "b", "c", "d")] == [201, 201, 201, 401]


def _two_with_one_token() -> None:
    cluster = make_cluster()
    _, token = enrolment_create(cluster=cluster, user=None)
    calls = [partial(agent_enrol, token=token, name=f"a{i}") for i in range(4)]
    outcomes = run_concurrently(calls)
    assert outcomes == {"done": 1, "token_used_up": 3}
    assert cluster.agents.count() == 1


@pytest.mark.django_db(transaction=True)
def test_single_use_token_enrols_one_of_two_agents() -> None:
    _two_with_one_token()


@pytest.mark.postgres
def test_single_use_token_enrols_one_of_two_agents_on_postgres(postgres_db: str) -> None:
    _two_with_one_token()


@pytest.mark.postgres
def test_concurrent_enrolments_of_one_name_on_postgres(postgres_db: str) -> None:
    cluster = make_cluster()
    _, token = enrolment_create(cluster=cluster, user=None, uses=4)
    outcomes = run_concurrently([partial(_enrol_or_conflict, token) for _ in range(4)])
    assert set(outcomes) <= {"done", "conflict", "agent_known"}
    assert outcomes["done"] == 1
    assert cluster.agents.count() == 1
    used = EnrolmentToken.objects.get()
    assert used.used == outcomes["done"] == 4 - used.uses_left


def _enrol_or_conflict(token: str) -> None:
    from apps.core.rest.problems import as_sluice_error

    try:
        agent_enrol(token=token, name="same")
    except Exception as error:
        raise as_sluice_error(error) or error from None


@pytest.mark.django_db
class TestState:
    def test_each_state_has_its_reasons(self) -> None:
        agent = enrolled(make_cluster()).agent
        seen: dict[str, tuple[str, ...]] = {}

        def look(says: dict[str, Any] | None = None) -> AgentState:
            if says is not None:
                agent.last_seen, agent.heartbeat = timezone.now(), says
            view = agent_state(agent)
            seen[view.state] = view.reasons
            return view.state

        assert look() == AgentState.NEVER
        assert look({"cpu_cores": 0.05}) == AgentState.STEADY
        moving = {"query": "c/q", "state": "overflowing", "changes": [CHANGE | {"epochs": None}], "reason": "less CPU"}
        assert look({"time": 1_700_000_010.0, "queries": [moving]}) == AgentState.ADAPTING
        assert seen[AgentState.ADAPTING] == ("q: less CPU",)
        assert look({"time": 1_700_000_060.0, "queries": [moving]}) == AgentState.OVERFLOW, "it does not settle"
        assert look({"queries": [{"query": "c/q", "changes": [CHANGE]}]}) == AgentState.STEADY
        assert look({"cpu_cores": 0.185}) == AgentState.NEAR
        assert look({"cpu_cores": 0.2, "queries": [{"query": "c/q", "state": "overflowing"}]}) == AgentState.OVERFLOW
        spool = {"state": "filling", "bytes": 2**21, "limit_bytes": 2**28}
        assert look({"spool": spool, "queries": [{"query": "c/q", "state": "overflowing"}]}) == AgentState.SPOOL
        assert seen[AgentState.SPOOL] == ("its spool is filling: 2.0 of 256 MiB",)
        agent.last_seen = timezone.now() - timedelta(minutes=2)
        assert look() == AgentState.SILENT
        assert "120 s ago" in seen[AgentState.SILENT][0]
        agent.enabled = False
        assert look() == AgentState.DISABLED
        assert all(reasons for state, reasons in seen.items() if state != AgentState.STEADY)

    def test_faults_and_outdated_configs_are_noted(self) -> None:
        agent = enrolled(make_cluster()).agent
        agent.last_seen, agent.config_version = timezone.now(), 4
        agent.heartbeat = {
            "config_version": 3,
            "faults": ["disk is slow"],
            "queries": [
                {"query": "c/q", "faults": ["x"]},
                {"query": "c/r", "refused": {"version": 4, "config": "c-4", "reasons": ["older", "not whole"]}},
            ],
            "collectors": [{"source": "probes", "faults": ["no route"]}],
        }
        assert agent_state(agent).notes == (
            "it runs configuration 3, the current one is 4",
            "disk is slow",
            "q: x",
            "r: refuses c-4: older; not whole",
            "probes: no route",
        )


@pytest.mark.django_db
class TestRest:
    def test_agents_are_listed_changed_and_deleted(self, api: APIClient) -> None:
        cluster = make_cluster()
        for name in ("a", "b", "c"):
            enrolled(cluster, name)
        page = api.get("/api/v1/agents?cluster=eu-1&page_size=2").json()
        assert [row["name"] for row in page["results"]] == ["a", "b"]
        assert [row["name"] for row in api.get(page["next"]).json()["results"]] == ["c"]
        path = f"/api/v1/agents/{page['results'][0]['id']}"
        seen = api.get(path)
        changed = {"budget_cores": 0.5, "enabled": False, "node": "n2"}
        answer = api.patch(path, changed, format="json", headers={"If-Match": seen["ETag"]})
        assert answer.status_code == 200, answer.json()
        assert {name: answer.json()[name] for name in changed} == changed
        assert answer.json()["state"] == "disabled"
        assert api.patch(path, changed, format="json", headers={"If-Match": seen["ETag"]}).status_code == 412
        assert api.get("/api/v1/agents?heard=true").json()["results"] == []
        assert api.get("/api/v1/agents?hear=true").status_code == 400
        assert api.delete(path).status_code == 204
        assert api.get(path).status_code == 404

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"budget_cores": 0}, "budget_cores"),
            ({"budget_cores": "x"}, "budget_cores"),
            ({"node": "nowhere"}, "node"),
            ({"parent": "nobody"}, "parent"),
            ({"parent": "a"}, "parent"),
            ({"kind": "odd"}, "kind"),
            ({"name": "A b"}, "name"),
            ({"source_options": []}, "source_options"),
            ({"source_options": {"x": 1}}, "source_options"),
            ({"host": "x"}, "host"),
            ({"secret_hash": "x"}, "secret_hash"),
        ],
    )
    def test_invalid_changes_name_their_fields(self, api: APIClient, change: dict[str, Any], path: str) -> None:
        joined = enrolled(make_cluster(), "a")
        answer = api.patch(f"/api/v1/agents/{joined.agent.pk}", change, format="json")
        assert (answer.status_code, answer.json()["faults"][0]["path"]) == (400, path)

    def test_budget_above_the_cores_of_the_host_is_refused(self, api: APIClient) -> None:
        cluster = make_cluster()
        known, unknown = enrolled(cluster, "a", host="h1", cores=2).agent, enrolled(cluster, "b").agent
        answer = api.patch(f"/api/v1/agents/{known.pk}", {"budget_cores": 99}, format="json")
        fault = {"path": "budget_cores", "message": "budget_cores is 99; allowed: 0.01 to 2 cores"}
        assert (answer.status_code, answer.json()["faults"]) == (400, [fault])
        known.refresh_from_db()
        assert known.budget_cores == BUDGET_CORES
        assert api.patch(f"/api/v1/agents/{known.pk}", {"budget_cores": 2}, format="json").status_code == 200
        assert api.patch(f"/api/v1/agents/{unknown.pk}", {"budget_cores": 8}, format="json").status_code == 200
        Agent.objects.filter(pk=known.pk).update(cores=1)  # its host has fewer since
        for wanted, status in ((2, 200), (1.5, 200), (2, 400)):
            answer = api.patch(f"/api/v1/agents/{known.pk}", {"budget_cores": wanted}, format="json")
            assert answer.status_code == status

    def test_agent_name_is_unique(self, api: APIClient) -> None:
        cluster = make_cluster()
        joined, _ = enrolled(cluster, "a"), enrolled(cluster, "b")
        assert api.patch(f"/api/v1/agents/{joined.agent.pk}", {"name": "b"}, format="json").status_code == 409


def test_unknown_token_returns_401_without_details(db: None) -> None:
    with pytest.raises(NotAuthenticated):
        agent_enrol(token="sle_x", name="a")
