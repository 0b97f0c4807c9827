"""The task of every kind of job: it loads, asks the engine, and stores."""

from __future__ import annotations

from collections.abc import Callable

from celery import shared_task

from apps.admission.completion import complete_preview
from apps.admission.dry_runs import preview_dry_run
from apps.admission.month_replays import replay_decisions
from apps.connections.work import check_connection, import_connection, refresh_connection
from apps.estimates.capacities import complete_capacities
from apps.estimates.simulations import simulate_cluster
from apps.jobs.models import JobKind
from apps.jobs.runner import JobOutcome, JobReporter, run_job
from apps.jobs.runs import RUN_KINDS
from apps.planning.history_work import run_history
from apps.planning.parallelism import plan_query
from apps.planning.placement_moves import apply_moves
from apps.planning.remedies import find_query_remedies
from apps.rollouts.replays import replay_work

__all__ = ["JOB_WORK"]

#: What is done for a job, by its kind; kinds of runs say it themselves.
JOB_WORK: dict[str, Callable[[JobReporter], JobOutcome]] = {kind.job: kind.work for kind in RUN_KINDS.values()} | {
    JobKind.ADMISSION_PARTS: complete_preview,
    JobKind.CAPACITIES: complete_capacities,
    JobKind.DECISION_REPLAY: replay_decisions,
    JobKind.DRY_RUN: preview_dry_run,
    JobKind.CONNECTION_CHECK: check_connection,
    JobKind.CONNECTION_IMPORT: import_connection,
    JobKind.CONNECTION_REFRESH: refresh_connection,
    JobKind.HISTORY: run_history,
    JobKind.MOVES: apply_moves,
    JobKind.PARALLELISM: plan_query,
    JobKind.REMEDIES: find_query_remedies,
    JobKind.REPLAY: replay_work,
    JobKind.SIMULATION: simulate_cluster,
}


def _make_task(kind: str, work: Callable[[JobReporter], JobOutcome]) -> None:
    @shared_task(name=str(kind))
    def do_job(job_id: str) -> None:
        run_job(job_id, work)


for _kind, _work in JOB_WORK.items():
    _make_task(_kind, _work)
