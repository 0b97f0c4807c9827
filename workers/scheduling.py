"""Tasks: replay what an agent recorded under other policies of scheduling."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.rollouts.schedule.replays import replay_work

__all__ = ["replay_schedule"]


@shared_task(name=JobKind.REPLAY.value)
def replay_schedule(job_id: str) -> None:
    run_job(job_id, replay_work)
