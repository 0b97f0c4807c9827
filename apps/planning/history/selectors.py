"""State of the history's jobs: the last run of each, and the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.jobs.models import Job, JobKind, JobState
from apps.planning.choices import HistoryJob
from apps.planning.history.services import history_under_way, next_due

__all__ = ["HistoryJobStatus", "HistoryStatus", "history_status"]

_RUNS = 30  # looked at for the last of each job


@dataclass(frozen=True)
class HistoryJobStatus:
    """A job with its last run; `figures` are what it told of it, `fault` why it failed."""

    job: str
    label: str
    ended_at: datetime | None = None
    duration_s: float | None = None
    rows: int | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    run: Job | None = None


@dataclass(frozen=True)
class HistoryStatus:
    """All jobs, the run under way, when the next one is due, and the days that the history has by kind."""

    jobs: list[HistoryJobStatus]
    under_way: Job | None
    next_at: datetime
    days: Mapping[str, Any]


def history_status(now: datetime | None = None) -> HistoryStatus:
    """The jobs in the order in which they run."""
    ended = Job.objects.filter(kind=JobKind.HISTORY, state__in=(JobState.SUCCEEDED, JobState.FAILED))
    runs = list(ended.order_by("-finished_at")[:_RUNS])
    return HistoryStatus(
        jobs=[_status(name, label, runs) for name, label in HistoryJob.choices],
        under_way=history_under_way(),
        next_at=next_due(now or timezone.now()),
        days=next((run.result["days"] for run in runs if run.result and "days" in run.result), {}),
    )


def _status(name: str, label: str, runs: list[Job]) -> HistoryJobStatus:
    run = next((run for run in runs if name in run.params["jobs"]), None)
    if run is None:
        return HistoryJobStatus(name, label)
    if run.result is None:
        fault = (run.error or {}).get("message", "")
        return HistoryJobStatus(name, label, run.finished_at, fault=fault, run=run)
    figures = dict(run.result["jobs"].get(name, {}))
    return HistoryJobStatus(
        name,
        label,
        run.finished_at,
        duration_s=figures.pop("duration_s", None),
        rows=figures.pop("rows", None),
        fault=figures.pop("fault", ""),
        figures=figures,
        run=run,
    )
