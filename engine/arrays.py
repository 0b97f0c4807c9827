"""Arrays of floats and whole numbers: read-only copies, and means and quantiles across subintervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

__all__ = [
    "LEVELS",
    "FloatArray",
    "FloatSeries",
    "IntArray",
    "event_mean",
    "event_quantile",
    "event_quantiles",
    "finite_max",
    "frozen_array",
    "nearest_rank",
    "statistic_of",
    "statistic_or_worst",
    "step_maxima",
]


FloatArray = npt.NDArray[np.float64]

#: Numbers over time in a record: an array, which is a list in JSON.
FloatSeries = Annotated[
    FloatArray,
    BeforeValidator(lambda values: np.asarray(values, dtype=np.float64)),
    PlainSerializer(lambda values: values.tolist()),
    WithJsonSchema({"type": "array", "items": {"type": "number"}}),
]

IntArray = npt.NDArray[np.int64]

LEVELS = (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
_ROUNDING = 1e-12  # 0.95 * 20 must not become rank 20 because of its last bit


def finite_max(values: FloatArray) -> float | None:
    """Largest value; None where one is infinite, 0 without any.

    Examples
    --------
    >>> finite_max(np.array([1.0, 3.0])), finite_max(np.array([1.0, np.inf]))
    (3.0, None)
    """
    largest = float(values.max(initial=0.0))
    return largest if math.isfinite(largest) else None


def frozen_array(values: npt.ArrayLike) -> FloatArray:
    """A read-only, contiguous float64 copy of `values` (an array that already is one is shared)."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and not values.flags.writeable:
        return np.ascontiguousarray(values)
    array = np.array(values, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array


def nearest_rank(values: FloatArray, level: float) -> float:
    """The ceil(level * d)-th smallest of d values."""
    rank = max(1, math.ceil(level * len(values) * (1.0 - _ROUNDING)))
    return float(np.partition(values, rank - 1)[rank - 1])


def event_mean(values: FloatArray, weights: FloatArray) -> float | None:
    """Mean of `values`, each weighted by its events; None without events."""
    total = float(weights.sum())
    return float((values * weights).sum() / total) if total > 0.0 else None


def event_quantile(values: FloatArray, weights: FloatArray, level: float) -> float | None:
    """Smallest value whose cumulated events reach `level` of all; None without events."""
    return event_quantiles(values, weights, [level])[0] if float(weights.sum()) > 0.0 else None


def event_quantiles(values: FloatArray, weights: FloatArray, levels: Sequence[float]) -> list[float]:
    """Smallest values whose cumulated events reach each of `levels` of all; there are events."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    at = np.searchsorted(reached, np.asarray(levels) * float(weights.sum()) * (1.0 - _ROUNDING))
    return [float(value) for value in values[order[np.minimum(at, len(values) - 1)]]]


def statistic_of(values: FloatArray, weights: FloatArray, statistic: str) -> float | None:
    """``worst``, ``mean`` or ``q0.99`` and the like of a query's latencies, weighted by its sink events.

    None without events: there is no latency then, and none is not 0 (`engine.estimation.probes` says what to do).
    """
    if not weights.any():
        return None
    if statistic == "worst":
        return float(values.max(initial=0.0))
    if statistic == "mean":
        return event_mean(values, weights)
    return event_quantile(values, weights, float(statistic[1:]))


def statistic_or_worst(values: FloatArray, weights: FloatArray, statistic: str) -> float:
    """The same, where no events are behind it the largest value: for searches, which must not find 0 attractive."""
    value = statistic_of(values, weights, statistic)
    return float(values.max(initial=0.0)) if value is None else value


def step_maxima(values: npt.ArrayLike, limit: int) -> FloatArray:
    """The maximum of each of at most `limit` steps of equal length (the last may be shorter), along the last axis.

    The maximum is kept because a chart of latency that hides a peak would be wrong about the one thing it is for.

    Examples
    --------
    >>> step_maxima([1, 5, 2, 0, 7], 3).tolist()
    [5.0, 2.0, 7.0]
    """
    array = np.asarray(values, dtype=np.float64)
    width = math.ceil(array.shape[-1] / limit)
    if width <= 1:
        return array
    return np.maximum.reduceat(array, np.arange(0, array.shape[-1], width), axis=-1)
