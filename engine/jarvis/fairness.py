"""Fair shares of a source's budget among its queries."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["max_min"]


def max_min(total: float, demands: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Weighted max-min fair shares: no query gets more than its demand; the rest goes to the others.

    Parameters
    ----------
    total
        What there is.
    demands
        What each asks for; infinite where it takes all it can get.
    weights
        Above 0.

    Returns
    -------
    list[float]
        What each gets; the sum is min(total, sum of demands).

    Examples
    --------
    >>> max_min(10, [2, 8, 8], [1, 1, 1])
    [2.0, 4.0, 4.0]
    """
    shares, left = [0.0] * len(demands), float(total)
    order = sorted(range(len(demands)), key=lambda i: demands[i] / weights[i])
    weight = sum(weights)
    for i in order:
        shares[i] = float(min(demands[i], left * weights[i] / weight if weight > 0 else left))
        left -= shares[i]
        weight -= weights[i]
    return shares
