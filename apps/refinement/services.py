"""Every change to refinement, in one place to import from."""

from apps.refinement.configuring import config_check, config_create, policy_update
from apps.refinement.giving import parts_renew
from apps.refinement.learning import learned_receive, watermarks_receive
from apps.refinement.proposing import proposal_make
from apps.refinement.rolling import (
    canaries_add,
    rollout_advance,
    rollout_back,
    rollout_pause,
    rollout_resume,
    rollout_start,
    rollouts_advance,
)
from apps.refinement.switching import schedule_preview, schedule_switch

__all__ = [
    "canaries_add",
    "config_check",
    "config_create",
    "learned_receive",
    "parts_renew",
    "policy_update",
    "proposal_make",
    "rollout_advance",
    "rollout_back",
    "rollout_pause",
    "rollout_resume",
    "rollout_start",
    "rollouts_advance",
    "schedule_preview",
    "schedule_switch",
    "watermarks_receive",
]
