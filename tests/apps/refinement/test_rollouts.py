"""Rollouts of a simulated fleet, told as stories: by canaries and waves, or back."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from apps.core.errors import Conflict
from apps.refinement import signals
from apps.refinement.configuring import Wish
from apps.refinement.giving import part_of
from apps.refinement.models import RefinedConfig, RefinedPart, Rollout, RolloutMember
from apps.refinement.retention import configs_purge
from apps.refinement.selectors import rollout_view
from apps.refinement.services import (
    canaries_add,
    config_create,
    parts_renew,
    policy_update,
    rollout_back,
    rollout_pause,
    rollout_resume,
    rollout_start,
    rollouts_advance,
)
from apps.telemetry.adapting import fixed
from apps.telemetry.configs import agent_config
from apps.telemetry.models import Assignment, LiveQuery
from apps.telemetry.services import agent_delete, agent_update, assignment_set
from tests.apps.little import user
from tests.apps.refinement.fleet import GOOD, Behaviour, Fleet, fleet_of, join

pytestmark = pytest.mark.django_db

BAD = Behaviour(bytes_per_record=80.0)
WISH = Wish({"margin": 0.96})


def made(fleet: Fleet, wish: Wish = WISH) -> RefinedConfig:
    return config_create(cluster=fleet.cluster, wish=wish, now=fleet.now)


def started(fleet: Fleet, wish: Wish = WISH) -> Rollout:
    return rollout_start(config=made(fleet, wish), now=fleet.now)


def words(rollout: Rollout) -> list[str]:
    return [event.words for event in rollout.events.all()]


class TestByStages:
    def test_a_good_one_gets_to_all(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4", "a5").start()
        fleet.behaviours[1] = GOOD
        rollout = started(fleet)
        fleet.step()
        assert len(fleet.holders(1)) == 1
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 1))
        fleet.step()
        assert len(fleet.holders(1)) == 2
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert fleet.holders(1) == {"a1", "a2", "a3", "a4", "a5"}
        rollout.refresh_from_db()
        assert rollout.config.state == "current"
        assert words(rollout) == ["started", "canaries begin", "wave 1 begins", "wave 2 begins", "done"]

    def test_a_bad_one_is_stopped_at_the_canary_and_taken_back(self) -> None:
        fleet = fleet_of().start()
        fleet.behaviours[1] = BAD
        rollout = started(fleet)
        reached: set[str] = set()

        def is_back() -> bool:
            reached.update(fleet.holders(1))
            return fleet.state(rollout.config)[0] == "rolled-back"

        fleet.until(is_back)
        assert len(reached) == 1
        rollout.refresh_from_db()
        assert rollout.reasons[0].startswith("s2s: bytes sent per record 40")
        assert re.search(r"\+100 ± 0\.\d+ % \(limit \+5 %\)", rollout.reasons[0])
        assert "2 without it 40" in rollout.reasons[0]
        back = RefinedConfig.objects.get(number=2)
        assert (back.origin, back.state, back.parent) == ("rollback", "current", rollout.config)
        assert fleet.holders(2) == reached
        assert RefinedConfig.objects.get(number=1).state == "rolled-back"
        document = RefinedPart.objects.get(config=back).document
        assert (document["settings"], document["operators"]) == ({}, [])  # what it had: its own settings

    @pytest.mark.parametrize(
        ("behaviour", "reason"),
        [
            (Behaviour(overflow=0.04), "records overflowing 0 → 4 % at 1 agent, +4 points (limit +1 points)"),
            (Behaviour(delay_s=1.4), "delay 0.2 → 1.4 s at 1 agent, +1.2 s (limit +0.5 s)"),
            (Behaviour(cpu_us=40.0), "CPU time per record 20 → 40 µs at 1 agent, +100 % (limit +10 %)"),
        ],
    )
    def test_each_measure_stops_it(self, behaviour: Behaviour, reason: str) -> None:
        fleet = fleet_of().start()
        fleet.behaviours[1] = behaviour
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert reason in Rollout.objects.get().reasons[0]

    def test_a_single_agent_is_compared_with_itself(self) -> None:
        fleet = fleet_of("a1").start()
        fleet.behaviours[1] = BAD
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert "without it" not in Rollout.objects.get().reasons[0]
        fleet.behaviours[3] = GOOD
        again = started(fleet)
        assert again.config.number == 3
        fleet.until(lambda: fleet.state(again.config)[0] == "done")

    def test_cpu_time_of_a_single_agent_is_doubtful_and_let_pass(self) -> None:
        fleet = fleet_of("a1").start()
        fleet.behaviours[1] = Behaviour(cpu_us=28.0)
        rollout = started(fleet)
        fleet.step(14)
        assert fleet.state(rollout.config) == ("canary", 0)
        view = rollout_view(Rollout.objects.get())
        assert view.badge == "Canary doubtful"
        assert "CPU time per record 20 → 28 µs at 1 agent, +40 % (limit +10 %); that may be a busy" in view.reasons[0]
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")

    def test_a_load_that_grows_everywhere_is_not_its_doing(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.load = 1.6
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")

    def test_agents_of_other_rates_are_compared_per_record(self) -> None:
        fleet = fleet_of().start(0)
        fleet.records = lambda agent: 1000 if agent.name == "a1" else 40
        fleet.start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")

    def test_without_records_nothing_is_judged(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.records = lambda agent: 0
        fleet.step(25)
        assert fleet.state(rollout.config) == ("canary", 0)
        assert "0 records came" in Rollout.objects.get().verdict["reasons"][0]


class TestAgents:
    def test_one_that_is_silent_holds_nothing_up_and_gets_it_later(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        fleet.silent = {"a2"}
        fleet.step(4)
        rollout = started(fleet)
        assert RolloutMember.objects.get(agent__name="a2").stage == 2  # agents that report come first
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 2))
        fleet.step(8)
        verdict = Rollout.objects.get().verdict
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert any(note.startswith("a2 has not answered since") for note in verdict["notes"])
        fleet.silent = set()
        fleet.step()
        assert fleet.holders(1) == {"a1", "a2", "a3", "a4"}

    def test_canaries_that_report_no_more_are_a_reason_to_go_back(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.step(2)
        fleet.silent = fleet.holders(1)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolling-back")
        assert "report no more" in Rollout.objects.get().reasons[0]
        fleet.silent = set()
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert not fleet.holders(1)

    def test_a_console_that_was_away_takes_nobody_for_silent(self) -> None:
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

    def test_a_refusal_at_the_canary_is_a_reason_to_go_back(self) -> None:
        fleet = fleet_of().start()
        fleet.refuses = dict.fromkeys(("a1", "a2", "a3"), "cost of rtt is more than tenfold apart")
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolling-back")
        reasons = Rollout.objects.get().reasons
        assert reasons[0] == "1 of 1 refuse it"
        assert "refuses it: cost of rtt is more than tenfold apart" in reasons[1]

    def test_one_refusal_of_many_is_named(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        rollout = started(fleet)
        last = RolloutMember.objects.filter(stage=2).first()
        assert last is not None
        fleet.refuses = {last.agent.name: "it is for another plan"}
        policy_update(cluster=fleet.cluster, waves=[1.0])
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 2))
        fleet.until(lambda: fleet.state(rollout.config)[0] in ("done", "rolling-back"))
        assert f"{last.agent.name} refuses it: it is for another plan" in Rollout.objects.get().verdict["notes"]

    def test_one_that_joins_meanwhile_is_in_the_last_wave(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        join(fleet, "a4")
        fleet.step()
        assert RolloutMember.objects.get(agent__name="a4").stage == 1
        assert "a4" not in fleet.holders(1)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert "a4" in fleet.holders(1)

    def test_one_that_joins_afterwards_has_what_all_have(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        join(fleet, "a4")
        fleet.step()
        assert "a4" in fleet.holders(1)

    def test_those_that_leave_drop_out(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        rollout = started(fleet)
        fleet.step()
        canary = next(agent for agent in fleet.agents if agent.name in fleet.holders(1))
        other, gone, hand = (agent for agent in fleet.agents if agent != canary)
        agent_update(agent=other, enabled=False)
        agent_delete(agent=gone)
        fleet.agents = [canary, hand]
        assignment_set(live=fleet.live, agent=hand, settings=fixed([1.0, 1.0, 0.0]))
        assert agent_config(hand)["queries"][0]["refined"] is None
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert [member.agent for member in rollout.members.all()] == [canary]

    def test_one_that_is_set_by_hand_for_a_while_is_waited_for_anew(self) -> None:
        fleet = fleet_of().start()
        policy_update(cluster=fleet.cluster, waves=[1.0], wave_epochs=80)
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 1))
        fleet.step(8)  # longer ago than what is silent
        member = rollout.members.filter(stage=1).select_related("agent")[0]
        fleet.behaviours[0] = BAD  # while it is set by hand: no doing of the configuration
        assignment_set(live=fleet.live, agent=member.agent, settings=fixed([1.0, 1.0, 0.0]))
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

    def test_one_that_is_gone_after_it_was_set_by_hand_is_lost(self) -> None:
        fleet = fleet_of().start()
        policy_update(cluster=fleet.cluster, waves=[1.0], wave_epochs=80)
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config) == ("wave", 1))
        fleet.step(2)
        agent = rollout.members.filter(stage=1).select_related("agent")[0].agent
        assignment_set(live=fleet.live, agent=agent, settings=fixed([1.0, 1.0, 0.0]))
        fleet.step()
        fleet.silent = {agent.name}
        assignment_set(live=fleet.live, agent=agent, settings={})
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolling-back", most=14)
        assert "report no more" in Rollout.objects.get().reasons[0]

    def test_where_nobody_is_left_it_is_taken_back_before_somebody_returns(self) -> None:
        fleet = fleet_of("a1").start()
        rollout = started(fleet)
        agent_update(agent=fleet.agents[0], enabled=False)
        fleet.step(2)
        assert fleet.state(rollout.config)[0] == "rolled-back"
        agent_update(agent=fleet.agents[0], enabled=True)
        fleet.step()
        assert fleet.holders(2) == {"a1"}

    def test_another_plan_stops_it_for_good(self) -> None:
        """Of what was never judged nothing comes back with the old plan."""
        fleet = fleet_of("a1").start()
        rollout = started(fleet)
        plan = fleet.live.plan
        LiveQuery.objects.update(plan="another")
        fleet.step()
        assert fleet.state(rollout.config)[0] == "stopped"
        LiveQuery.objects.update(plan=plan)
        assert part_of(Assignment.objects.get()) is None

    def test_others_take_the_place_of_canaries_that_left(self) -> None:
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
        assert any(one.startswith("canaries instead of those that left") for one in words(rollout))

    def test_others_take_the_place_of_canaries_that_never_answered(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        canary = rollout.members.get(stage=0).agent.name
        fleet.silent = {canary}
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert fleet.holders(1) == {"a1", "a2", "a3"} - {canary}

    def test_a_last_wave_of_agents_that_are_away_is_not_waited_for(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4", "a5").start()
        rollout = started(fleet)
        fleet.silent = {member.agent.name for member in rollout.members.filter(stage=2).select_related("agent")}
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert len(fleet.holders(1)) == 2
        fleet.silent = set()
        fleet.step()
        assert len(fleet.holders(1)) == 5

    @pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
    def test_clocks_that_are_wrong_by_an_hour(self, ahead_s: float) -> None:
        fleet = fleet_of().start(0)
        fleet.ahead_s = {"a1": ahead_s, "a2": ahead_s + 17.0}
        fleet.behaviours[1] = BAD
        fleet.start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert "2 without it 40" in Rollout.objects.get().reasons[0]


class TestAnswers:
    def test_an_answer_is_noted_at_once(self, reports_lead: None) -> None:
        fleet = fleet_of().start(0)
        rollout = started(fleet)
        fleet.step(advance=False)
        assert rollout.members.get(stage=0).state == "applied"

    def test_going_back_has_ended_with_the_last_answer(self, reports_lead: None) -> None:
        fleet = fleet_of().start(0)
        rollout = started(fleet)
        fleet.step(advance=False)
        rollout_back(rollout=rollout, reason="a mistake")
        signals._looked.clear()  # more than a second went by
        fleet.step(advance=False)
        assert fleet.state(rollout.config)[0] == "rolled-back"
        assert not fleet.holders(1)


class TestByHand:
    def test_pausing_freezes_until_somebody_goes_on(self) -> None:
        fleet = fleet_of().start()
        fleet.behaviours[1] = BAD
        rollout = rollout_pause(rollout=started(fleet), now=fleet.now)
        assert rollout_pause(rollout=rollout).state == "paused"
        fleet.step(20)
        assert fleet.state(rollout.config) == ("paused", 0)
        assert Rollout.objects.get().verdict["health"] == "worse"
        fleet.step(200)  # what it was compared with is forgotten
        rollout_resume(rollout=rollout, now=fleet.now)
        assert fleet.state(rollout.config)[0] == "rolling-back"
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back", most=5)

    def test_back_by_hand_after_it_is_done(self) -> None:
        fleet = fleet_of().start()
        first, second = started(fleet), made(fleet, Wish({"margin": 0.97}))
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        rollout = rollout_start(config=second, now=fleet.now)
        fleet.until(lambda: fleet.state(second)[0] == "done")
        join(fleet, "a4")
        fleet.step()
        assert fleet.holders(2) == {"a1", "a2", "a3", "a4"}
        rollout_back(rollout=rollout, reason="it was the wrong one", now=fleet.now)
        assert rollout_back(rollout=rollout).state == "rolling-back"
        fleet.until(lambda: fleet.state(second)[0] == "rolled-back", most=3)
        assert fleet.holders(3) == {"a1", "a2", "a3", "a4"}
        settings = {part.document["settings"]["margin"] for part in RefinedPart.objects.filter(config__number=3)}
        assert settings == {0.96}
        states = dict(RefinedConfig.objects.values_list("number", "state"))
        assert states == {1: "superseded", 2: "rolled-back", 3: "current"}

    def test_back_by_hand_also_where_another_one_was_taken_back_since(self) -> None:
        fleet = fleet_of().start()
        first = started(fleet)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        second = started(fleet)
        fleet.step()
        rollout_back(rollout=second, now=fleet.now)
        fleet.until(lambda: fleet.state(second.config)[0] == "rolled-back")
        assert len(fleet.holders(3)) == 1
        rollout_back(rollout=first, now=fleet.now)
        fleet.until(lambda: fleet.state(first.config)[0] == "rolled-back")
        assert fleet.holders(4) == {"a1", "a2", "a3"}

    def test_not_what_is_in_force_nowhere(self) -> None:
        fleet = fleet_of("a1").start()
        first = started(fleet)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        second = started(fleet)
        fleet.until(lambda: fleet.state(second.config)[0] == "done")
        with pytest.raises(Conflict, match="c-1 is in force nowhere any more"):
            rollout_back(rollout=first, now=fleet.now)
        assert RefinedConfig.objects.count() == 2

    def test_not_while_another_one_is_under_way(self) -> None:
        fleet = fleet_of().start()
        first = started(fleet)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        started(fleet)
        with pytest.raises(Conflict, match="c-2 is on its way"):
            rollout_back(rollout=first, now=fleet.now)

    def test_what_has_no_next_step_is_refused(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        for call in (rollout_pause, rollout_resume):
            with pytest.raises(Conflict, match="rollout of c-1 is done"):
                call(rollout=rollout)
        with pytest.raises(Conflict, match="goes out once"):
            rollout_start(config=rollout.config)

    def test_more_canaries(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        rollout = started(fleet)
        others = [agent for agent in fleet.agents if not rollout.members.filter(agent=agent, stage=0).exists()]
        ada = user(name="ada")
        canaries_add(rollout=rollout, agents=others[:1], user=ada, now=fleet.now)
        event = rollout.events.last()
        assert (event.by, event.words) == (ada, f"made canaries by hand: {others[0].name}")
        fleet.step()
        assert len(fleet.holders(1)) == 2
        assert others[0].name in fleet.holders(1)
        wished = made(fleet)
        waiting = rollout_start(config=wished, canaries=others[1:2], now=fleet.now)
        canaries_add(rollout=waiting, agents=others[2:], now=fleet.now)
        fleet.until(lambda: fleet.state(wished)[0] == "canary")
        chosen = {member.agent for member in RolloutMember.objects.filter(rollout__config=wished, stage=0)}
        assert chosen == set(others[1:])
        with pytest.raises(Conflict, match="cannot be given more canaries"):
            canaries_add(rollout=rollout, agents=others)


class TestTwo:
    def test_the_second_waits_in_line(self) -> None:
        fleet = fleet_of().start()
        first, second, third = started(fleet), started(fleet), started(fleet)
        assert [fleet.state(one.config)[0] for one in (first, second, third)] == ["canary", "waiting", "waiting"]
        fleet.until(lambda: fleet.state(second.config)[0] == "canary")
        assert (fleet.state(first.config)[0], fleet.state(third.config)[0]) == ("done", "waiting")
        rollout_back(rollout=third, reason="not needed", now=fleet.now)
        assert fleet.state(third.config)[0] == "stopped"
        fleet.until(lambda: fleet.state(second.config)[0] == "done")
        assert fleet.holders(2) == {"a1", "a2", "a3"}

    def test_what_waited_behind_one_that_was_taken_back_gets_a_higher_number(self) -> None:
        fleet = fleet_of().start()
        fleet.behaviours[1] = BAD
        first, second = started(fleet), started(fleet)
        fleet.until(lambda: fleet.state(first.config)[0] == "rolled-back")
        second.refresh_from_db()
        assert second.config.number == 4
        assert second.config.words.endswith("(was c-2)")
        assert RefinedConfig.objects.get(number=2).state == "stopped"
        fleet.until(lambda: fleet.state(second.config)[0] == "done")
        assert fleet.holders(4) == {"a1", "a2", "a3"}

    def test_a_cluster_that_fails_holds_up_no_other(self, caplog: pytest.LogCaptureFixture) -> None:
        broken, sound = fleet_of("a1", slug="eu-1").start(0), fleet_of("b1", slug="us-1").start(0)
        first, second = started(broken), started(sound)
        Rollout.objects.filter(pk=first.pk).update(policy={})
        sound.step()
        assert second.members.get().state == "applied"
        assert "rollouts of eu-1 are not led on" in caplog.text


class TestValidity:
    def test_what_is_in_force_is_stamped_anew_in_time(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        assert parts_renew(fleet.now) == 0
        before = agent_config(fleet.agents[0])
        later = fleet.now + timedelta(minutes=31)
        assert parts_renew(later) == 1
        fleet.agents[0].refresh_from_db()
        after = agent_config(fleet.agents[0])
        assert after["version"] > before["version"]
        document = after["queries"][0]["refined"]
        assert document["valid_from_us"] == round(later.timestamp() * 1e6)
        assert document["version"] == 1

    def test_what_a_wave_stamps_anew_is_told_to_those_before_it(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.step()
        canary = rollout.members.get(stage=0).agent
        before = agent_config(canary)
        fleet.now += timedelta(minutes=31)
        canaries_add(rollout=rollout, agents=[rollout.members.filter(stage=1)[0].agent], now=fleet.now)
        canary.refresh_from_db()
        assert canary.config_version > before["version"]

    def test_what_ended_long_ago_is_forgotten_and_no_number_comes_twice(self) -> None:
        fleet = fleet_of("a1").start()
        first, second = started(fleet), started(fleet)
        rollout_back(rollout=second, now=fleet.now)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        third = started(fleet)
        rollout_back(rollout=third, now=fleet.now)
        fleet.step(2)
        assert configs_purge(fleet.now + timedelta(days=29)) == 0
        assert configs_purge(fleet.now + timedelta(days=31)) == 3
        assert sorted(RefinedConfig.objects.values_list("number", "state")) == [(4, "current")]
        assert made(fleet).number == 5
