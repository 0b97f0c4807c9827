"""Retention of estimates that telemetry asked for: fewer with age; those of people stay."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from apps.estimates.models import EstimateRun
from apps.jobs.models import Job, JobKind, JobState

__all__ = ["STEPS", "estimates_of_telemetry_thin"]

# (older than, one per); what is older than the last is dropped
STEPS = (
    (timedelta(hours=2), timedelta(minutes=10)),
    (timedelta(days=2), timedelta(hours=1)),
    (timedelta(days=30), None),
)


def estimates_of_telemetry_thin(now: datetime | None = None) -> int:
    """Keep all of two hours, one per ten minutes of two days, one per hour of thirty days, and each cluster's newest;
    returns how many runs are gone. Their jobs go when they are two hours old, unless they failed.
    """
    present = now or timezone.now()
    old = EstimateRun.objects.filter(by_telemetry=True, created_at__lt=present - STEPS[0][0])
    gone: list[int] = []
    taken: set[tuple[int, timedelta, float]] = set()
    newest: set[int] = set()
    for pk, cluster, at in old.order_by("-created_at", "-pk").values_list("pk", "cluster_id", "created_at").iterator():
        step = [each for age, each in STEPS if at < present - age][-1]
        place = (cluster, step, at.timestamp() // step.total_seconds()) if step else None
        if (place is None or place in taken) and cluster in newest:
            gone.append(pk)
        elif place:
            taken.add(place)
        newest.add(cluster)
    for i in range(0, len(gone), 500):
        EstimateRun.objects.filter(pk__in=gone[i : i + 500]).delete()
    jobs = Job.objects.filter(kind=JobKind.ESTIMATE, state=JobState.SUCCEEDED, params__has_key="by_telemetry")
    jobs.filter(finished_at__lt=present - STEPS[0][0]).delete()
    return len(gone)
