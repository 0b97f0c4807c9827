"""Largest of several standard normal draws: its mean and standard deviation, exact and by Gumbel's limit.

A stage of parallel tasks is over when the slowest is: its duration is the largest of as many draws.

References: Li, Diao, Shenoy (VLDB 2015), section 3.3; David and Nagaraja, Order Statistics, chapter 3.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np

from engine.arrays import FloatArray

__all__ = ["gumbel_maximum", "normal_maximum"]

_REACH = 12.0  # standard deviations: beyond, the density is below 1e-31
_POINTS = 9601  # of Simpson's rule; 1e-12 off for up to a million draws
_EULER = 0.5772156649015329


@cache
def normal_maximum(draws: int) -> tuple[float, float]:
    """Mean and standard deviation of the largest of `draws` (>= 1) independent standard normal numbers.

    Simpson's rule over the density K phi(z) Phi(z)^(K-1), good to 1e-10.

    Examples
    --------
    >>> [round(value, 4) for value in normal_maximum(40)]
    [2.1608, 0.4775]
    >>> normal_maximum(1)
    (0.0, 1.0)
    """
    if draws == 1:
        return 0.0, 1.0
    z, weights, log_density, log_below = _grid()
    density = weights * np.exp(log_density + (draws - 1) * log_below)
    density /= density.sum()
    mean = float(density @ z)
    return mean, math.sqrt(float(density @ (z - mean) ** 2))


def gumbel_maximum(draws: int) -> tuple[float, float] | None:
    """The same by Gumbel's limit for many draws; None for one draw, where it has no meaning.

    It is 1 to 2 % high in the mean and 7 to 20 % in the deviation for 4 to 40 draws.
    """
    if draws == 1:
        return None
    quantile = NormalDist().inv_cdf
    at = quantile(1 - 1 / draws)
    scale = quantile(1 - 1 / (draws * math.e)) - at
    return at + _EULER * scale, scale * math.pi / math.sqrt(6)


@cache
def _grid() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Points, Simpson's weights, log phi and log Phi, each of shape (points,)."""
    z = np.linspace(-_REACH, _REACH, _POINTS)
    weights = np.where(np.arange(_POINTS) % 2, 4.0, 2.0)
    weights[[0, -1]] = 1.0
    log_below = np.array([math.log(0.5 * math.erfc(-x / math.sqrt(2))) for x in z])
    return z, weights, -(z**2) / 2, log_below
