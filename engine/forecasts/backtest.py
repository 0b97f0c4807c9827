"""Backtest of a forecast: rolling origins, against a seasonal-naive baseline.

At each origin the model is fitted again to what was known then. Errors are reported by how far ahead they lie. The band
is widened by one factor on either side, the one that would have held `level` of the errors (conformal calibration); the
coverage reported for an origin uses the factor of the other origins, so no number is judged by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.forecasts.answer import Band, ForecastBacktest
from engine.forecasts.history import DAY_S, WEEK_S, Prepared
from engine.forecasts.model import Structure, fit
from engine.records import Fact

__all__ = ["backtest_source", "widen_bands"]

ORIGINS = 6
_PATHS = 200
_WIDEST = 6.0


@dataclass(frozen=True, eq=False)
class _Origin:
    """One origin: actual and forecast logarithms of the buckets known after it."""

    ahead: FloatArray  # (m,) buckets ahead, from 1
    actual: FloatArray
    centre: FloatArray
    low: FloatArray
    high: FloatArray
    naive: FloatArray
    naive_low: FloatArray
    naive_high: FloatArray


def backtest_source(
    prepared: Prepared,
    structure: Structure,
    *,
    bucket_s: float,
    horizon: int,
    level: float,
    seed: int = 0,
    origins: int = ORIGINS,
) -> ForecastBacktest:
    """Roll the origin through the second half of a history."""
    ends = _ends(len(prepared.values), structure, horizon, origins)
    if not ends:
        return ForecastBacktest(0, None, None, None, (1.0, 1.0), (), (Fact("forecasts.no_backtest"),))
    tried = [_origin(prepared, structure, end, horizon, level, seed) for end in ends]
    tried = [origin for origin in tried if len(origin.actual)]
    bands = _bands(prepared, tried, bucket_s, horizon, level)
    total = (bands[-1].mape, bands[-1].median_ape, bands[-1].coverage) if bands else (None, None, None)
    return ForecastBacktest(len(tried), *total, _widening(tried, level), bands)


def widen_bands(paths: FloatArray, centre: FloatArray, factors: tuple[float, float]) -> FloatArray:
    """Paths moved away from their centre, by one factor below and one above it."""
    away = paths - centre[None, :]
    return np.asarray(centre[None, :] + np.where(away < 0.0, factors[0], factors[1]) * away)


def _ends(n: int, structure: Structure, horizon: int, origins: int) -> list[int]:
    """Positions of the origins: in whole seasons from the end, the first with half of the history and two seasons."""
    shortest = min(structure.seasons, default=1)
    first = max(n // 2, 2 * max(structure.seasons, default=0) + 1, 14 * structure.step if structure.seasons else 14)
    last = n - max(shortest, 2)
    if first > last:
        return []
    ends = np.linspace(first, last, min(origins, last - first + 1))
    return sorted({n - -(-(n - round(end)) // shortest) * shortest for end in ends if n - round(end) > 0})


def _origin(prepared: Prepared, structure: Structure, end: int, horizon: int, level: float, seed: int) -> _Origin:
    known = prepared.part(end)
    fitted = fit(known, structure)
    m = min(horizon, len(prepared.values) - end)
    centre, paths = fitted.centre(m), fitted.paths(m, _PATHS, seed)
    low, high = np.quantile(paths, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    period = max(fitted.structure.seasons, default=1)
    naive = np.resize(known.values[-period:], m)
    steps = known.values[period:] - known.values[:-period]
    below, above = np.quantile(steps, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    keep = ~prepared.missing[end : end + m]
    parts = (
        np.arange(1, m + 1),
        prepared.values[end : end + m],
        centre,
        low,
        high,
        naive,
        naive + below,
        naive + above,
    )
    return _Origin(*(np.asarray(part, dtype=np.float64)[keep] for part in parts))


def _scores(origin: _Origin) -> tuple[FloatArray, FloatArray]:
    """Errors in units of the band's half on their side: negative and positive ones."""
    error = origin.actual - origin.centre
    tiny = 1e-9
    below = error[error < 0.0] / -np.maximum(origin.centre - origin.low, tiny)[error < 0.0]
    above = error[error >= 0.0] / np.maximum(origin.high - origin.centre, tiny)[error >= 0.0]
    return below, above


def _widening(origins: Sequence[_Origin], level: float) -> tuple[float, float]:
    """Factors, at least 1, with which the band would have held `level` of the errors on either side."""
    sides = [_scores(origin) for origin in origins]
    low, high = (np.concatenate([side[i] for side in sides]) if sides else np.zeros(0) for i in (0, 1))
    return tuple(float(np.clip(np.quantile(part, level), 1.0, _WIDEST)) if len(part) else 1.0 for part in (low, high))  # type: ignore[return-value]


def _bands(
    prepared: Prepared, origins: Sequence[_Origin], bucket_s: float, horizon: int, level: float
) -> tuple[Band, ...]:
    inside = []
    for i, origin in enumerate(origins):
        others = [other for k, other in enumerate(origins) if k != i]
        down, up = _widening(others, level)
        low = origin.centre - down * (origin.centre - origin.low)
        high = origin.centre + up * (origin.high - origin.centre)
        inside.append((low <= origin.actual) & (origin.actual <= high))
    ahead_s = np.concatenate([origin.ahead for origin in origins]) * bucket_s
    hit = np.concatenate(inside)
    naive_hit = np.concatenate([(o.naive_low <= o.actual) & (o.actual <= o.naive_high) for o in origins])
    actual = prepared.counts(np.concatenate([origin.actual for origin in origins]))
    errors = [
        _ape(prepared.counts(np.concatenate([getattr(origin, name) for origin in origins])), actual)
        for name in ("centre", "naive")
    ]
    bands = []
    for words, from_s, to_s in _intervals(bucket_s, horizon):
        chosen = (ahead_s > from_s) & (ahead_s <= to_s)
        if chosen.any():
            bands.append(
                _band(words, from_s, to_s, errors[0][chosen], errors[1][chosen], hit[chosen], naive_hit[chosen])
            )
    return tuple(bands)


def _intervals(bucket_s: float, horizon: int) -> list[tuple[str, float, float]]:
    end_s = horizon * bucket_s
    edges = [0.0, DAY_S, WEEK_S, 2 * WEEK_S, 4 * WEEK_S, np.inf]
    words = ["up to a day", "a day to a week", "a week to two", "two to four weeks", "beyond four weeks"]
    inner = [
        (text, low, min(high, end_s)) for text, (low, high) in zip(words, pairwise(edges), strict=True) if low < end_s
    ]
    return [*inner, ("all horizons", 0.0, end_s)]


def _ape(said: FloatArray, actual: FloatArray) -> FloatArray:
    """Absolute error over the actual load; NaN where nothing happened."""
    return np.abs(said - actual) / np.where(actual > 0.5, actual, np.nan)


def _band(words: str, from_s: float, to_s: float, ape: FloatArray, naive: FloatArray, hit: Any, naive_hit: Any) -> Band:
    def mean(values: FloatArray) -> float | None:
        return float(np.nanmean(values)) if np.isfinite(values).any() else None

    def median(values: FloatArray) -> float | None:
        return float(np.nanmedian(values)) if np.isfinite(values).any() else None

    return Band(
        words,
        from_s,
        to_s,
        len(ape),
        mean(ape),
        median(ape),
        float(hit.mean()),
        mean(naive),
        median(naive),
        float(naive_hit.mean()),
    )
