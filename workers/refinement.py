"""Tasks: rollouts led on, refined documents kept valid."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from apps.rollouts.services import parts_renew, rollouts_advance

__all__ = ["advance_rollouts", "renew_refined"]


@shared_task(name="workers.advance_rollouts")
def advance_rollouts() -> int:
    """Lead rollouts on; returns how many clusters' have taken a step."""
    return rollouts_advance()


@shared_task(name="workers.renew_refined")
def renew_refined() -> int:
    """Stamp what agents have in force anew before it ends; returns how many documents were."""
    return parts_renew(timezone.now())
