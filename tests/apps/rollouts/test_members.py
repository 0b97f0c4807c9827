"""Agents of a rollout that leave, join, fall silent, are set by hand or refuse."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from apps.rollouts.models import Rollout, RolloutMember
from apps.rollouts.rollout_services import rollouts_advance
from apps.rollouts.services import policy_update
from apps.rollouts.versions import part_of
from apps.telemetry.agent_services import agent_delete, agent_update
from apps.telemetry.configs import agent_config, fixed_settings
from apps.telemetry.live_services import assignment_set
from apps.telemetry.models import Assignment, LiveQuery
from tests.apps.rollouts.fleet import BAD, fleet_of, join, started, words

pytestmark = pytest.mark.django_db


class TestAgents:
    def test_silent_agent_does_not_hold_up_the_rollout_and_gets_it_later(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        fleet.silent = {"a2"}
        fleet.step(4)
        rollout = started(fleet)
        assert RolloutMember.objects.get(agent__name="a2").stage == 2  # agents that report come first
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 2))
        fleet.step(8)
        verdict = Rollout.objects.get().verdict
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert any(note.startswith("a2 has not acknowledged it since") for note in verdict["notes"])
        fleet.silent = set()
        fleet.step()
        assert fleet.holders(1) == {"a1", "a2", "a3", "a4"}

    def test_canaries_that_stop_reporting_cause_a_rollback(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.step(2)
        fleet.silent = fleet.holders(1)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolling-back")
        assert "stopped reporting" in Rollout.objects.get().reasons[0]
        fleet.silent = set()
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert not fleet.holders(1)

    def test_downtime_of_the_console_makes_no_agent_silent(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.step(2)
        fleet.now += timedelta(hours=1)
        rollouts_advance(fleet.now)  # the agents have not come back yet
        assert fleet.state(rollout.config) == ("canary", 0)
        slow = next(agent.name for agent in fleet.agents if agent.name in fleet.holders(1))
        fleet.silent = {slow}
        fleet.step(2)
        fleet.silent = set()
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")

    def test_refusal_by_the_canary_causes_a_rollback(self) -> None:
        fleet = fleet_of().start()
        fleet.refuses = dict.fromkeys(("a1", "a2", "a3"), "cost of rtt is more than tenfold apart")
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolling-back")
        reasons = Rollout.objects.get().reasons
        assert reasons[0] == "1 of 1 refuse it"
        assert "refuses it: cost of rtt is more than tenfold apart" in reasons[1]

    def test_single_refusal_of_many_is_noted(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        rollout = started(fleet)
        last = RolloutMember.objects.filter(stage=2).first()
        assert last is not None
        fleet.refuses = {last.agent.name: "it is for another plan"}
        policy_update(cluster=fleet.cluster, waves=[1.0])
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 2))
        fleet.until(lambda: fleet.state(rollout.config)[0] in ("done", "rolling-back"))
        assert f"{last.agent.name} refuses it: it is for another plan" in Rollout.objects.get().verdict["notes"]

    def test_agent_joining_during_a_rollout_is_in_the_last_wave(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        join(fleet, "a4")
        fleet.step()
        assert RolloutMember.objects.get(agent__name="a4").stage == 1
        assert "a4" not in fleet.holders(1)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert "a4" in fleet.holders(1)

    def test_agent_joining_afterwards_gets_the_config_in_force(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        join(fleet, "a4")
        fleet.step()
        assert "a4" in fleet.holders(1)

    def test_agents_that_leave_drop_out(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        rollout = started(fleet)
        fleet.step()
        canary = next(agent for agent in fleet.agents if agent.name in fleet.holders(1))
        other, gone, hand = (agent for agent in fleet.agents if agent != canary)
        agent_update(agent=other, enabled=False)
        agent_delete(agent=gone)
        fleet.agents = [canary, hand]
        assignment_set(live=fleet.live, agent=hand, settings=fixed_settings([1.0, 1.0, 0.0]))
        assert agent_config(hand)["queries"][0]["refined"] is None
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert [member.agent for member in rollout.members.all()] == [canary]

    def test_agent_set_by_hand_for_a_while_has_to_apply_again(self) -> None:
        fleet = fleet_of().start()
        policy_update(cluster=fleet.cluster, waves=[1.0], wave_epochs=80)
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 1))
        fleet.step(8)  # longer ago than what is silent
        member = rollout.members.filter(stage=1).select_related("agent")[0]
        fleet.behaviours[0] = BAD  # while it is set by hand: no doing of the configuration
        assignment_set(live=fleet.live, agent=member.agent, settings=fixed_settings([1.0, 1.0, 0.0]))
        fleet.step(2)
        assert member.agent.name not in fleet.holders(1)
        assignment_set(live=fleet.live, agent=member.agent, settings={})
        fleet.now += timedelta(seconds=2)
        rollouts_advance(fleet.now)  # before it answers
        member.refresh_from_db()
        assert (member.state, member.at, fleet.state(rollout.config)) == ("sent", fleet.now, ("wave", 1))
        fleet.until(lambda: fleet.state(rollout.config)[0] != "wave")
        assert fleet.state(rollout.config)[0] == "done", Rollout.objects.get().reasons
        assert fleet.holders(1) == {"a1", "a2", "a3"}

    def test_agent_lost_after_it_was_set_by_hand_counts_as_lost(self) -> None:
        fleet = fleet_of().start()
        policy_update(cluster=fleet.cluster, waves=[1.0], wave_epochs=80)
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 1))
        fleet.step(2)
        agent = rollout.members.filter(stage=1).select_related("agent")[0].agent
        assignment_set(live=fleet.live, agent=agent, settings=fixed_settings([1.0, 1.0, 0.0]))
        fleet.step()
        fleet.silent = {agent.name}
        assignment_set(live=fleet.live, agent=agent, settings={})
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolling-back", most=14)
        assert "stopped reporting" in Rollout.objects.get().reasons[0]

    def test_rollout_without_members_is_rolled_back(self) -> None:
        fleet = fleet_of("a1").start()
        rollout = started(fleet)
        agent_update(agent=fleet.agents[0], enabled=False)
        fleet.step(2)
        assert fleet.state(rollout.config)[0] == "rolled-back"
        agent_update(agent=fleet.agents[0], enabled=True)
        fleet.step()
        assert fleet.holders(2) == {"a1"}

    def test_new_plan_stops_the_rollout(self) -> None:
        """Of what was never judged nothing comes back with the old plan."""
        fleet = fleet_of("a1").start()
        rollout = started(fleet)
        plan = fleet.live.plan
        LiveQuery.objects.update(plan="another")
        fleet.step()
        assert fleet.state(rollout.config)[0] == "stopped"
        LiveQuery.objects.update(plan=plan)
        assert part_of(Assignment.objects.get()) is None

    def test_canaries_that_left_are_replaced(self) -> None:
        fleet = fleet_of().start()
        fleet.behaviours[1] = BAD
        rollout = started(fleet)
        fleet.step()
        (gone,) = fleet.holders(1)
        agent_update(agent=next(agent for agent in fleet.agents if agent.name == gone), enabled=False)
        fleet.silent = {gone}
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert len(fleet.holders(2)) == 1
        assert gone not in fleet.holders(2)
        assert any(word.startswith("canaries that left or are silent are replaced by ") for word in words(rollout))

    def test_canaries_that_never_answered_are_replaced(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        canary = rollout.members.get(stage=0).agent.name
        fleet.silent = {canary}
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert fleet.holders(1) == {"a1", "a2", "a3"} - {canary}

    def test_last_wave_of_silent_agents_is_not_waited_for(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4", "a5").start()
        rollout = started(fleet)
        fleet.silent = {member.agent.name for member in rollout.members.filter(stage=2).select_related("agent")}
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert len(fleet.holders(1)) == 2
        fleet.silent = set()
        fleet.step()
        assert len(fleet.holders(1)) == 5

    @pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
    def test_clock_skew_of_an_hour_is_corrected(self, ahead_s: float) -> None:
        fleet = fleet_of().start(0)
        fleet.ahead_s = {"a1": ahead_s, "a2": ahead_s + 17.0}
        fleet.behaviours[1] = BAD
        fleet.start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert re.search(r"control 40\S* → 4[01]\S* at 2", Rollout.objects.get().reasons[0])
