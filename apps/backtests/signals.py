"""What happens to a backtest when its job ends without an answer."""

from __future__ import annotations

from typing import Any

from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_ended
from apps.planning.backtests.services import backtest_announce
from apps.planning.choices import BacktestState
from apps.planning.models import BacktestRun

__all__ = ["connect"]

_ENDS = {JobState.FAILED: BacktestState.FAILED, JobState.CANCELLED: BacktestState.CANCELLED}


def connect() -> None:
    job_ended.connect(_ended, dispatch_uid="backtests.job_ended")


def _ended(sender: type[Job], job: Job, **_: Any) -> None:
    state = _ENDS.get(JobState(job.state))
    if job.kind != JobKind.BACKTEST or state is None:
        return
    rows = BacktestRun.objects.select_related("cluster").filter(state=BacktestState.ASKED)
    row = rows.filter(pk=job.params["backtest"]).first()
    if row is not None:
        row.state = state
        row.save(update_fields=["state"])
        backtest_announce(row)
