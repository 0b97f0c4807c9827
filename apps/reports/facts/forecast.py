"""Shortages that the newest forecast of load sees within the horizon."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from apps.fleet.models import Cluster
from apps.planning.forecast_findings import (
    Shortage,
    forecast_answer,
    forecast_changes,
    forecast_latest,
    forecast_series,
    shortages,
)
from apps.planning.models import Forecast
from engine.forecasts.answer import ForecastAnswer

__all__ = ["forecast_facts"]

_POINTS = 700
_MISSING = (
    "There is no forecast: upload or generate load history under Provisioning, Forecast. From then on Sluice renews "
    "the forecast every day, and the next report says when an objective would be violated."
)


def forecast_facts(cluster: Cluster, horizon_days: int, now: datetime) -> dict[str, Any]:
    """Violated objectives with their dates, how good the forecast was on the past, and the curve of the earliest."""
    row = forecast_latest(cluster)
    if row is None:
        return {"available": False, "text": _MISSING, "horizon_days": horizon_days}
    if row.is_over:
        text = f"The newest forecast rests on load histories that end on {row.starts_at:%d %B %Y}: upload newer load."
        return {"available": False, "text": text, "horizon_days": horizon_days}
    answer = forecast_answer(row)
    until = now + timedelta(days=horizon_days)
    every = shortages(cluster, row)
    due = [shortage for shortage in every if shortage.first_at <= until]
    return {
        "available": True,
        "horizon_days": horizon_days,
        "made_at": row.created_at.isoformat(),
        "starts_at": row.starts_at.isoformat(),
        "ends_at": row.ends_at.isoformat(),
        "bucket_s": row.bucket_s,
        "changes": list(forecast_changes(row))[:5],
        "shortages": [_shortage(shortage) for shortage in due],
        "later": len(every) - len(due),
        "lacking": [f"Of {entry.query} {entry.lacking}." for entry in answer.queries if entry.is_for_person],
        "curve": _curve(row, answer, due[0].query if due else "", until),
        "load": _load(row, until),
        "backtests": _backtests(answer),
        "assumptions": list(answer.assumptions),
    }


def _shortage(shortage: Shortage) -> dict[str, Any]:
    return {
        "query": shortage.query,
        "statistic": shortage.statistic,
        "bound_s": shortage.bound_s,
        "first_at": shortage.first_at.isoformat(),
        "band": shortage.band,
        "mean_at": shortage.mean_at.isoformat() if shortage.mean_at else None,
        "high_at": shortage.high_at.isoformat() if shortage.high_at else None,
        "risk_at": shortage.risk_at.isoformat() if shortage.risk_at else None,
        "latency_s": shortage.latency_s,
        "low_s": shortage.low_s,
        "upper_s": shortage.upper_s,
        "confirmed": shortage.confirmed,
        "holds": shortage.holds,
        "bottleneck": shortage.bottleneck.node or shortage.bottleneck.server if shortage.bottleneck else "",
        "fix": shortage.fix.to_dict() if shortage.fix else None,
    }


def _curve(row: Forecast, answer: ForecastAnswer, query: str, until: datetime) -> dict[str, Any] | None:
    """Latency of the query that is violated first (else of the one nearest to its bound), by bucket."""
    facts = {entry.query: entry for entry in answer.queries if entry.bound_s}
    curves = forecast_series(row).get("queries", {})
    if not query:
        query = max(facts, key=lambda name: facts[name].worst_high_s / facts[name].bound_s, default="")
    if query not in curves or query not in facts:
        return None
    kept = _buckets(row, until)
    return {
        "query": query,
        "bound_s": facts[query].bound_s,
        "statistic": facts[query].statistic,
        **{
            name: _thin(curves[query][name][:kept])
            for name in ("mean", "high", "low", "upper")
            if name in curves[query]
        },
    }


def _load(row: Forecast, until: datetime) -> dict[str, Any] | None:
    total = forecast_series(row).get("total")
    if not total:
        return None
    kept = _buckets(row, until)
    return {name: _thin(total[name][:kept]) for name in ("mean", "low", "high")}


def _buckets(row: Forecast, until: datetime) -> int:
    return max(1, min(row.horizon, int((until - row.starts_at).total_seconds() // row.bucket_s)))


def _thin(values: list[float]) -> list[float]:
    """The maximum of each of at most `_POINTS` parts: a peak that is not drawn would hide a violation."""
    width = -(-len(values) // _POINTS)
    return [max(value or 0.0 for value in values[k : k + width]) for k in range(0, len(values), width)]


def _backtests(answer: ForecastAnswer) -> list[dict[str, Any]]:
    return [
        {
            "source": name,
            "model": source.model,
            "error_share": source.backtest.mape,
            "coverage": source.backtest.coverage,
            "origins": source.backtest.n_origins,
        }
        for name, source in answer.sources.items()
    ]
