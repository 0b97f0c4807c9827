"""Reading configurations and rollouts."""

from __future__ import annotations

from apps.rollouts.configs.selectors import config_detail, config_numbered, configs_by_agent, configs_listed
from apps.rollouts.learned.predictions import saved_bytes
from apps.rollouts.rollout.selectors import rollout_now, rollout_numbered, rollout_policy, rollout_view, rollouts_listed
from apps.rollouts.schedule.selectors import schedules_of

__all__ = [
    "config_detail",
    "config_numbered",
    "configs_by_agent",
    "configs_listed",
    "rollout_now",
    "rollout_numbered",
    "rollout_policy",
    "rollout_view",
    "rollouts_listed",
    "saved_bytes",
    "schedules_of",
]
