"""Configurations that say how agents share their cores: for whole agents, judged by windows, rolled back."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from apps.core.errors import Malformed
from apps.rollouts.config_selectors import config_detail, configs_by_agent
from apps.rollouts.models import RefinedConfig, Rollout, SchedulePart
from apps.rollouts.rollout_selectors import rollout_view
from apps.rollouts.rollout_services import rollout_roll_back
from apps.rollouts.schedule_selectors import schedules_of
from apps.rollouts.services import ConfigRequest, config_create, schedule_switch
from apps.rollouts.versions import parts_renew
from apps.telemetry.configs import fixed_settings
from apps.telemetry.live_services import assignment_set
from engine.klink.settings import RefinedSchedule, ScheduleSettings
from tests.apps.rollouts.fleet import Behaviour, Fleet, fleet_of, started

pytestmark = pytest.mark.django_db

IN_TURN = {"policy": "round-robin"}
SWITCH = ConfigRequest(None, schedule=IN_TURN)
LATE, SOON = Behaviour(window_s=1.6), Behaviour(window_s=0.2)


def holders(fleet: Fleet, version: int) -> set[str]:
    return {name for name, held in fleet.scheduled.items() if held == version}


def faults(fleet: Fleet, wish: ConfigRequest) -> dict[str, str]:
    with pytest.raises(Malformed) as told:
        config_create(cluster=fleet.cluster, wish=wish)
    return {fault.path: fault.message for fault in told.value.faults}


class TestMaking:
    def test_schedule_config_holds_a_document_for_all_and_none_for_queries(self) -> None:
        fleet = fleet_of()
        config = config_create(cluster=fleet.cluster, wish=SWITCH, now=fleet.now)
        assert (config.words, config.schedule, config.settings) == ("Sets scheduling policy round-robin", IN_TURN, {})
        assert not config.parts.exists()
        document = RefinedSchedule.parse(config.schedule_parts.get().document)
        assert (document.agent, document.version, document.schedule.policy) == ("*", 1, "round-robin")
        assert document.schedule == ScheduleSettings(policy="round-robin")
        assert config.checked["health"] == "unknown"

    def test_schedule_config_may_be_for_some_agents_and_beside_settings(self) -> None:
        fleet = fleet_of()
        wish = ConfigRequest({"margin": 0.96}, agents=("a2",), schedule=IN_TURN)
        config = config_create(cluster=fleet.cluster, wish=wish, now=fleet.now)
        assert config.words == "Sets margin 0.96; scheduling policy round-robin"
        assert [part.agent.name for part in config.schedule_parts.all()] == ["a2"]
        assert [part.agent.name for part in config.parts.all()] == ["a2"]

    def test_every_fault_names_its_field(self) -> None:
        fleet = fleet_of("a1")
        wish = ConfigRequest(
            None, queries=("s2s",), agents=("a9",), schedule={"policy": "lifo", "cycle_ms": 5, "speed": 1}
        )
        found = faults(fleet, wish)
        assert set(found) == {"queries", "agents[0]", "schedule.policy", "schedule.cycle_ms", "schedule.speed"}
        assert found["queries"].startswith("a schedule is of whole agents, not of queries")
        assert found["agents[0]"] == "'a9' is no agent that runs a live query; there are: a1"
        assert set(faults(fleet, ConfigRequest(None))) == {"settings"}

    def test_schedule_changes_are_shown_beside_the_previous_ones(self) -> None:
        fleet = fleet_of("a1").start()
        fleet.behaviours[1] = SOON
        rollout = started(fleet, SWITCH)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        wish = ConfigRequest(None, agents=("a1",), schedule={"policy": "fcfs", "cycle_ms": 60})
        shown = config_detail(config_create(cluster=fleet.cluster, wish=wish, now=fleet.now))
        assert shown.schedule == (("policy", "round-robin", "fcfs"), ("cycle_ms", "120", "60"))
        (part,) = shown.schedules
        assert (part.agent, part.changes) == ("a1", shown.schedule)
        assert shown.parts == ()


class TestRollout:
    def test_healthy_schedule_reaches_all_agents_even_those_set_by_hand(self) -> None:
        fleet = fleet_of().start()
        assignment_set(live=fleet.live, agent=fleet.agents[1], settings=fixed_settings([1.0, 1.0, 0.0]))
        fleet.behaviours[1] = SOON
        rollout = started(fleet, SWITCH)
        fleet.step()
        assert len(holders(fleet, 1)) == 1
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done", most=150)
        assert holders(fleet, 1) == {"a1", "a2", "a3"}
        assert not fleet.versions  # nothing was said of load factors
        states = schedules_of(fleet.cluster)
        assert {(state.config, state.wanted, state.policy, state.behind) for state in states.values()} == {
            ("c-1", "c-1", "round-robin", False)
        }
        assert {state.settings.policy for state in states.values()} == {"round-robin"}
        assert {(state.config, state.behind) for state in configs_by_agent(fleet.cluster).values()} == {("c-1", False)}
        assert RefinedConfig.objects.get().state == "current"

    def test_late_windows_at_the_canary_cause_a_rollback(self) -> None:
        fleet = fleet_of().start(warm=30)
        fleet.behaviours[1] = LATE
        rollout = started(fleet, SWITCH)
        reached: set[str] = set()

        def is_back() -> bool:
            reached.update(holders(fleet, 1))
            return fleet.state(rollout.config)[0] == "rolled-back"

        fleet.until(is_back, most=100)
        assert len(reached) == 1
        rollout.refresh_from_db()
        reason = rollout.reasons[0]
        assert re.match(r"scheduling: mean window latency 0\.4\d* → 1\.6\d* s at 1 agent, \+1\.2 ± 0\.0\d+ s", reason)
        assert re.search(r"\(limit \+0\.5 s\); control 0\.4\d* → 0\.4\d* s at 2$", reason)
        assert holders(fleet, 2) == reached
        back = SchedulePart.objects.get(config__number=2)
        assert back.document["schedule"] == ScheduleSettings().to_dict()  # said in full words

    def test_agents_without_schedule_support_are_noted_and_hold_nothing_up(self) -> None:
        fleet = fleet_of("a1", "a2")
        fleet.older = {"a2"}
        fleet.start()
        fleet.behaviours[1] = SOON
        rollout = started(fleet, SWITCH)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done", most=150)
        assert holders(fleet, 1) == {"a1"}
        member = rollout.members.get(agent__name="a2")
        assert (member.state, member.reasons) == (
            "silent", ["it reports no schedule"]
        )  # fmt: skip
        notes = Rollout.objects.get().verdict["notes"]
        assert any(
            note.startswith("a2 has not acknowledged it since") and note.endswith(member.reasons[0]) for note in notes
        )

    def test_growing_queues_cause_a_rollback(self) -> None:
        fleet = fleet_of().start(warm=30)
        fleet.behaviours[1] = Behaviour(waiting=110)
        rollout = started(fleet, SWITCH)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back", most=100)
        reason = Rollout.objects.get().reasons[0]
        assert "time in queue 0.1 → 1.1 s at 1 agent, +1 s" in reason

    def test_guard_waits_for_windows_and_shows_their_latency(self) -> None:
        fleet = fleet_of().start(warm=30)
        rollout = started(fleet, SWITCH)
        fleet.step(12)
        assert fleet.state(rollout.config) == ("canary", 0)
        view = rollout_view(Rollout.objects.get())
        assert any(reason.startswith("scheduling: ") and "more epochs are needed" in reason for reason in view.reasons)
        assert {"window", "queue"} <= {figure.key for figure in view.figures}
        fleet.until(lambda: fleet.state(rollout.config)[0] == "wave", most=60)
        assert fleet.now - rollout.created_at >= timedelta(seconds=100)  # ten windows of ten seconds

    def test_schedule_and_settings_go_out_together(self) -> None:
        fleet = fleet_of("a1").start()
        fleet.refuses["a1"] = "not today"
        rollout = started(fleet, ConfigRequest({"margin": 0.96}, schedule=IN_TURN))
        fleet.step()
        rollout.refresh_from_db()
        assert rollout.reasons == ["1 of 1 refuse it", "a1 refuses it: not today; not today"]  # each for itself
        fleet.refuses.clear()
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        again = started(fleet, ConfigRequest({"margin": 0.96}, schedule=IN_TURN))
        fleet.step()
        assert (fleet.versions["a1"], fleet.scheduled["a1"]) == (again.config.number,) * 2
        assert again.members.get().state == "applied"

    def test_rollback_restores_the_schedule_of_each_agent(self) -> None:
        fleet = fleet_of("a1", "a2").start()
        first = started(fleet, ConfigRequest(None, agents=("a1",), schedule={"policy": "fcfs"}))
        fleet.until(lambda: fleet.state(first.config)[0] == "done", most=100)
        second = started(fleet, SWITCH)
        fleet.until(lambda: fleet.state(second.config)[0] == "done", most=150)
        assert holders(fleet, 2) == {"a1", "a2"}
        rollout_roll_back(rollout=Rollout.objects.get(config=second.config), now=fleet.now)
        fleet.step(3)
        assert holders(fleet, 3) == {"a1", "a2"}
        assert {name: said["policy"] for name, said in fleet.schedules.items()} == {"a1": "fcfs", "a2": "klink"}
        assert RefinedConfig.objects.get(number=1).state == "superseded"

    def test_schedule_in_force_is_renewed_before_its_ttl_ends(self) -> None:
        fleet = fleet_of("a1").start()
        rollout = started(fleet, SWITCH)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done", most=100)
        before = SchedulePart.objects.get().document
        assert parts_renew(fleet.now) == 0
        fleet.now += timedelta(minutes=40)
        assert parts_renew(fleet.now) == 1
        after = SchedulePart.objects.get().document
        assert (after["version"], after["schedule"]) == (before["version"], before["schedule"])
        assert after["valid_from_us"] > before["valid_from_us"]
        assert RefinedSchedule.parse(after)


class TestSwitch:
    def test_repeated_switch_makes_one_config(self) -> None:
        fleet = fleet_of().start()
        first = schedule_switch(cluster=fleet.cluster, settings=IN_TURN, canaries=("a2",), now=fleet.now)
        assert (first.made, first.config.name, first.rollout.state) == (True, "c-1", "canary")
        assert [member.agent.name for member in first.rollout.members.filter(stage=0)] == ["a2"]
        again = schedule_switch(cluster=fleet.cluster, settings=IN_TURN, now=fleet.now)
        assert (again.made, again.config) == (False, first.config)
        other = schedule_switch(cluster=fleet.cluster, settings={"policy": "fcfs"}, now=fleet.now)
        assert (other.made, other.rollout.state) == (True, "waiting")

    def test_switch_to_the_policy_in_force_makes_nothing(self) -> None:
        fleet = fleet_of("a1").start()
        nothing = schedule_switch(cluster=fleet.cluster, settings={}, now=fleet.now)
        assert (nothing.made, nothing.config) == (False, None)
        rollout = started(fleet, SWITCH)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done", most=100)
        again = schedule_switch(cluster=fleet.cluster, settings={**IN_TURN, "cycle_ms": 120}, now=fleet.now)
        assert (again.made, again.config.name) == (False, "c-1")
        assert schedule_switch(cluster=fleet.cluster, settings={}, now=fleet.now).made
