"""Pool sizes of a forecast compared by cost: nodes against violated objectives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from apps.core.errors import Impossible, Malformed
from apps.forecasts.forecasting import forecast_series
from apps.forecasts.models import Forecast
from engine.errors import OptionError
from engine.forecasting.regret import LeastRegret, least_regret

__all__ = ["forecast_regret"]

_DAY_S = 86_400


def forecast_regret(
    forecast: Forecast, *, cost_per_violation_hour: float, horizon_days: int, series: dict[str, Any] | None = None
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
    judged = [pool for pool in forecast.result["pools"] if str(pool["size"]) in hours]
    if not judged:
        raise Impossible("The forecast judged no pool sizes.", [("forecast", "judged no pool sizes")])
    if any(pool["price_per_hour"] is None for pool in judged):
        message = "not every pool of nodes has a price per hour; give each one its price"
        raise Impossible(f"Costs cannot be compared: {message}.", [("prices", message)])
    table = np.array([np.asarray(hours[str(pool["size"])])[:, :horizon_days].sum(axis=1) for pool in judged])
    try:
        return least_regret(
            [pool["size"] for pool in judged],
            [pool["price_per_hour"] for pool in judged],
            table,
            cost_per_violation_hour=cost_per_violation_hour,
            horizon_h=horizon_days * 24.0,
        )
    except OptionError as error:
        raise Malformed(error.message, [(fault.path, fault.message) for fault in error.faults]) from None
