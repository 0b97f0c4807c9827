"""A backtest of the demo's cluster: its last week, had every request been admitted at the beginning."""

from __future__ import annotations

from django.db import transaction

from apps.accounts.models import User
from apps.backtests.choices import Asked
from apps.backtests.services import backtest_create
from apps.backtests.work import run_backtest
from apps.fleet.models import Cluster
from apps.jobs.choices import JobKind
from apps.pages.demo.doing import Doing

__all__ = ["backtest_build"]


def backtest_build(cluster: Cluster, user: User, later: Doing) -> None:
    """Replay the week of the load histories, unless there is a backtest."""
    if cluster.backtests.exists():
        return
    with transaction.atomic():
        row = backtest_create(cluster=cluster, user=user, policy={"admission": "everything"}, ask=Asked.START)
        params = {"backtest": str(row.pk)}
        row.job = later.job(JobKind.BACKTEST, f"Backtest of {cluster.slug}", cluster, user, params)
        row.save(update_fields=["job"])
    later.finish(row.job, run_backtest)
