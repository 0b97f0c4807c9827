"""Scales of pictures: from data to places, and round values for axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LogScale", "Scale", "log_ticks", "nice_step", "nice_ticks", "round_up", "spread"]

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


@dataclass(frozen=True)
class LogScale:
    """As `Scale`, in decades: equal factors are equally far apart. `low` is above 0.

    Examples
    --------
    >>> x = LogScale(1, 100, begin=0, end=10)
    >>> x(10), x(1000), x(0)
    (5.0, 10.0, 0.0)
    """

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(max(value, self.low) / self.low) / (math.log(self.high / self.low) or 1.0)
        return self.begin + min(share, 1.0) * (self.end - self.begin)


def log_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values of decades from `low` to `high`: 1, 2 and 5 times powers of ten, fewer of each where these are many.

    Examples
    --------
    >>> log_ticks(0.8, 30), log_ticks(0.001, 500, 4), log_ticks(1, 1.6, 4)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [0.01, 1.0, 100.0], [1.0, 1.2, 1.4, 1.6])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        values = [float(f"{digit * 10.0**power:.6g}") for power in range(first, last + 1) for digit in digits]
        ticks = [value for value in values if low <= value <= high]
        if len(ticks) <= count:
            break
    if len(ticks) > count:
        every = -(-len(ticks) // count)
        return [tick for tick in ticks if round(math.log10(tick)) % every == 0]
    if len(ticks) > 2:
        return ticks
    step = nice_step((high - low) / count)
    within = range(math.ceil(low / step - 1e-9), int(high / step + 1e-9) + 1)
    return [float(f"{step * k:.6g}") for k in within if k]


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
