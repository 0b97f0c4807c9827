"""Ends of planning runs: a run whose job ends without an answer fails or is cancelled with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import on_unanswered
from apps.planning.backtests.services import backtest_announce
from apps.planning.choices import PENDING_STATES, RunState
from apps.planning.models import BacktestRun, PlacementRun, PlanComparison, ResourcePlan, Run, WhatIf
from apps.planning.placements.moves import moves_finish
from apps.planning.placements.services import placement_announce
from apps.planning.plans.services import comparison_announce
from apps.planning.resource_plans.services import resource_plan_announce
from apps.planning.what_ifs.services import what_if_announce

__all__ = ["connect"]


@dataclass(frozen=True)
class RunKind:
    """A kind of run: its model, the parameter of its job that names the run, and its state after a cancelled job."""

    model: type[Run]
    parameter: str
    announce: Callable[[Any], None]
    cancelled: RunState = RunState.CANCELLED

    def run_of(self, job: Job) -> Any:
        """The job's run; None if it is deleted."""
        return self.model.objects.filter(pk=job.params[self.parameter]).first()

    def state_after(self, job: Job) -> RunState:
        return self.cancelled if job.state == JobState.CANCELLED else RunState.FAILED


_PLACEMENT = RunKind(PlacementRun, "placement", placement_announce, cancelled=RunState.ABORTED)
_KINDS = {
    JobKind.PLACEMENT: _PLACEMENT,
    JobKind.PLANS: RunKind(PlanComparison, "comparison", comparison_announce),
    JobKind.WHAT_IF: RunKind(WhatIf, "what_if", what_if_announce),
    JobKind.STAGE_PLAN: RunKind(ResourcePlan, "resource_plan", resource_plan_announce),
    JobKind.BACKTEST: RunKind(BacktestRun, "backtest", backtest_announce),
}


def connect() -> None:
    """Listen to the jobs of every kind of run."""
    for kind in _KINDS:
        on_unanswered(kind, _end_run)
    on_unanswered(JobKind.MOVES, _end_moves)


def _end_run(job: Job) -> None:
    kind = _KINDS[JobKind(job.kind)]
    run = kind.run_of(job)
    if run is None or run.state not in PENDING_STATES:
        return
    run.state, run.finished_at, run.message = kind.state_after(job), timezone.now(), _message(job)
    fields = ["state", "finished_at", "message", "updated_at"]
    if isinstance(run, PlacementRun):
        run.live = {}
        fields.append("live")
    run.save(update_fields=fields)
    kind.announce(run)


def _end_moves(job: Job) -> None:
    run = _PLACEMENT.run_of(job)
    if run is not None:
        moves_finish(run=run, state=_PLACEMENT.state_after(job), message=_message(job))


def _message(job: Job) -> str:
    return str((job.error or {}).get("message", ""))[:500]
