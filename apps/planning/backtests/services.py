"""Backtests: requested, stored and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Impossible, Malformed, fault_count, from_engine
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.planning.backtests.selectors import policy_default, recorded_reaches, segment_grid
from apps.planning.choices import RequestTiming, RunState
from apps.planning.models import BacktestRun
from apps.planning.runs import BACKTEST
from engine.backtest.policy import read_policy
from engine.errors import EngineError

__all__ = [
    "backtest_create",
    "backtest_delete",
    "backtest_request",
    "backtest_store",
]

WEEK = timedelta(days=7)
MAX_DAYS = 366
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@transaction.atomic
def backtest_request(*, cluster: Cluster, user: User | None, **asked: Any) -> tuple[BacktestRun, Job]:
    """Ask for a backtest; arguments as of `backtest_create`."""
    row = backtest_create(cluster=cluster, user=user, **asked)
    return row, BACKTEST.submit(row, cluster, user)


def backtest_create(
    *,
    cluster: Cluster,
    user: User | None,
    since: datetime | None = None,
    until: datetime | None = None,
    policy: Mapping[str, Any] | None = None,
    ask: str = RequestTiming.RECORDED,
) -> BacktestRun:
    """Write a backtest, not sent to a worker yet.

    Parameters
    ----------
    since, until : datetime, optional
        The period; by default the week up to now. Only what records reach of it is replayed.
    policy : mapping, optional
        As `engine.backtest.policy` reads it; fields left out are as the cluster decides now.
    ask : str
        A value of `RequestTiming`.

    Raises
    ------
    Malformed
        With every fault of the policy and the period.
    Impossible
        Nothing was recorded in the period.
    """
    end = until or timezone.now()
    begin = since or max(end, _FIRST + WEEK) - WEEK
    faults = _period_faults(begin, end)
    if ask not in RequestTiming.values:
        faults.append(Fault("ask", f"ask is {ask!r}; allowed: {', '.join(RequestTiming.values)}"))
    rules = None
    try:
        rules = read_policy({**policy_default(cluster), **(policy or {})})
    except EngineError as error:
        faults += from_engine(error).faults
    if faults or rules is None:
        raise Malformed(f"The backtest has {fault_count(faults)}; first: {faults[0].message}", faults)
    _require_records(cluster, begin, end)
    return BacktestRun.objects.create(
        cluster=cluster,
        since=begin,
        until=end,
        policy=rules.to_dict(),
        ask=ask,
        requested_by=user if user is not None and user.pk else None,
    )


def backtest_store(*, row: BacktestRun, answer: Mapping[str, Any], duration_s: float) -> BacktestRun:
    """Keep an answer. Called inside the job's transaction."""
    tested, recorded = answer["tested"], answer["recorded"]
    row.result = dict(answer)
    row.facts = {
        "headline": answer["headline"],
        "asked": tested["asked"],
        "admitted": tested["admitted"],
        "admitted_recorded": recorded["admitted"],
        "seconds_over": tested["seconds_over"],
        "seconds_over_recorded": recorded["seconds_over"],
        "moves": tested["moves"],
        "segments": answer["segments"],
        "width_s": answer["width_s"],
        "since_s": answer["since_s"],
        "until_s": answer["until_s"],
    }
    row.state, row.finished_at, row.duration_s = RunState.ANSWERED, timezone.now(), duration_s
    row.save(update_fields=["result", "facts", "state", "finished_at", "duration_s", "updated_at"])
    BACKTEST.announce(row)
    return row


@transaction.atomic
def backtest_delete(*, row: BacktestRun) -> None:
    """Delete a backtest."""
    BACKTEST.announce(row)
    row.delete()


def _period_faults(since: datetime, until: datetime) -> list[Fault]:
    if until <= since:
        return [Fault("until", f"until is {until:%Y-%m-%d %H:%M}; allowed: after since, {since:%Y-%m-%d %H:%M}")]
    if since < _FIRST:
        return [Fault("since", f"since is {since:%Y-%m-%d %H:%M}; allowed: from 1970 on")]
    if until - since > timedelta(days=MAX_DAYS):
        days = (until - since).days
        return [Fault("since", f"the period has {days} days; allowed: at most {MAX_DAYS}")]
    return []


def _require_records(cluster: Cluster, since: datetime, until: datetime) -> None:
    reaches = recorded_reaches(cluster)
    if not reaches:
        message = f"nothing was recorded of the arrivals of {cluster.slug} yet: no telemetry and no load history"
        raise Impossible(f"No backtest: {message}.", [("cluster", message)])
    if segment_grid(reaches, since, until) is None:
        first, last = min(reach.first for reach in reaches), max(reach.last for reach in reaches)
        message = (
            f"nothing was recorded from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC; records of "
            f"{cluster.slug} reach from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
        )
        raise Impossible(f"No backtest: {message}.", [("since", message)])
