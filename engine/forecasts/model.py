"""The seasonal model: multiple seasons by MSTL, the level by exponential smoothing, the rest by blocks of residuals.

On the logarithmic scale a history is season + level of its step + what is left within the step. Seasons come from MSTL
(seasonal-trend decomposition by loess for several periods), the level of each step (a day, where there are enough) from
an ETS model, chosen among none, additive and damped trend by AICc. What is left is drawn again in blocks of one step,
in phase, so that a noisy hour stays a noisy hour and neighbouring hours stay alike.

References: K. Bandara, R. Hyndman, C. Bergmeir, "MSTL: A Seasonal-Trend Decomposition Algorithm for Time Series with
Multiple Seasonal Patterns", 2021; R. Hyndman et al., "Forecasting with Exponential Smoothing", 2008.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.forecasts.history import Prepared
from engine.records import Fact

__all__ = ["Fitted", "Structure", "fit"]

_MIN_STEPS = 14
_TRENDS: tuple[dict[str, object], ...] = ({}, {"trend": "add"}, {"trend": "add", "damped_trend": True})


@dataclass(frozen=True)
class Structure:
    """Structure chosen once per history: seasons and step in buckets, and one of three trends."""

    seasons: tuple[int, ...]
    step: int
    trend: int | None = None

    @property
    def words(self) -> Fact:
        """The model in words."""
        return Fact("forecasts.model", self.seasons, self.trend or 0)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of one history. Everything is on the logarithmic scale."""

    structure: Structure
    season: FloatArray  # (longest season,) that follows the history's end
    level: Any  # statsmodels' results
    blocks: FloatArray  # (steps, step) residuals within a step, in phase

    def centre(self, horizon: int) -> FloatArray:
        """Forecast without noise, shape (horizon,)."""
        steps = -(-horizon // self.structure.step)
        level = np.repeat(np.asarray(self.level.forecast(steps)), self.structure.step)[:horizon]
        return level + self._seasonal(horizon)

    def paths(self, horizon: int, count: int, seed: int) -> FloatArray:
        """Bootstrapped futures, shape (count, horizon).

        Errors of the level and blocks of residuals are drawn by their distance from the history's end: histories of
        equal length draw the same days with the same seed, so what moved together keeps moving together.
        """
        steps = -(-horizon // self.structure.step)
        rng = np.random.default_rng(seed)
        errors = np.asarray(self.level.resid)
        drawn = errors[_from_end(rng, len(errors), (steps, count))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            levels = np.asarray(self.level.simulate(steps, anchor="end", repetitions=count, random_errors=drawn))
        rest = self.blocks[_from_end(rng, len(self.blocks), (count, steps))].reshape(count, -1)[:, :horizon]
        levels = np.repeat(levels.reshape(steps, count).T, self.structure.step, axis=1)[:, :horizon]
        return np.asarray(levels + rest + self._seasonal(horizon)[None, :])

    def _seasonal(self, horizon: int) -> FloatArray:
        return np.resize(self.season, horizon)


def _from_end(rng: np.random.Generator, length: int, shape: tuple[int, int]) -> IntArray:
    """Random places in a list, the last of it for the smallest number drawn."""
    return np.asarray(length - 1 - np.minimum((rng.random(shape) * length).astype(np.int64), length - 1))


def fit(prepared: Prepared, structure: Structure | None = None) -> Fitted:
    """Fit a model to a history; `structure` repeats the choices of another fit (for rolling origins)."""
    values = prepared.values
    seasons = structure.seasons if structure else prepared.seasons
    seasons = tuple(p for p in seasons if 2 * p < len(values))
    seasonal, ahead = _decompose(values, seasons)
    step = _step(len(values), seasons)
    first = len(values) % step  # blocks are counted back from the end
    rest = (values - seasonal)[first:].reshape(-1, step)
    means = rest.mean(axis=1)
    level, trend = _level(means, structure.trend if structure else None)
    blocks = rest - means[:, None]
    # A season estimated from k repetitions has taken 1/k of the residuals' variance with it.
    repeats = len(values) / max(seasons, default=1)
    blocks = blocks * np.sqrt(repeats / (repeats - 1.0)) if seasons else blocks
    return Fitted(Structure(seasons, step, trend), ahead, level, blocks)


def _decompose(values: FloatArray, seasons: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Seasonal part (n,), and the one that follows the end for as long as the longest season."""
    if not seasons:
        return np.zeros(len(values)), np.zeros(1)
    from statsmodels.tsa.seasonal import MSTL

    # Trend and low pass are smooth: evaluated twice per season they are nearly the same, and many times quicker. A
    # season is a moving mean over its repetitions (degree 0): few repetitions do not carry a slope.
    jump = max(1, min(seasons) // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"trend_jump": jump, "low_pass_jump": jump, "seasonal_deg": 0}
        components = MSTL(values, periods=seasons, stl_kwargs=options).fit()
    parts = np.asarray(components.seasonal).reshape(len(values), -1)
    longest = max(seasons)
    ahead = sum(np.resize(parts[-period:, i], longest) for i, period in enumerate(sorted(seasons)))
    return np.asarray(parts.sum(axis=1)), np.asarray(ahead)


def _step(n: int, seasons: tuple[int, ...]) -> int:
    """Buckets whose mean is one value of the level: a season if there are 14 of them, else a part of it."""
    if not seasons:
        return 1
    shortest = min(seasons)
    return next(step for step in range(shortest, 0, -1) if shortest % step == 0 and (n // step >= _MIN_STEPS))


def _level(means: FloatArray, trend: int | None) -> tuple[Any, int]:
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a flat optimum is no reason for alarm: the backtest judges the outcome
        choices = range(len(_TRENDS)) if trend is None else [trend]
        models = [(ETSModel(means, **_TRENDS[i]).fit(disp=False), i) for i in choices]
    return min(models, key=lambda pair: pair[0].aicc if np.isfinite(pair[0].aicc) else np.inf)
