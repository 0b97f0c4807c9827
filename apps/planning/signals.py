"""Runs whose job ends without an answer: they fail or are cancelled with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_ended
from apps.planning.backtests.services import backtest_announce
from apps.planning.choices import BacktestState, ComparisonState, PlacementState, WhatIfState
from apps.planning.models import BacktestRun, PlacementRun, PlanComparison, WhatIf
from apps.planning.placements.moves import moves_finish
from apps.planning.placements.services import placement_announce
from apps.planning.what_ifs.services import what_if_announce
from apps.queries.services import query_announce

__all__ = ["connect"]


def connect() -> None:
    job_ended.connect(_end_run, dispatch_uid="planning.job_ended")


def _end_run(sender: type[Job], job: Job, **_: Any) -> None:
    end = _ENDS.get(JobKind(job.kind))
    if end is not None and job.state != JobState.SUCCEEDED:
        end(job)


def _end_search(job: Job) -> None:
    run = _placement_run(job)
    if run is not None and run.state == PlacementState.SEARCHING:
        run.state, run.finished_at, run.message, run.live = _placement_state(job), timezone.now(), _message(job), {}
        run.save(update_fields=["state", "finished_at", "message", "live", "updated_at"])
        placement_announce(run)


def _end_moves(job: Job) -> None:
    run = _placement_run(job)
    if run is not None:
        moves_finish(run=run, state=_placement_state(job), message=_message(job))


def _end_comparison(job: Job) -> None:
    rows = PlanComparison.objects.select_related("query__cluster")
    row = rows.filter(pk=job.params["comparison"], state=ComparisonState.COMPUTING).first()
    if row is not None:
        row.state, row.finished_at, row.message = ComparisonState(job.state), timezone.now(), _message(job)
        row.save(update_fields=["state", "finished_at", "message"])
        query_announce(row.query)


def _end_what_if(job: Job) -> None:
    row = WhatIf.objects.select_related("cluster").filter(pk=job.params["what_if"], state=WhatIfState.ASKED).first()
    if row is not None:
        row.state = WhatIfState(job.state)
        row.save(update_fields=["state"])
        what_if_announce(row)


def _end_backtest(job: Job) -> None:
    rows = BacktestRun.objects.select_related("cluster").filter(state=BacktestState.ASKED)
    row = rows.filter(pk=job.params["backtest"]).first()
    if row is not None:
        row.state = BacktestState(job.state)
        row.save(update_fields=["state"])
        backtest_announce(row)


def _placement_run(job: Job) -> PlacementRun | None:
    return PlacementRun.objects.select_related("cluster").filter(pk=job.params["placement"]).first()


def _placement_state(job: Job) -> PlacementState:
    return PlacementState.ABORTED if job.state == JobState.CANCELLED else PlacementState.FAILED


def _message(job: Job) -> str:
    return str((job.error or {}).get("message", ""))[:500]


_ENDS: dict[JobKind, Callable[[Job], None]] = {
    JobKind.PLACEMENT: _end_search,
    JobKind.MOVES: _end_moves,
    JobKind.PLANS: _end_comparison,
    JobKind.WHAT_IF: _end_what_if,
    JobKind.BACKTEST: _end_backtest,
}
