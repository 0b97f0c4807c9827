"""The same rollout from several sides at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from apps.rollouts.models import RefinedConfig, Rollout, RolloutEvent
from apps.rollouts.proposals import watermarks_receive
from apps.rollouts.rollout_services import rollout_advance, rollout_roll_back, rollout_start, rollouts_advance
from apps.rollouts.schedule_selectors import schedules_of
from apps.rollouts.services import ConfigRequest, config_create, policy_update, schedule_switch
from apps.telemetry.selectors import policies_in_force
from tests.apps.concurrency import run_concurrently
from tests.apps.rollouts.fleet import Behaviour, Fleet, fleet_of
from tests.apps.rollouts.learned_frames import sweeping, watermarks_of

WISH = ConfigRequest({"margin": 0.96}, learned=False)


def _looked_at(fleet: Fleet) -> None:
    """One step forward is one step, however many look, and so is one back."""
    policy_update(cluster=fleet.cluster, waves=[0.5, 1.0])
    config = config_create(cluster=fleet.cluster, wish=WISH, now=fleet.now)
    rollout = rollout_start(config=config, now=fleet.now)
    for _ in range(60):
        fleet.step(advance=False)
        looks: list[Callable[[], Any]] = [partial(rollouts_advance, fleet.now)] * 3
        assert run_concurrently(looks) == {"done": 3}
        if fleet.state(config)[0] == "done":
            break
    words = list(RolloutEvent.objects.values_list("words", flat=True))
    assert words == ["started", "canaries begin", "wave 1 begins", "wave 2 begins", "done"]
    back: list[Callable[[], Any]] = [partial(rollout_roll_back, rollout=rollout, now=fleet.now)] * 3
    assert run_concurrently([*back, partial(rollout_advance, cluster=fleet.cluster, now=fleet.now)]) == {"done": 4}
    assert RefinedConfig.objects.count() == 2


def _started(fleet: Fleet) -> None:
    """Of several that start at once one goes first, and each has a number of its own."""

    def start() -> None:
        config = config_create(cluster=fleet.cluster, wish=WISH, now=fleet.now)
        rollout_start(config=config, now=fleet.now)

    assert run_concurrently([start] * 4) == {"done": 4}
    assert sorted(RefinedConfig.objects.values_list("number", flat=True)) == [1, 2, 3, 4]
    assert sorted(Rollout.objects.values_list("state", flat=True)) == ["canary", "waiting", "waiting", "waiting"]
    config = RefinedConfig.objects.get(number=1)
    outcomes = run_concurrently([partial(rollout_start, config=config, now=fleet.now)] * 3)
    assert outcomes == {"conflict": 3}


def _worse(fleet: Fleet) -> None:
    """The guard and a person take it back at the same moment, once."""
    fleet.behaviours[1] = Behaviour(bytes_per_record=80.0)
    config = config_create(cluster=fleet.cluster, wish=WISH, now=fleet.now)
    rollout = rollout_start(config=config, now=fleet.now)
    fleet.step(9)
    for _ in range(60):
        if fleet.state(config)[0] != "canary":
            break
        fleet.step(advance=False)
        guard = partial(rollout_advance, cluster=fleet.cluster, now=fleet.now)
        person = partial(rollout_roll_back, rollout=rollout, reason="by hand", now=fleet.now)
        assert run_concurrently([guard, person, guard]) == {"done": 3}
    assert RefinedConfig.objects.count() == 2
    assert RolloutEvent.objects.filter(words__regex=r"^rolled back( by its guard)?:").count() == 1


def _switched(fleet: Fleet) -> None:
    """Equal switches requested at the same moment share a configuration; learned statistics go beside it."""
    switch = partial(schedule_switch, cluster=fleet.cluster, settings={"policy": "fcfs"}, now=fleet.now)
    assert run_concurrently([switch] * 4) == {"done": 4}
    config = RefinedConfig.objects.get()
    fleet.until(lambda: fleet.state(config)[0] == "done", most=200)
    assert {entry.policy for entry in policies_in_force(fleet.cluster)} == {"fcfs"}
    assert {schedule.settings.policy for schedule in schedules_of(fleet.cluster).values()} == {"fcfs"}
    tell = partial(watermarks_receive, [watermarks_of(fleet, sweeping("*"))], fleet.now)
    assert run_concurrently([tell] * 3) == {"done": 3}
    assert RefinedConfig.objects.filter(origin="spark").count() == 1


STORIES = [_looked_at, _started, _worse, _switched]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.night
def test_concurrent_changes_on_sqlite(story: Callable[[Fleet], None]) -> None:
    story(fleet_of().start())


@pytest.mark.postgres
@pytest.mark.parametrize("story", STORIES)
def test_concurrent_changes_on_postgres(postgres_db: str, story: Callable[[Fleet], None]) -> None:
    story(fleet_of().start())
