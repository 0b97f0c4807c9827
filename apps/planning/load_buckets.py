"""Load in buckets: traces put into them, series merged and coarsened, and loads that a generator makes up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np

from apps.core.errors import Fault
from apps.queries.arrivals.grid import EventCounts, EventStamps, Trace, resample
from apps.queries.arrivals.series import malformed
from engine.arrays import FloatArray
from engine.forecasts.history import bucket_fault

__all__ = [
    "GENERATOR_DEFAULTS",
    "bucket_trace",
    "coarsen_buckets",
    "generate_history",
    "merge_buckets",
    "read_generator",
]

_MIN_KNOWN_SHARE = 0.5  # share of a bucket that counts must cover for it to be known
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
GENERATOR_DEFAULTS = {name: entry[0] for name, entry in _FIELDS.items()}


def bucket_trace(trace: Trace, bucket_s: int) -> tuple[float, FloatArray]:
    """Unix time of the first bucket, and events per bucket, NaN in gaps.

    Buckets at either end that the trace covers only in part are left out. A bucket half covered or more is scaled up to
    its whole; of single events nothing tells a gap from silence, so silence it is.

    Raises
    ------
    Malformed
        Counts that last longer than a bucket: nothing tells how their events are spread over several.
    """
    step_s = float(np.median(trace.widths_s)) if isinstance(trace, EventCounts) else 0.0
    if step_s > bucket_s * (1.0 + 1e-9):
        raise malformed([Fault("file", f"its counts last {step_s:g} s each; allowed: up to the bucket ({bucket_s} s)")])
    first_s = math.floor(trace.start_s / bucket_s) * bucket_s
    buckets = max(1, math.ceil((trace.end_s - first_s) / bucket_s))
    grid = {"start_s": first_s, "slice_s": float(bucket_s), "slices": buckets}
    values = resample(trace, **grid)
    covered = _covered_share(trace, grid, bucket_s)
    whole = np.flatnonzero(covered > 0.999)
    if not len(whole):
        return first_s, np.zeros(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(covered >= _MIN_KNOWN_SHARE, values / covered, np.nan)
    low, high = int(whole[0]), int(whole[-1]) + 1
    return first_s + low * bucket_s, values[low:high]


def _covered_share(trace: Trace, grid: dict[str, float], bucket_s: int) -> FloatArray:
    if isinstance(trace, EventStamps):
        share = np.ones(int(grid["slices"]))
        # The ends are known as far as half of the usual distance of two events beyond the first and the last.
        near = (trace.end_s - trace.start_s) / max(1.0, 2.0 * trace.total)
        share[0] = min(1.0, (grid["start_s"] + bucket_s - trace.start_s + near) / bucket_s)
        share[-1] = min(1.0, (trace.end_s + near - grid["start_s"]) / bucket_s - (len(share) - 1))
        return share
    known_s = resample(EventCounts(trace.starts_s, trace.widths_s, trace.widths_s), **grid)  # type: ignore[arg-type]
    return np.asarray(known_s / bucket_s)


def merge_buckets(
    first_s: float, values: FloatArray, later_s: float, later: FloatArray, bucket_s: int
) -> tuple[float, FloatArray]:
    """Two series on one grid as one: where both know a bucket the later one counts, between them is a gap."""
    start_s = min(first_s, later_s)
    places = [round((at - start_s) / bucket_s) for at in (first_s, later_s)]
    whole = np.full(max(places[0] + len(values), places[1] + len(later)), np.nan)
    whole[places[0] : places[0] + len(values)] = values
    part = whole[places[1] : places[1] + len(later)]
    np.copyto(part, later, where=np.isfinite(later))
    return start_s, whole


def coarsen_buckets(first_s: float, values: FloatArray, bucket_s: int, wanted_s: int) -> tuple[float, FloatArray]:
    """A series in larger buckets (a multiple of its own); a bucket with an unknown part is unknown."""
    if wanted_s % bucket_s:
        raise ValueError(f"buckets of {bucket_s} s do not add up to {wanted_s} s")
    factor = wanted_s // bucket_s
    start_s = math.ceil(first_s / wanted_s) * wanted_s
    skip = round((start_s - first_s) / bucket_s)
    count = max(0, (len(values) - skip) // factor)
    return start_s, values[skip : skip + count * factor].reshape(count, factor).sum(axis=1)


def read_generator(fields: Mapping[str, Any], path: str = "generator") -> dict[str, float]:
    """The parameters with their defaults.

    Raises
    ------
    Malformed
        With every parameter that is unknown, missing or out of range.
    """
    faults = [
        Fault(f"{path}.{name}", f"unknown field; allowed: {', '.join(_FIELDS)}")
        for name in fields
        if name not in _FIELDS
    ]
    if "peak_rate_eps" not in fields:
        faults.append(Fault(f"{path}.peak_rate_eps", "peak_rate_eps is missing; allowed: events per second"))
    for name, (_, lowest, highest) in _FIELDS.items():
        value = fields.get(name, lowest)
        kind = "a whole number" if name in _WHOLE else "a number"
        fits = isinstance(value, int if name in _WHOLE else (int, float)) and not isinstance(value, bool)
        if not (fits and lowest <= value <= highest):
            allowed = f"{kind} from {lowest:g} to {highest:g}"
            faults.append(Fault(f"{path}.{name}", f"{name} is {value!r}; allowed: {allowed}"))
    if faults:
        raise malformed(faults)
    return {**GENERATOR_DEFAULTS, **fields}


def generate_history(
    spec: Mapping[str, float], *, bucket_s: int, ends_at: datetime, zone: tzinfo
) -> tuple[float, FloatArray]:
    """Unix time of the first bucket and events per bucket, up to the last bucket that is over at `ends_at`.

    The rate is ``peak_rate_eps`` in the busiest hour of a working day at the end; `daily_swing` below it twelve hours
    from `peak_hour`; `weekend_dip` lower on Saturday and Sunday; and smaller in the past by the growth per week. Days
    are those of `zone`.
    """
    if fault := bucket_fault(bucket_s):
        raise ValueError(fault)
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
