"""What agents say leads rollouts on at once."""

from __future__ import annotations

import time
from typing import Any

from apps.rollouts.choices import UNDER_WAY, MemberState
from apps.rollouts.models import RolloutMember
from apps.rollouts.rollout.services import rollout_advance
from apps.telemetry.configs import config_acknowledged
from apps.telemetry.models import Agent

__all__ = ["connect"]

_EVERY_S = 1.0
_looked: dict[int, float] = {}


def connect() -> None:
    """Called once, when Django is ready."""
    config_acknowledged.connect(_heard, dispatch_uid="refinement.heard")


def _heard(sender: Any, agent: Agent, **_: Any) -> None:
    """An agent named another configuration than before: its rollout need not wait for the next look at it.

    Where many answer at once, one look a second sees them all.
    """
    mine = RolloutMember.objects.filter(agent=agent, state=MemberState.SENT, rollout__state__in=UNDER_WAY)
    if not mine.exists():
        return
    now = time.monotonic()
    if now - _looked.get(agent.cluster_id, -_EVERY_S) >= _EVERY_S:
        _looked[agent.cluster_id] = now
        rollout_advance(cluster=agent.cluster)
