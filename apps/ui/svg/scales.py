"""Scales of pictures: from data to places, and round values for axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Scale", "nice_step", "nice_ticks", "round_up", "spread"]

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A straight line from the values `low` … `high` to the places `begin` … `end`; values outside are cut off.

    Examples
    --------
    >>> y = Scale(0, 4, begin=100, end=20)
    >>> y(1), y(9)
    (80.0, 20.0)
    """

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)


def nice_step(step: float) -> float:
    """The next of 1, 2, 2.5 or 5 times a power of ten that is no less.

    Examples
    --------
    >>> nice_step(3.1), nice_step(0.02), nice_step(0)
    (5.0, 0.02, 1.0)
    """
    if step <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * factor for factor in _STEPS if size * factor >= step * (1 - 1e-9))


def round_up(value: float, step: float) -> float:
    """The next multiple of a step, and no less than one.

    Examples
    --------
    >>> round_up(4.2, 2.0), round_up(0, 2.0)
    (6.0, 2.0)
    """
    return max(math.ceil(value / step - 1e-9), 1) * step


def nice_ticks(highest: float, count: int = 4) -> list[float]:
    """Zero and a few round values up to `highest`.

    Examples
    --------
    >>> nice_ticks(14.0)
    [0.0, 5.0, 10.0]
    """
    if highest <= 0:
        return [0.0]
    step = nice_step(highest / count)
    return [round(step * k, 12) for k in range(int(highest / step + 1e-9) + 1)]


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Places in rising order, each moved down as far as the one before it needs.

    Examples
    --------
    >>> spread([10, 12, 40], gap=15)
    [10, 25, 40]
    """
    moved: list[float] = []
    for at in places:
        moved.append(max(at, moved[-1] + gap) if moved else at)
    return moved
