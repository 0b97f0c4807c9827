"""Batch jobs over the stream processor's history: requested by people and once a day, and what the last runs said."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Malformed, SluiceError
from apps.core.rest.api import ApiMixin
from apps.core.rest.serializers import StrictSerializer, read_body
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.selectors import job_under_way
from apps.jobs.services import job_submit
from apps.planning.choices import HistoryJob

__all__ = [
    "HistoryJobStatus",
    "HistoryStatus",
    "HistoryView",
    "history_folder",
    "history_request",
    "history_run_due",
    "history_status",
]

_log = logging.getLogger(__name__)
_DUE = time(1, 0)  # UTC: the last rows of the day before have come
_RUNS = 30  # looked at for the last of each job


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
    if (running := job_under_way(JobKind.HISTORY)) is not None:
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


def history_run_due(now: datetime | None = None) -> bool:
    """Request a run of all jobs once a day has ended, if there is any history; whether it was requested."""
    present = now or timezone.now()
    of_schedule = Job.objects.filter(kind=JobKind.HISTORY, requested_by=None, created_at__gte=_due_before(present))
    if of_schedule.exists() or not any(history_folder().glob("*/day=*")):
        return False
    try:
        history_request()
    except SluiceError as error:
        _log.warning("the history's jobs are not run now: %s", error)
        return False
    return True


def _due_before(now: datetime) -> datetime:
    """When a run was due last."""
    due = datetime.combine(now.astimezone(UTC).date(), _DUE, UTC)
    return due if due <= now else due - timedelta(days=1)


def _next_due(now: datetime) -> datetime:
    """When one is due next."""
    return _due_before(now) + timedelta(days=1)


@dataclass(frozen=True)
class HistoryJobStatus:
    """A job with its last run; `figures` are what it told of it, `fault` why it failed."""

    job: str
    label: str
    ended_at: datetime | None = None
    duration_s: float | None = None
    rows: int | None = None
    figures: Mapping[str, object] = field(default_factory=dict)
    fault: str = ""
    run: Job | None = None


@dataclass(frozen=True)
class HistoryStatus:
    """All jobs, the run under way, when the next one is due, and the days that the history has by kind."""

    jobs: list[HistoryJobStatus]
    under_way: Job | None
    next_at: datetime
    days: Mapping[str, object]


def history_status(now: datetime | None = None) -> HistoryStatus:
    """The jobs in the order in which they run."""
    ended = Job.objects.filter(kind=JobKind.HISTORY, state__in=(JobState.SUCCEEDED, JobState.FAILED))
    runs = list(ended.order_by("-finished_at")[:_RUNS])
    return HistoryStatus(
        jobs=[_status(name, label, runs) for name, label in HistoryJob.choices],
        under_way=job_under_way(JobKind.HISTORY),
        next_at=_next_due(now or timezone.now()),
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


class HistoryRequestSerializer(StrictSerializer):
    """Jobs to run; all of them where none is named."""

    jobs = serializers.ListField(child=serializers.ChoiceField(HistoryJob.choices), required=False, max_length=20)


class HistoryJobStatusSerializer(serializers.Serializer):
    """A job with its last run."""

    job = serializers.ChoiceField(HistoryJob.choices)
    ended_at = serializers.DateTimeField(allow_null=True, help_text="Null until it has run.")
    duration_s = serializers.FloatField(allow_null=True)
    rows = serializers.IntegerField(allow_null=True, help_text="Rows of its output.")
    figures = serializers.DictField(help_text="What it told of them.")
    fault = serializers.CharField(allow_blank=True, help_text="Why it failed; empty where it did not.")


class HistoryRunsSerializer(serializers.Serializer):
    """The history's jobs, in the order in which they run."""

    jobs = HistoryJobStatusSerializer(many=True)
    under_way = JobSerializer(allow_null=True)
    next_at = serializers.DateTimeField()
    days = serializers.DictField(help_text="{kind: {first, last, days, files, bytes}}, as of the last run.")


class HistoryView(ApiMixin, APIView):
    """Batch jobs over what the stream processor wrote day by day."""

    @extend_schema(responses=HistoryRunsSerializer)
    def get(self, request: Request) -> Response:
        """Last run of each job, the run under way, and when the next is due."""
        return Response(HistoryRunsSerializer(history_status()).data)

    @extend_schema(request=HistoryRequestSerializer, responses={200: HistoryRunsSerializer, 202: JobSerializer})
    def post(self, request: Request) -> Response:
        """Run jobs: 202 with a job, or their state with `Prefer: wait=N`. 409 while a run is under way."""
        job = history_request(user=signed_in_user(request), **read_body(HistoryRequestSerializer, request))
        return job_response(request, job, lambda _: HistoryRunsSerializer(history_status()).data)
