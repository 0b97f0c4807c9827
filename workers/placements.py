"""Tasks: search a placement, apply or undo its moves."""

from __future__ import annotations

from celery import shared_task

from apps.jobs.models import JobKind
from apps.jobs.runner import run_job
from apps.planning.placements import work

__all__ = ["apply_moves", "search_placement"]


@shared_task(name=JobKind.PLACEMENT.value)
def search_placement(job_id: str) -> None:
    run_job(job_id, work.search_placement)


@shared_task(name=JobKind.MOVES.value)
def apply_moves(job_id: str) -> None:
    run_job(job_id, work.apply_moves)
