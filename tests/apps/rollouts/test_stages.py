"""Rollouts of a simulated fleet, told as stories: by canaries and waves, or back."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from apps.rollouts import rollout_services
from apps.rollouts.models import RefinedConfig, RefinedPart, Rollout
from apps.rollouts.rollout_selectors import rollout_view
from apps.rollouts.rollout_services import canaries_add, rollout_roll_back
from apps.rollouts.services import configs_purge
from apps.rollouts.versions import parts_renew
from apps.telemetry.configs import agent_config
from tests.apps.rollouts.fleet import BAD, GOOD, Behaviour, fleet_of, made, started, words

pytestmark = pytest.mark.django_db


class TestByStages:
    def test_healthy_rollout_reaches_all_agents(self) -> None:
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

    def test_worse_canary_is_rolled_back(self) -> None:
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
        assert re.search(r"control 40\S* → 40\S* at 2", rollout.reasons[0])
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
    def test_each_measure_beyond_its_limit_causes_a_rollback(self, behaviour: Behaviour, reason: str) -> None:
        fleet = fleet_of().start()
        fleet.behaviours[1] = behaviour
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert reason in Rollout.objects.get().reasons[0]

    def test_single_agent_is_compared_with_its_own_past(self) -> None:
        fleet = fleet_of("a1").start()
        fleet.behaviours[1] = BAD
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back")
        assert "control" not in Rollout.objects.get().reasons[0]
        fleet.behaviours[3] = GOOD
        again = started(fleet)
        assert again.config.number == 3
        fleet.until(lambda: fleet.state(again.config)[0] == "done")

    def test_cpu_time_of_a_single_agent_is_doubtful_and_passes(self) -> None:
        fleet = fleet_of("a1").start()
        fleet.behaviours[1] = Behaviour(cpu_us=28.0)
        rollout = started(fleet)
        fleet.step(14)
        assert fleet.state(rollout.config) == ("canary", 0)
        view = rollout_view(Rollout.objects.get())
        assert view.badge == "Canary doubtful"
        assert (
            "CPU time per record 20 → 28 µs at 1 agent, +40 % (limit +10 %); possibly because the host is busy"
            in view.reasons[0]
        )
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")

    def test_load_that_grows_everywhere_is_not_blamed_on_the_config(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.load = 1.6
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")

    def test_agents_of_different_rates_are_compared_per_record(self) -> None:
        fleet = fleet_of().start(0)
        fleet.records = lambda agent: 1000 if agent.name == "a1" else 40
        fleet.start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")

    def test_stage_without_records_is_not_judged(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.records = lambda agent: 0
        fleet.step(25)
        assert fleet.state(rollout.config) == ("canary", 0)
        assert "0 records came" in Rollout.objects.get().verdict["reasons"][0]


class TestAnswers:
    def test_acknowledgement_advances_the_rollout_at_once(self, reports_lead: None) -> None:
        fleet = fleet_of().start(0)
        rollout = started(fleet)
        fleet.step(advance=False)
        assert rollout.members.get(stage=0).state == "applied"

    def test_rollback_ends_with_the_last_acknowledgement(self, reports_lead: None) -> None:
        fleet = fleet_of().start(0)
        rollout = started(fleet)
        fleet.step(advance=False)
        rollout_roll_back(rollout=rollout, reason="a mistake")
        rollout_services._advanced_at.clear()  # more than a second went by
        fleet.step(advance=False)
        assert fleet.state(rollout.config)[0] == "rolled-back"
        assert not fleet.holders(1)


class TestTwo:
    def test_second_rollout_waits_for_the_first(self) -> None:
        fleet = fleet_of().start()
        first, second, third = started(fleet), started(fleet), started(fleet)
        assert [fleet.state(rollout.config)[0] for rollout in (first, second, third)] == [
            "canary",
            "waiting",
            "waiting",
        ]
        fleet.until(lambda: fleet.state(second.config)[0] == "canary")
        assert (fleet.state(first.config)[0], fleet.state(third.config)[0]) == ("done", "waiting")
        rollout_roll_back(rollout=third, reason="not needed", now=fleet.now)
        assert fleet.state(third.config)[0] == "stopped"
        fleet.until(lambda: fleet.state(second.config)[0] == "done")
        assert fleet.holders(2) == {"a1", "a2", "a3"}

    def test_config_waiting_behind_a_rollback_gets_a_higher_number(self) -> None:
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

    def test_failing_cluster_does_not_hold_up_others(self, caplog: pytest.LogCaptureFixture) -> None:
        broken, sound = fleet_of("a1", slug="eu-1").start(0), fleet_of("b1", slug="us-1").start(0)
        first, second = started(broken), started(sound)
        Rollout.objects.filter(pk=first.pk).update(policy={})
        sound.step()
        assert second.members.get().state == "applied"
        assert "rollouts of eu-1 cannot be advanced" in caplog.text


class TestValidity:
    def test_config_in_force_is_renewed_before_its_ttl_ends(self) -> None:
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

    def test_renewal_by_a_wave_reaches_earlier_stages(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.step()
        canary = rollout.members.get(stage=0).agent
        before = agent_config(canary)
        fleet.now += timedelta(minutes=31)
        canaries_add(rollout=rollout, agents=[rollout.members.filter(stage=1)[0].agent], now=fleet.now)
        canary.refresh_from_db()
        assert canary.config_version > before["version"]

    def test_old_configs_are_purged_and_numbers_stay_unique(self) -> None:
        fleet = fleet_of("a1").start()
        first, second = started(fleet), started(fleet)
        rollout_roll_back(rollout=second, now=fleet.now)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        third = started(fleet)
        rollout_roll_back(rollout=third, now=fleet.now)
        fleet.step(2)
        assert configs_purge(fleet.now + timedelta(days=29)) == 0
        assert configs_purge(fleet.now + timedelta(days=31)) == 3
        assert sorted(RefinedConfig.objects.values_list("number", "state")) == [(4, "current")]
        assert made(fleet).number == 5
