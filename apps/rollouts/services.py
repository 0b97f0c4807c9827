"""Every change to refinement, in one place to import from."""

from apps.rollouts.configs.parts import parts_renew
from apps.rollouts.configs.services import config_check, config_create, policy_update
from apps.rollouts.rollout.proposals import learned_receive, proposal_create, watermarks_receive
from apps.rollouts.rollout.services import (
    canaries_add,
    rollout_advance,
    rollout_pause,
    rollout_resume,
    rollout_roll_back,
    rollout_start,
    rollouts_advance,
)
from apps.rollouts.schedule.services import schedule_preview, schedule_switch

__all__ = [
    "canaries_add",
    "config_check",
    "config_create",
    "learned_receive",
    "parts_renew",
    "policy_update",
    "proposal_create",
    "rollout_advance",
    "rollout_pause",
    "rollout_resume",
    "rollout_roll_back",
    "rollout_start",
    "rollouts_advance",
    "schedule_preview",
    "schedule_switch",
    "watermarks_receive",
]
