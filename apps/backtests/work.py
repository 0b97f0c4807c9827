"""The work of backtest jobs: load, replay, say how to store."""

from __future__ import annotations

import time

from apps.backtests.models import BacktestRun
from apps.backtests.records import grid_of, reach_of
from apps.backtests.services import backtest_store
from apps.backtests.telling import story_of
from apps.jobs.models import Job
from apps.jobs.running import Outcome, Reporter
from engine.backtest.comparison import backtest
from engine.backtest.policy import read_rules
from engine.errors import Fault, InfeasibleError

__all__ = ["run_backtest"]


def run_backtest(report: Reporter) -> Outcome:
    """Replay the job's period through its policy."""
    row = BacktestRun.objects.select_related("cluster").get(pk=report.job.params["backtest"])
    report(0.0, "Reading what was recorded")
    grid = grid_of(reach_of(row.cluster), row.since, row.until)
    if grid is None:
        message = "the records of the period are gone"
        raise InfeasibleError(f"No backtest: {message}", [Fault("since", message)])
    story = story_of(row, grid)
    started = time.perf_counter()
    answer = backtest(story, read_rules(row.policy), lambda share, step: report(0.02 + 0.97 * share, step))
    duration_s = time.perf_counter() - started

    def store(job: Job) -> Outcome:
        stored = backtest_store(row=row, answer=answer, duration_s=duration_s)
        page = f"/c/{stored.cluster.slug}/backtests/{stored.pk}/"
        return Outcome({"backtest": str(stored.pk), **stored.facts}, page, f"/api/v1/backtests/{stored.pk}")

    return Outcome(store=store)
