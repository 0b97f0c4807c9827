"""Findings of forecasts: curves, shortages, changes since, and the regret of pool sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import numpy as np

from apps.core.errors import Impossible, Malformed
from apps.fleet.models import Cluster
from apps.planning.models import Forecast, LoadHistory
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.snapshots.cluster import snapshot_changes
from apps.queries.snapshots.parts import parts_shown
from engine.errors import OptionError
from engine.forecasts.answer import ForecastAnswer, ForecastBottleneck, ForecastCurves, QueryForecast
from engine.forecasts.regret import LeastRegret, least_regret
from engine.records import Record
from engine.words import duration_words

__all__ = [
    "PoolFix",
    "Shortage",
    "forecast_answer",
    "forecast_changes",
    "forecast_latest",
    "forecast_regret",
    "forecast_series",
    "pools_basis",
    "shortages",
]

_DAY_S = 86_400
_LIKELY_SHARE = 0.9


def forecast_answer(forecast: Forecast) -> ForecastAnswer:
    """The engine's answer, without curves."""
    return ForecastAnswer.parse(forecast.result)


def forecast_series(forecast: Forecast) -> ForecastCurves:
    """The curves of a forecast; empty where they have been dropped."""
    return cast(ForecastCurves, forecast.series or {})


def forecast_regret(
    forecast: Forecast, *, cost_per_violation_hour: float, horizon_days: int, series: ForecastCurves | None = None
) -> LeastRegret:
    """The pool size to regret least over the first `horizon_days` of a forecast.

    Raises
    ------
    Malformed
        A cost or horizon out of range.
    Impossible
        The forecast judged no pools, its nodes have no prices, or its curves have been dropped.
    """
    days = max(1, math.ceil(forecast.horizon * forecast.bucket_s / _DAY_S))
    if not 1 <= horizon_days <= days:
        message = f"horizon_days is {horizon_days}; allowed: 1 to {days}, what was forecast"
        raise Malformed(f"horizon_days: {message}.", [("horizon_days", message)])
    hours = (series if series is not None else forecast_series(forecast)).get("pools", {})
    judged = [pool for pool in forecast_answer(forecast).pools if str(pool.size) in hours]
    if not judged:
        raise Impossible("The forecast judged no pool sizes.", [("forecast", "judged no pool sizes")])
    prices = [pool.price_per_hour for pool in judged if pool.price_per_hour is not None]
    if len(prices) < len(judged):
        message = "not every pool of nodes has a price per hour; give each one its price"
        raise Impossible(f"Costs cannot be compared: {message}.", [("prices", message)])
    table = np.array([np.asarray(hours[str(pool.size)])[:, :horizon_days].sum(axis=1) for pool in judged])
    try:
        return least_regret(
            [pool.size for pool in judged],
            prices,
            table,
            cost_per_violation_hour=cost_per_violation_hour,
            horizon_h=horizon_days * 24.0,
            currency=forecast.cluster.currency,
        )
    except OptionError as error:
        raise Malformed(error.message, [(fault.path, fault.message) for fault in error.faults]) from None


@dataclass(frozen=True)
class PoolFix(Record):
    """A pool in which an objective is likely to hold; none `added` means that placing operators anew is enough."""

    size: int
    added: int
    price_per_hour: float | None
    holds: float


@dataclass(frozen=True)
class Shortage:
    """An objective that a forecast sees violated or at risk.

    Attributes
    ----------
    first_at : datetime
        The earliest of the three dates, in UTC.
    band : str
        Which of them that is: `mean`, `high` or `risk`.
    mean_at, high_at : datetime or None
        When the median is over the bound: at the expected load, and at the upper end of the 90 % band of loads. None
        where the forecast does not see it within its horizon.
    risk_at : datetime or None
        When it is at risk at the expected load: random costs and arrivals may take it over the bound.
    latency_s, low_s, upper_s : float
        Median and 90 % interval of the objective's statistic at `first_at`.
    confirmed : bool
        Whether a walk of that very hour says so too, and not what was read between walks.
    holds : float or None
        Probability that the objective holds over the whole horizon.
    bottleneck : ForecastBottleneck or None
        Where the work waits then.
    fix : PoolFix or None
        The smallest judged pool in which the objective holds with at least 90 %.
    """

    query: str
    statistic: str
    bound_s: float
    first_at: datetime
    band: str
    mean_at: datetime | None
    high_at: datetime | None
    risk_at: datetime | None
    latency_s: float
    low_s: float
    upper_s: float
    confirmed: bool
    holds: float | None
    bottleneck: ForecastBottleneck | None
    fix: PoolFix | None


