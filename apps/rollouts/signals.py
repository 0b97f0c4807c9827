"""Acknowledgements of agents advance rollouts at once."""

from __future__ import annotations

import time
from typing import Any

from apps.rollouts.choices import UNDER_WAY, MemberState
from apps.rollouts.models import RolloutMember
from apps.rollouts.rollout.services import rollout_advance
from apps.telemetry.configs import config_acknowledged
from apps.telemetry.models import Agent

__all__ = ["connect"]

_INTERVAL_S = 1.0
_advanced_at: dict[int, float] = {}


def connect() -> None:
    """Called once, when Django is ready."""
    config_acknowledged.connect(_heard, dispatch_uid="refinement.heard")


def _heard(sender: Any, agent: Agent, **_: Any) -> None:
    """An agent acknowledged another configuration than before: its rollout is advanced at once.

    For many acknowledgements at once, one step a second covers them all.
    """
    mine = RolloutMember.objects.filter(agent=agent, state=MemberState.SENT, rollout__state__in=UNDER_WAY)
    if not mine.exists():
        return
    now = time.monotonic()
    if now - _advanced_at.get(agent.cluster_id, -_INTERVAL_S) >= _INTERVAL_S:
        _advanced_at[agent.cluster_id] = now
        rollout_advance(cluster=agent.cluster)
