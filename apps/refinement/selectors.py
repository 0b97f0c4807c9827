"""Reading configurations and rollouts."""

from __future__ import annotations

from apps.refinement.comparing import saved_bytes
from apps.refinement.details import config_detail
from apps.refinement.holding import config_of_agents
from apps.refinement.listed import (
    config_numbered,
    configs_listed,
    rollout_numbered,
    rollout_policy,
    rollouts_listed,
)
from apps.refinement.panel import rollout_now, rollout_view
from apps.refinement.schedule_states import schedules_of

__all__ = [
    "config_detail",
    "config_numbered",
    "config_of_agents",
    "configs_listed",
    "rollout_now",
    "rollout_numbered",
    "rollout_policy",
    "rollout_view",
    "rollouts_listed",
    "saved_bytes",
    "schedules_of",
]
