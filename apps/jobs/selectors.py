"""Reads of jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Min, Q, QuerySet

from apps.core.clock import shared_now
from apps.fleet.models import Cluster
from apps.jobs.models import FINISHED, LATER, Job, JobKind, JobState, queue_of
from apps.jobs.services import LOST_AFTER

__all__ = ["job_under_way", "jobs_lost", "jobs_visible", "queues_waiting_since"]

# A queue may be long; only after this long is a message believed lost and sent again.
_QUEUED_TOO_LONG = timedelta(seconds=60)


def jobs_lost() -> QuerySet[Job]:
    """Jobs without a heartbeat for `LOST_AFTER`, or whose task seems to have been lost on its way."""
    now = shared_now()
    silent = Q(state=JobState.RUNNING, heartbeat_at__lt=now - LOST_AFTER, sent_at__lt=now - LOST_AFTER)
    unsent = Q(state=JobState.QUEUED, sent_at__lt=now - _QUEUED_TOO_LONG)
    return Job.objects.filter(silent | unsent).order_by("created_at")


def jobs_visible() -> QuerySet[Job]:
    """Every job with its cluster and requester, newest first."""
    return Job.objects.select_related("cluster", "requested_by")


def job_under_way(kind: JobKind, cluster: Cluster | None = None) -> Job | None:
    """The newest job of a kind, of a cluster where one is given, that is not finished."""
    rows = Job.objects.filter(kind=kind).exclude(state__in=FINISHED)
    return (rows if cluster is None else rows.filter(cluster=cluster)).order_by("-created_at").first()


def queues_waiting_since() -> dict[str, datetime | None]:
    """When the oldest job was asked for that waits in each queue; None where none waits."""
    since: dict[str, datetime | None] = dict.fromkeys((settings.INTERACTIVE_QUEUE, settings.BACKGROUND_QUEUE))
    waiting = Job.objects.filter(state=JobState.QUEUED).order_by()
    groups = waiting.values("kind", is_asked=Q(requested_by__isnull=False), is_later=Q(params__has_key=LATER))
    for row in groups.annotate(oldest=Min("created_at")):
        queue = queue_of(row["kind"], is_asked=row["is_asked"], is_later=row["is_later"])
        since[queue] = min(filter(None, (since[queue], row["oldest"])))
    return since
