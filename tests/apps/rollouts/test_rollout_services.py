"""Rollouts that somebody pauses, resumes, takes back, or adds canaries to."""

from __future__ import annotations

import pytest

from apps.core.errors import Conflict
from apps.rollouts.models import RefinedConfig, RefinedPart, Rollout, RolloutMember
from apps.rollouts.rollout_services import canaries_add, rollout_pause, rollout_resume, rollout_roll_back, rollout_start
from apps.rollouts.services import ConfigRequest
from tests.apps.rollouts.fleet import BAD, fleet_of, join, made, started
from tests.apps.small_cluster import user

pytestmark = pytest.mark.django_db


class TestByHand:
    def test_paused_rollout_stays_until_it_is_resumed(self) -> None:
        fleet = fleet_of().start()
        fleet.behaviours[1] = BAD
        rollout = rollout_pause(rollout=started(fleet), now=fleet.now)
        assert rollout_pause(rollout=rollout).state == "paused"
        fleet.step(20)
        assert fleet.state(rollout.config) == ("paused", 0)
        assert Rollout.objects.get().verdict["health"] == "worse"
        fleet.skip(200)  # what it was compared with is forgotten
        rollout_resume(rollout=rollout, now=fleet.now)
        assert fleet.state(rollout.config)[0] == "rolling-back"
        fleet.until(lambda: fleet.state(rollout.config)[0] == "rolled-back", most=5)

    def test_rollback_by_hand_after_the_rollout_is_done(self) -> None:
        fleet = fleet_of().start()
        first, second = started(fleet), made(fleet, ConfigRequest({"margin": 0.97}))
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        rollout = rollout_start(config=second, now=fleet.now)
        fleet.until(lambda: fleet.state(second)[0] == "done")
        join(fleet, "a4")
        fleet.step()
        assert fleet.holders(2) == {"a1", "a2", "a3", "a4"}
        rollout_roll_back(rollout=rollout, reason="it was the wrong one", now=fleet.now)
        assert rollout_roll_back(rollout=rollout).state == "rolling-back"
        fleet.until(lambda: fleet.state(second)[0] == "rolled-back", most=3)
        assert fleet.holders(3) == {"a1", "a2", "a3", "a4"}
        settings = {part.document["settings"]["margin"] for part in RefinedPart.objects.filter(config__number=3)}
        assert settings == {0.96}
        states = dict(RefinedConfig.objects.values_list("number", "state"))
        assert states == {1: "superseded", 2: "rolled-back", 3: "current"}

    def test_rollback_by_hand_after_a_later_rollback(self) -> None:
        fleet = fleet_of().start()
        first = started(fleet)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        second = started(fleet)
        fleet.step()
        rollout_roll_back(rollout=second, now=fleet.now)
        fleet.until(lambda: fleet.state(second.config)[0] == "rolled-back")
        assert len(fleet.holders(3)) == 1
        rollout_roll_back(rollout=first, now=fleet.now)
        fleet.until(lambda: fleet.state(first.config)[0] == "rolled-back")
        assert fleet.holders(4) == {"a1", "a2", "a3"}

    def test_rollback_of_a_config_in_force_nowhere_is_refused(self) -> None:
        fleet = fleet_of("a1").start()
        first = started(fleet)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        second = started(fleet)
        fleet.until(lambda: fleet.state(second.config)[0] == "done")
        with pytest.raises(Conflict, match="c-1 is in force nowhere any more"):
            rollout_roll_back(rollout=first, now=fleet.now)
        assert RefinedConfig.objects.count() == 2

    def test_rollback_while_another_rollout_is_under_way_is_refused(self) -> None:
        fleet = fleet_of().start()
        first = started(fleet)
        fleet.until(lambda: fleet.state(first.config)[0] == "done")
        started(fleet)
        with pytest.raises(Conflict, match="c-2 is on its way"):
            rollout_roll_back(rollout=first, now=fleet.now)

    def test_step_from_an_ended_state_is_refused(self) -> None:
        fleet = fleet_of().start()
        rollout = started(fleet)
        fleet.until(lambda: fleet.state(rollout.config)[0] == "done")
        for call in (rollout_pause, rollout_resume):
            with pytest.raises(Conflict, match="rollout of c-1 is done"):
                call(rollout=rollout)
        with pytest.raises(Conflict, match="goes out once"):
            rollout_start(config=rollout.config)

    def test_canaries_are_added_by_hand(self) -> None:
        fleet = fleet_of("a1", "a2", "a3", "a4").start()
        rollout = started(fleet)
        others = [agent for agent in fleet.agents if not rollout.members.filter(agent=agent, stage=0).exists()]
        ada = user(name="ada")
        canaries_add(rollout=rollout, agents=others[:1], user=ada, now=fleet.now)
        event = rollout.events.last()
        assert (event.by, event.words) == (ada, f"canaries added by hand: {others[0].name}")
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
