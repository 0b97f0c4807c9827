"""What happens to a what-if when its job ends without an answer."""

from __future__ import annotations

from typing import Any

from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_ended
from apps.planning.choices import WhatIfState
from apps.planning.models import WhatIf
from apps.planning.what_ifs.services import what_if_announce

__all__ = ["connect"]

_ENDS = {JobState.FAILED: WhatIfState.FAILED, JobState.CANCELLED: WhatIfState.CANCELLED}


def connect() -> None:
    job_ended.connect(_ended, dispatch_uid="planning.job_ended")


def _ended(sender: type[Job], job: Job, **_: Any) -> None:
    state = _ENDS.get(JobState(job.state))
    if job.kind != JobKind.WHAT_IF or state is None:
        return
    row = WhatIf.objects.select_related("cluster").filter(pk=job.params["what_if"], state=WhatIfState.ASKED).first()
    if row is not None:
        row.state = state
        row.save(update_fields=["state"])
        what_if_announce(row)
