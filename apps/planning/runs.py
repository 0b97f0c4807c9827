"""Kinds of planning runs, and the life that all have: submitted, announced, ended with their job, deleted when old."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_submit, on_unanswered
from apps.planning.choices import ENDED_STATES, PENDING_STATES, Find, RunState
from apps.planning.models import BacktestRun, PlacementRun, PlanComparison, ResourcePlan, Run, WhatIf
from apps.queries.definitions import query_announce

__all__ = [
    "BACKTEST",
    "PLACEMENT",
    "PLANS",
    "RESOURCE_PLAN",
    "WHAT_IF",
    "RunKind",
    "connect",
    "job_message",
    "runs_purge",
]


_ENDED = Q(state__in=ENDED_STATES)


@dataclass(frozen=True)
class RunKind:
    """A kind of run.

    Attributes
    ----------
    model, job
        Its rows, and the kind of job that answers one.
    parameter
        Parameter of the job that names the run.
    title
        Title of the job.
    announce
        Tells open pages that a run has changed.
    retention
        Age after which ended runs are deleted; None: they go with what they are of.
    old
        The runs that may be deleted, beside their age.
    cancelled
        State after a cancelled job.
    """

    model: type[Run]
    job: JobKind
    parameter: str
    title: Callable[[Any], str]
    announce: Callable[[Any], None]
    retention: timedelta | None = None
    old: Q = _ENDED
    cancelled: RunState = RunState.CANCELLED

    def submit(self, run: Any, cluster: Cluster, user: User | None) -> Job:
        """Submit the job that answers a run. Called in the transaction that made the run."""
        run.job = job = job_submit(
            kind=self.job, title=self.title(run), params={self.parameter: str(run.pk)}, cluster=cluster, user=user
        )
        run.save(update_fields=["job", "updated_at"])
        self.announce(run)
        return job

    def run_of(self, job: Job) -> Any:
        """The job's run; None if it is deleted."""
        return self.model.objects.filter(pk=job.params[self.parameter]).first()  # type: ignore[attr-defined]

    def state_after(self, job: Job) -> RunState:
        return self.cancelled if job.state == JobState.CANCELLED else RunState.FAILED

    def purge(self) -> int:
        """Delete runs older than `retention`; returns the number."""
        if self.retention is None:
            return 0
        rows = self.model.objects.filter(self.old, created_at__lt=timezone.now() - self.retention)  # type: ignore[attr-defined]
        return int(rows.delete()[1].get(self.model._meta.label, 0))


def _announcement(topic: str, list_topic: str) -> Callable[[Any], None]:
    """Announces a run by its own topic, and by that of the cluster's list."""

    def announce_run(run: Any) -> None:
        announce(f"{topic}:{run.pk}")
        announce(f"{list_topic}:{run.cluster.slug}")

    return announce_run


PLACEMENT = RunKind(
    PlacementRun,
    JobKind.PLACEMENT,
    "placement",
    lambda run: f"Search a placement of {run.cluster.slug}",
    _announcement("placement", "placements"),
    retention=timedelta(days=90),
    cancelled=RunState.ABORTED,
)
PLANS = RunKind(
    PlanComparison,
    JobKind.PLANS,
    "comparison",
    lambda run: f"Compare plans of {run.query.name}",
    lambda run: query_announce(run.query),
)
WHAT_IF = RunKind(
    WhatIf,
    JobKind.WHAT_IF,
    "what_if",
    lambda run: f"{Find(run.find).label}, {run.cluster.slug}",
    _announcement("what-if", "scenarios"),
    retention=timedelta(days=1),
    old=Q(from_bench=True) & ~Q(state=RunState.ASKED),
)
RESOURCE_PLAN = RunKind(
    ResourcePlan,
    JobKind.STAGE_PLAN,
    "resource_plan",
    lambda run: f"Resource plan, {run.cluster.slug}",
    _announcement("resource-plan", "resource-plans"),
    retention=timedelta(days=180),
)
BACKTEST = RunKind(
    BacktestRun,
    JobKind.BACKTEST,
    "backtest",
    lambda run: f"Backtest of {run.cluster.slug}",
    _announcement("backtest", "backtests"),
    retention=timedelta(days=180),
)
_KINDS = {kind.job: kind for kind in (PLACEMENT, PLANS, WHAT_IF, RESOURCE_PLAN, BACKTEST)}


def runs_purge() -> int:
    """Delete the old runs of every kind; returns the number."""
    return sum(kind.purge() for kind in _KINDS.values())


def connect() -> None:
    """Listen to the jobs of every kind of run: one whose job ends without an answer fails or is cancelled with it."""
    for job in _KINDS:
        on_unanswered(job, _end_run)


def _end_run(job: Job) -> None:
    kind = _KINDS[JobKind(job.kind)]
    run = kind.run_of(job)
    if run is None or run.state not in PENDING_STATES:
        return
    run.state, run.finished_at, run.message = kind.state_after(job), timezone.now(), job_message(job)
    fields = ["state", "finished_at", "message", "updated_at"]
    if isinstance(run, PlacementRun):
        run.live = {}
        fields.append("live")
    run.save(update_fields=fields)
    kind.announce(run)


def job_message(job: Job) -> str:
    """Why a job failed, as far as a run keeps it."""
    return str((job.error or {}).get("message", ""))[:500]