def forecast_latest(cluster: Cluster) -> Forecast | None:
    """A cluster's newest forecast."""
    return Forecast.objects.filter(cluster=cluster).first()


def forecast_changes(forecast: Forecast) -> Sequence[str]:
    """Changes of the cluster since a forecast was made; empty if it still holds."""
    present = parts_shown(forecast.cluster, lambda: forecast.job)
    changes = []
    if forecast.is_over:
        changes.append(
            f"its time has passed, for the histories end on {forecast.starts_at:%d %B %Y}; upload newer load"
        )
    if present.digest != forecast.snapshot:
        changes += snapshot_changes(forecast.snapshot_parts, present.parts)
    rows = LoadHistory.objects.filter(cluster_id=forecast.cluster_id).values_list("source_id", "digest")
    present = dict(rows)
    moved = sorted(n for n in present.keys() | forecast.histories.keys() if present.get(n) != forecast.histories.get(n))
    return [*changes, *(f"load history of {name} changed" for name in moved)]


def shortages(cluster: Cluster, forecast: Forecast | None = None) -> list[Shortage]:
    """Objectives that the newest forecast (or the given one) sees violated or at risk, the earliest first.

    Queries that do not run any more are left out.
    """
    row = forecast or forecast_latest(cluster)
    if row is None:
        return []
    running = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING).values_list("name", flat=True)
    names = set(running)
    answer = forecast_answer(row)
    threatened = [_shortage(row, answer, query) for query in answer.queries if query.query in names]
    return sorted(
        (shortage for shortage in threatened if shortage), key=lambda shortage: (shortage.first_at, shortage.query)
    )


def _shortage(row: Forecast, answer: ForecastAnswer, query: QueryForecast) -> Shortage | None:
    band, seen = query.first_band, query.violations
    if band is None:
        return None
    first, dates = seen[band], {name: row.at(violation.index) for name, violation in seen.items()}
    chance = answer.probability.queries.get(query.query) if answer.probability else None
    return Shortage(
        query=query.query,
        statistic=query.statistic,
        bound_s=query.bound_s,
        first_at=dates[band],
        band=band,
        mean_at=dates.get("mean"),
        high_at=dates.get("high"),
        risk_at=dates.get("risk"),
        latency_s=first.estimate_s,
        low_s=first.low_s,
        upper_s=first.high_s,
        confirmed=first.confirmed,
        holds=None if query.is_for_person or chance is None else chance.holds,
        bottleneck=query.bottleneck,
        fix=None if query.is_for_person else _fix(answer, query.query),
    )


def _fix(answer: ForecastAnswer, query: str) -> PoolFix | None:
    for pool in answer.pools:
        chance = pool.probability.queries.get(query) if pool.probability else None
        holds = chance.holds if chance else 0.0
        if holds >= _LIKELY_SHARE and pool.size >= answer.nodes:
            return PoolFix(pool.size, pool.size - answer.nodes, pool.price_per_hour, holds)
    return None


def pools_basis(row: Forecast) -> str:
    """Basis of a forecast's pool sizes, and that of the bench's, which is another question."""
    horizon = duration_words(float(row.horizon * row.bucket_s))
    return (
        f"For the loads forecast over {horizon}, with random costs and all nodes up: the nodes that cost least to "
        "regret. The bench's number is for the load of the estimate, with mean costs and, unless asked otherwise, any "
        "one node lost: the fewest nodes that keep every objective."
    )
