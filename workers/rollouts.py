"""Tasks of rollouts: advance them, renew refined documents, replay a schedule."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.rollouts.configs.parts import parts_renew
from apps.rollouts.rollout.services import rollouts_advance
from apps.rollouts.schedule.replays import replay_work

__all__ = [
    "advance_rollouts",
    "renew_refined",
    "replay_schedule",
]


@shared_task(name="workers.advance_rollouts")
def advance_rollouts() -> int:
    """Advance rollouts; returns the number of clusters whose rollout took a step."""
    return rollouts_advance()


@shared_task(name="workers.renew_refined")
def renew_refined() -> int:
    """Renew refined documents before their TTL ends; returns the number."""
    return parts_renew(timezone.now())


@shared_task(name=JobKind.REPLAY.value)
def replay_schedule(job_id: str) -> None:
    run_job(job_id, replay_work)
