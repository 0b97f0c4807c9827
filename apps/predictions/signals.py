"""Fine-tunings whose job ends without an answer: they fail with it."""

from __future__ import annotations

from apps.jobs.models import Job, JobKind
from apps.jobs.services import on_unanswered
from apps.predictions.choices import FineTuningState
from apps.predictions.models import FineTuning
from apps.predictions.services import predictions_announce

__all__ = ["connect"]


def connect() -> None:
    on_unanswered(JobKind.FINE_TUNING, _end_fine_tuning)


def _end_fine_tuning(job: Job) -> None:
    run = FineTuning.objects.select_related("cluster").filter(pk=job.params["fine_tuning"]).first()
    if run is None or run.state != FineTuningState.RUNNING:
        return
    run.state = FineTuningState.FAILED
    run.message = str((job.error or {}).get("message", "The job was cancelled."))[:500]
    run.save(update_fields=["state", "message"])
    predictions_announce(run.cluster)
