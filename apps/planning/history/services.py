"""Runs of the batch jobs over the stream processor's history: asked for by people, and once a day."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Malformed, SluiceError
from apps.jobs.models import FINISHED, Job, JobKind
from apps.jobs.services import job_submit
from apps.planning.choices import HistoryJob

__all__ = ["due_before", "history_folder", "history_request", "history_run_due", "history_under_way", "next_due"]

_log = logging.getLogger(__name__)
_DUE = time(1, 0)  # UTC: the last rows of the day before have come


def history_folder() -> Path:
    """Where the stream processor keeps its history, and the jobs their output."""
    return Path(settings.VAR_DIR) / "history"


@transaction.atomic
def history_request(*, jobs: Sequence[str] = (), user: User | None = None) -> Job:
    """Request a run of some jobs, or of all; in the order in which they build on each other.

    Raises
    ------
    Malformed
        There is no such job.
    Conflict
        A run waits or is under way: one at a time, since they share a folder.
    """
    unknown = [name for name in jobs if name not in HistoryJob.values]
    if unknown:
        message = f"jobs has {', '.join(map(repr, unknown))}; allowed: {', '.join(HistoryJob.values)}"
        raise Malformed(f"{message}.", [("jobs", message)])
    if (running := history_under_way()) is not None:
        message = f"a run over the history is {running.get_state_display().lower()}; wait until it has ended"
        raise Conflict(f"{message.capitalize()}.", [("jobs", message)])
    names = [name for name in HistoryJob.values if name in jobs or not jobs]
    return job_submit(
        kind=JobKind.HISTORY,
        title=f"Run {', '.join(names)} over the history",
        params={"jobs": names},
        user=user,
        dedupe_key="history",
    )


def history_under_way() -> Job | None:
    """The run that waits or is under way."""
    return Job.objects.filter(kind=JobKind.HISTORY).exclude(state__in=FINISHED).order_by("-created_at").first()


def history_run_due(now: datetime | None = None) -> bool:
    """Request a run of all jobs once a day has ended, if there is any history; whether it was requested."""
    present = now or timezone.now()
    of_schedule = Job.objects.filter(kind=JobKind.HISTORY, requested_by=None, created_at__gte=due_before(present))
    if of_schedule.exists() or not any(history_folder().glob("*/day=*")):
        return False
    try:
        history_request()
    except SluiceError as error:
        _log.warning("the history's jobs are not run now: %s", error)
        return False
    return True


def due_before(now: datetime) -> datetime:
    """When a run was due last."""
    due = datetime.combine(now.astimezone(UTC).date(), _DUE, UTC)
    return due if due <= now else due - timedelta(days=1)


def next_due(now: datetime) -> datetime:
    """When one is due next."""
    return due_before(now) + timedelta(days=1)
