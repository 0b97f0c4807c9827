"""Configurations that people make: validated, checked on recorded epochs, forced where somebody insists."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.errors import Conflict, Malformed
from apps.rollouts.config_selectors import config_detail
from apps.rollouts.models import RefinedConfig
from apps.rollouts.proposals import learned_receive
from apps.rollouts.rollout_selectors import rollout_policy
from apps.rollouts.rollout_services import rollout_start, rollouts_advance
from apps.rollouts.services import ConfigRequest, config_check, config_create, policy_update
from apps.telemetry.configs import fixed_settings
from apps.telemetry.live_services import assignment_set
from tests.apps.rollouts.fleet import Fleet, fleet_of
from tests.apps.rollouts.learned_frames import frame_of, rows_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(db: None) -> Fleet:
    """Three agents of which all is known, and nothing is proposed by itself."""
    made = fleet_of().start()
    policy_update(cluster=made.cluster, automatic=False)
    learned_receive([frame_of(made, [row for agent in made.agents for row in rows_of(agent)])], made.now)
    RefinedConfig.objects.all().delete()
    return made


def faults(fleet: Fleet, wish: ConfigRequest, **fields: Any) -> dict[str, str]:
    with pytest.raises(Malformed) as told:
        config_create(cluster=fleet.cluster, wish=wish, **fields)
    return {fault.path: fault.message for fault in told.value.faults}


def test_config_holds_settings_for_all_and_learned_figures_where_known(fleet: Fleet) -> None:
    config = config_create(cluster=fleet.cluster, wish=ConfigRequest({"margin": 0.96}), now=fleet.now)
    assert (config.name, config.origin, config.state, config.words) == ("c-1", "person", "draft", "Sets margin 0.96")
    found = {part.agent.name if part.agent else "*": part.document for part in config.parts.all()}
    assert sorted(found) == ["*", "a1", "a2", "a3"]
    assert {len(document["operators"]) for document in found.values()} == {0, 3}
    assert {document["settings"]["margin"] for document in found.values()} == {0.96}


def test_config_may_be_limited_to_queries_and_agents(fleet: Fleet) -> None:
    wish = ConfigRequest({"method": "best-op"}, queries=("s2s",), agents=("a2",), learned=False)
    config = config_create(cluster=fleet.cluster, wish=wish, words="as published", now=fleet.now)
    part = config.parts.get()
    assert (part.agent.name, part.document["operators"], config.words) == ("a2", [], "as published")
    assert config.scope == {"queries": ["s2s"], "agents": ["a2"], "learned": False}


def test_every_fault_names_its_field(fleet: Fleet) -> None:
    found = faults(
        fleet, ConfigRequest({"margin": 0.5, "colour": 1}, queries=("nope",), agents=("a9",)), words="x" * 201
    )
    assert set(found) == {"settings.margin", "settings.colour", "queries[0]", "agents[0]", "words"}
    assert found["queries[0]"] == "'nope' is no live query that an agent adapts; there are: s2s"
    assert found["settings.margin"] == "margin is 0.5; allowed: a finite number from 0.9 to 0.98"
    told = faults(fleet, ConfigRequest(fixed_settings([0.0])))["settings.load_factors"]
    assert told.startswith("load_factors has 1 items; allowed: 3")


def test_agents_set_by_hand_take_no_part(fleet: Fleet) -> None:
    assignment_set(live=fleet.live, agent=fleet.agents[0], settings=fixed_settings([1.0, 1.0, 1.0]))
    assert "agents[0]" in faults(fleet, ConfigRequest({}, agents=("a1",)))


def test_check_predicts_on_recorded_epochs(fleet: Fleet) -> None:
    checked = config_check(cluster=fleet.cluster, wish=ConfigRequest({"method": "all-sp"}), now=fleet.now)
    assert checked.health == "worse"
    query = checked.queries["s2s"]
    assert (query.bytes_after, query.overflow_pp) == (86.0, 0.0)
    assert query.bytes_before == pytest.approx(0.86 * 0.1 * 60)  # all of it near the data: 95 us of 2 ms a record
    assert "% more bytes per record (limit 5%)" in checked.reasons[0]
    assert not RefinedConfig.objects.exists()
    good = config_check(cluster=fleet.cluster, wish=ConfigRequest({"margin": 0.98}), now=fleet.now)
    assert (good.health, good.parts, good.predicted_parts) == ("good", 3, 3)


def test_check_predicts_overflow_where_the_budget_is_small(fleet: Fleet) -> None:
    fleet.records = lambda agent: 10_000  # 95 us each are 0.95 s of 0.2 s
    fleet.step(60)
    checked = config_check(cluster=fleet.cluster, wish=ConfigRequest({"method": "all-src"}), now=fleet.now)
    assert any("points more records would overflow (limit 1)" in reason for reason in checked.reasons)


def test_check_predicts_nothing_without_learned_figures() -> None:
    fleet = fleet_of("a1")
    checked = config_check(cluster=fleet.cluster, wish=ConfigRequest({"method": "all-sp"}), now=fleet.now)
    assert (checked.health, checked.predicted_parts) == ("unknown", 0)


def test_config_refused_by_its_check_starts_only_by_force(fleet: Fleet) -> None:
    config = config_create(cluster=fleet.cluster, wish=ConfigRequest(fixed_settings([0.0, 0.0, 0.0])), now=fleet.now)
    assert config.state == "refused"
    with pytest.raises(Conflict, match="It can be forced") as told:
        rollout_start(config=config, now=fleet.now)
    assert told.value.code == "check_refused"
    rollout = rollout_start(config=config, now=fleet.now, force=True)
    assert [event.words for event in rollout.events.all()] == ["started by force", "canaries begin"]
    assert rollouts_advance(fleet.now) == 0


def test_parts_are_shown_beside_the_previous_ones(fleet: Fleet) -> None:
    config_create(cluster=fleet.cluster, wish=ConfigRequest({"margin": 0.96}), now=fleet.now)
    rollout_start(config=RefinedConfig.objects.get(), now=fleet.now)
    fleet.until(lambda: fleet.state(RefinedConfig.objects.get(number=1))[0] == "done")
    wish = ConfigRequest({"margin": 0.97}, agents=("a1",), learned=False)
    second = config_detail(config_create(cluster=fleet.cluster, wish=wish, now=fleet.now))
    assert second.settings == (("margin", "0.96", "0.97"),)
    (part,) = second.parts
    assert (part.query, part.agent) == ("s2s", "a1")
    assert part.changes == (("margin", "0.96", "0.97"), ("planned load factors", "1, 1, 1", "–"))
    assert second.rollout is None


def test_policy_update_names_every_fault(fleet: Fleet) -> None:
    with pytest.raises(Malformed) as told:
        policy_update(cluster=fleet.cluster, waves=[0.5, 0.3, 1.0], canary_epochs=3, bytes_rel=-1.0)
    assert {fault.path for fault in told.value.faults} == {"waves", "canary_epochs", "bytes_rel"}
    assert policy_update(cluster=fleet.cluster, waves=[0.5, 1.0]).waves == [0.5, 1.0]
    assert rollout_policy(fleet.cluster).automatic is False
