"""Reading backtests."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from apps.backtests.models import BacktestRun
from apps.core.packing import unpack_json
from apps.fleet.models import Cluster

__all__ = ["backtest_result", "backtests_listed", "policy_default"]


def backtests_listed() -> QuerySet[BacktestRun]:
    """Every backtest without its answer, newest first."""
    return BacktestRun.objects.select_related("cluster", "job", "requested_by").defer("result")


def backtest_result(row: BacktestRun) -> dict[str, Any] | None:
    """The engine's answer; None while there is none."""
    return None if row.result is None else dict(unpack_json(row.result))


def policy_default(cluster: Cluster) -> dict[str, Any]:
    """What the cluster itself does with doubt, as fields of a policy."""
    return {
        "at_risk": "review" if cluster.review_at_risk else "admit",
        "assumed": "review" if cluster.review_assumed else "admit",
    }
