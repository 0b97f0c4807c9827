"""Load histories made up: a daily and a weekly pattern with growth and noise, for what has no record yet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np

from apps.core.errors import Fault
from apps.forecasts.choices import BUCKETS
from apps.queries.arrival_checks import malformed
from engine.elements import FloatArray

__all__ = ["DEFAULTS", "generated_history", "history_spec"]

# name: default, least, most, what it is
_FIELDS: dict[str, tuple[float, float, float]] = {
    "peak_rate_eps": (0.0, 0.0, 1e9),
    "weeks": (8, 1, 104),
    "growth_per_week": (0.02, -0.5, 0.5),
    "daily_swing": (0.5, 0.0, 1.0),
    "weekend_dip": (0.2, 0.0, 1.0),
    "peak_hour": (14.0, 0.0, 24.0),
    "noise": (0.03, 0.0, 1.0),
    "seed": (0, 0, 2**31 - 1),
}
_WHOLE = {"weeks", "seed"}
DEFAULTS = {name: entry[0] for name, entry in _FIELDS.items()}


def history_spec(given: Mapping[str, Any], path: str = "generator") -> dict[str, float]:
    """The parameters with their defaults.

    Raises
    ------
    Malformed
        With every parameter that is unknown, missing or out of range.
    """
    faults = [
        Fault(f"{path}.{name}", f"unknown field; allowed: {', '.join(_FIELDS)}")
        for name in given
        if name not in _FIELDS
    ]
    if "peak_rate_eps" not in given:
        faults.append(Fault(f"{path}.peak_rate_eps", "peak_rate_eps is missing; allowed: events per second"))
    for name, (_, least, most) in _FIELDS.items():
        value = given.get(name, least)
        kind = "a whole number" if name in _WHOLE else "a number"
        fits = isinstance(value, int if name in _WHOLE else (int, float)) and not isinstance(value, bool)
        if not (fits and least <= value <= most):
            allowed = f"{kind} from {least:g} to {most:g}"
            faults.append(Fault(f"{path}.{name}", f"{name} is {value!r}; allowed: {allowed}"))
    if faults:
        raise malformed(faults)
    return {**DEFAULTS, **given}


def generated_history(
    spec: Mapping[str, float], *, bucket_s: int, ends_at: datetime, zone: tzinfo
) -> tuple[float, FloatArray]:
    """Unix time of the first bucket and events per bucket, up to the last bucket that is over at `ends_at`.

    The rate is ``peak_rate_eps`` in the busiest hour of a working day at the end; `daily_swing` below it twelve hours
    from `peak_hour`; `weekend_dip` lower on Saturday and Sunday; and smaller in the past by the growth per week. Days
    are those of `zone`.
    """
    if bucket_s not in BUCKETS:
        raise ValueError(f"bucket_s is {bucket_s}; allowed: {BUCKETS}")
    end_s = math.floor(ends_at.timestamp() / bucket_s) * bucket_s
    count = round(spec["weeks"] * 604_800 / bucket_s)
    start_s = end_s - count * bucket_s
    middles = start_s + (np.arange(count) + 0.5) * bucket_s
    local = [datetime.fromtimestamp(at, UTC).astimezone(zone) for at in middles]
    hours = np.array([at.hour + at.minute / 60.0 for at in local])
    weekend = np.array([at.weekday() >= 5 for at in local])
    day = 1.0 - spec["daily_swing"] * 0.5 * (1.0 - np.cos(2.0 * np.pi * (hours - spec["peak_hour"]) / 24.0))
    week = np.where(weekend, 1.0 - spec["weekend_dip"], 1.0)
    growth = (1.0 + spec["growth_per_week"]) ** ((middles - end_s) / 604_800.0)
    rng = np.random.default_rng(int(spec["seed"]))
    noise = rng.normal(0.0, spec["noise"], count)
    rate = spec["peak_rate_eps"] * day * week * growth * np.exp(noise - 0.5 * spec["noise"] ** 2)
    return start_s, rng.poisson(rate * bucket_s).astype(np.float64)
