"""Steps of axes."""

from __future__ import annotations

import math

__all__ = ["nice_step"]

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
