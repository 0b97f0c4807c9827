"""Steps of axes, and where the parts of the bench's picture lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["NARROW", "WIDE", "Frame", "nice_step"]

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


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


@dataclass(frozen=True)
class Frame:
    """Places in a picture, in its own units."""

    css: str
    width: int
    left: int
    right: int
    top: int = 20
    base: int = 268
    cost_top: int = 296
    cost_base: int = 336

    @property
    def height(self) -> int:
        return self.cost_base + 24


WIDE = Frame("fig wide", 700, 44, 572)
NARROW = Frame("fig narrow", 366, 44, 352, base=258, cost_top=286, cost_base=326)
