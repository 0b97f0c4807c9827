"""How the stories of rollouts begin."""

from __future__ import annotations

from apps.refinement.configuring import Wish
from apps.refinement.models import RefinedConfig, Rollout
from apps.refinement.services import (
    config_create,
    rollout_start,
)
from tests.apps.refinement.fleet import Behaviour, Fleet

BAD = Behaviour(bytes_per_record=80.0)
WISH = Wish({"margin": 0.96})


def made(fleet: Fleet, wish: Wish = WISH) -> RefinedConfig:
    return config_create(cluster=fleet.cluster, wish=wish, now=fleet.now)


def started(fleet: Fleet, wish: Wish = WISH) -> Rollout:
    return rollout_start(config=made(fleet, wish), now=fleet.now)


def words(rollout: Rollout) -> list[str]:
    return [event.words for event in rollout.events.all()]
