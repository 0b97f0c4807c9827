"""Configurations of agents, and when their version grows."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from agent.config import AgentConfig
from apps.accounts.services import token_digest
from apps.core.errors import Malformed
from apps.queries.services import query_update
from apps.telemetry import configs as telemetry_configs
from apps.telemetry.agent_services import agent_delete, agent_update
from apps.telemetry.configs import agent_config, configs_renew, fixed_settings, refiner, scheduler
from apps.telemetry.live_services import assignment_set, live_stop, live_update
from apps.telemetry.models import Agent, AgentKind
from apps.telemetry.streams import ASSUMED_TRIGGER_S
from tests.apps.telemetry.world import client_of, enrolled, live_at, probing


@pytest.mark.django_db
class TestConfig:
    def test_config_document_is_readable_by_agents(self) -> None:
        live, (joined,) = live_at(probing(), "a1", settings=fixed_settings([1, 0.5, 0]))
        answer = client_of(joined).get(f"/api/v1/agents/{joined.agent.pk}/config")
        read = AgentConfig.parse(answer.json())
        assert (read.agent, read.cluster) == (str(joined.agent.pk), "eu-1")
        assert read.sources["probes"].kind == "tcp_probe"
        assert [(query.query, query.plan, query.settings.load_factors) for query in read.queries] == [
            ("eu-1/s2s", live.plan, (1.0, 0.5, 0.0))
        ]
        again = client_of(joined).get(
            f"/api/v1/agents/{joined.agent.pk}/config", headers={"If-None-Match": answer["ETag"]}
        )
        assert (again.status_code, again.content) == (304, b"")

    def test_config_version_grows_with_each_change_only(self, api: APIClient) -> None:
        live, (joined,) = live_at(probing(), "a1")
        agent, versions = joined.agent, []

        def version() -> int:
            agent.refresh_from_db()
            return agent.config_version

        versions.append(version())
        assignment_set(live=live, agent=agent, settings=fixed_settings([0, 0, 0]))
        versions.append(version())
        agent_update(agent=agent, budget_cores=0.5)
        versions.append(version())
        agent_update(agent=agent, source_options={"probes": {"listen": "10.0.0.1:9101"}})
        versions.append(version())
        live_stop(live=live)
        versions.append(version())
        assert versions == sorted(set(versions))
        agent_update(agent=agent, name="another")
        assert agent_config(Agent.objects.get(pk=agent.pk))["version"] == version() == versions[-1]

    def test_config_holds_refined_documents_unless_load_factors_are_set_by_hand(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        live, (one, two) = live_at(probing(), "a1", "a2")
        documents: dict[str, Any] = {"a1": {"version": 1}, "a2": {"version": 1}}
        monkeypatch.setattr(telemetry_configs, "_refiner", None)
        refiner(lambda part: documents.get(part.agent.name))

        def said() -> list[tuple[int, Any]]:
            configs_renew([one.agent.pk, two.agent.pk])
            configs = [agent_config(Agent.objects.get(name=name)) for name in ("a1", "a2")]
            return [(config["version"], config["queries"][0]["refined"]) for config in configs]

        assignment_set(live=live, agent=two.agent, settings=fixed_settings([1, 1, 1]))
        before = said()
        assert [refined for _, refined in before] == [{"version": 1}, None]
        documents["a1"], documents["a2"] = {"version": 2}, {"version": 2}
        assert said() == [(before[0][0] + 1, {"version": 2}), before[1]]
        assignment_set(live=live, agent=two.agent, settings={})
        assert said()[1] == (before[1][0] + 1, {"version": 2})

    def test_config_holds_the_refined_schedule_even_if_set_by_hand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        live, (joined,) = live_at(probing(), "a1")
        told: dict[str, Any] = {}
        monkeypatch.setattr(telemetry_configs, "_scheduler", None)
        scheduler(lambda agent: told.get(agent.name))
        assignment_set(live=live, agent=joined.agent, settings=fixed_settings([1, 1, 1]))
        first = agent_config(Agent.objects.get())
        assert "refined_schedule" not in first
        told["a1"] = {"version": 1}
        second = agent_config(Agent.objects.get())
        assert (second["version"], second["refined_schedule"]) == (first["version"] + 1, {"version": 1})
        assignment_set(live=live, agent=joined.agent, enabled=False)
        assert "refined_schedule" not in agent_config(Agent.objects.get())  # it runs nothing

    def test_objective_of_a_query_is_the_latency_constraint_of_its_agents(self) -> None:
        live, (joined,) = live_at(probing(), "a1")
        query_update(query=live.query, objective=None)
        plain = agent_config(Agent.objects.get())
        assert "stream_delay_s" not in plain
        assert "latency_constraint_s" not in plain["queries"][0]
        query_update(query=live.query, objective={"statistic": "q0.99", "bound_s": 10.0}, priority=2)
        live_update(live=live, shed_late=True)
        changed = Agent.objects.get()
        assert changed.config_version > plain["version"]
        address = f"/api/v1/agents/{joined.agent.pk}/config"
        known = client_of(joined).get(address)
        read = AgentConfig.parse(known.json())
        (query,) = read.queries
        assert (query.latency_constraint_s, query.priority, query.shed_late) == (10.0, 2, True)
        assert read.stream_delay_s == 2 * ASSUMED_TRIGGER_S

    def test_source_options_may_differ_by_agent(self) -> None:
        _, (one, two) = live_at(probing(), "a1", "a2")
        agent_update(agent=one.agent, source_options={"probes": {"listen": "10.0.0.1:9101", "interval_s": 2.0}})
        configs = [agent_config(Agent.objects.get(pk=agent.agent.pk)) for agent in (one, two)]
        options = [config["sources"]["probes"]["options"] for config in configs]
        peers = [{"address": "10.0.0.2:9101"}]
        assert options == [
            {"listen": "10.0.0.1:9101", "interval_s": 2.0, "peers": peers},
            {"interval_s": 1.0, "peers": peers},
        ]
        with pytest.raises(Malformed) as refused:
            agent_update(agent=one.agent, source_options={"probes": {"listen": 7, "what": 1}, "nothing": {}})
        assert {fault.path for fault in refused.value.faults} == {
            "source_options.nothing",
            "source_options.probes.listen",
            "source_options.probes.what",
        }

    def test_config_of_a_relay_lists_the_agents_below_it(self) -> None:
        live, (below,) = live_at(probing(), "below")
        relay = enrolled(live.query.cluster, "relay")
        agent_update(agent=relay.agent, kind=AgentKind.RELAY, listen="10.0.0.9:9100")
        agent_update(agent=below.agent, parent=relay.agent)
        config = AgentConfig.parse(agent_config(Agent.objects.get(name="relay")))
        (child,) = config.relay.children
        assert (child.agent, child.secret_hash) == (str(below.agent.pk), token_digest(below.secret))
        assert child.queries == {"eu-1/s2s": live.plan}
        with pytest.raises(Malformed, match="no part of its own"):
            assignment_set(live=live, agent=Agent.objects.get(name="relay"))
        assert set(config.relay.pipelines) == {live.plan}
        config = AgentConfig.parse(agent_config(Agent.objects.get(name="below")))
        assert config.parent.url == "http://10.0.0.9:9100"
        with pytest.raises(Malformed) as refused:
            agent_update(agent=relay.agent, kind=AgentKind.AGENT)
        assert refused.value.faults[0].path == "kind"
        agent_delete(agent=Agent.objects.get(name="relay"))
        assert agent_config(Agent.objects.get(name="below"))["parent"] is None

    def test_config_of_a_disabled_agent_is_empty(self) -> None:
        _, (joined,) = live_at(probing(), "a1")
        agent_update(agent=joined.agent, enabled=False)
        config = agent_config(Agent.objects.get())
        assert (config["queries"], config["sources"]) == ([], {})
