"""What happens to a run when its job ends without an answer."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_ended
from apps.planning.choices import PlacementState
from apps.planning.models import PlacementRun
from apps.planning.placements.moves import moves_finish
from apps.planning.placements.services import placement_announce

__all__ = ["connect"]

_ENDS = {JobState.FAILED: PlacementState.FAILED, JobState.CANCELLED: PlacementState.ABORTED}


def connect() -> None:
    job_ended.connect(_ended, dispatch_uid="placements.job_ended")


def _ended(sender: type[Job], job: Job, **_: Any) -> None:
    if job.kind not in {JobKind.PLACEMENT, JobKind.MOVES} or job.state == JobState.SUCCEEDED:
        return
    rows = PlacementRun.objects.select_related("cluster")
    run = rows.filter(pk=job.params["placement"]).first()
    if run is None:
        return
    state, message = _ENDS[JobState(job.state)], (job.error or {}).get("message", "")
    if job.kind == JobKind.MOVES:
        moves_finish(run=run, state=state, message=message)
    elif run.state == PlacementState.SEARCHING:
        run.state, run.finished_at, run.message, run.live = state, timezone.now(), message[:500], {}
        run.save(update_fields=["state", "finished_at", "message", "live", "updated_at"])
        placement_announce(run)
