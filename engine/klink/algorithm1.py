"""Slack as the paper's Algorithm 1 sums it up, with its formulas repaired: to be compared with the closed form."""

from __future__ import annotations

from math import erfc, floor, sqrt

from engine.klink.view import SweepForecast

__all__ = ["looped_slack_ms", "steps"]


def steps(now_ms: float, forecast: SweepForecast, cycle_ms: float) -> float:
    """Bins of r ms between now, or the interval's beginning, and its end; below 1 where there is none."""
    return (forecast.most_ms - max(now_ms, forecast.least_ms)) / cycle_ms + 1


def looped_slack_ms(now_ms: float, cost_ms: float, forecast: SweepForecast, cycle_ms: float) -> float | None:
    """Slack (ms) of one stream, bin by bin of `cycle_ms` (r); None where the variance is 0.

    Notes
    -----
    Repaired: equation 9 holds for x >= t, and equation 10 divides by the standard deviation. Left as printed: a bin
    counts with its right edge, so the sum is too large, and past the interval it is empty, that is 0.

    References
    ----------
    Klink, Algorithm 1, equations 8-10.
    """
    deviation_ms = forecast.deviation_ms
    if deviation_ms <= 0:
        return None

    def above(time_ms: float) -> float:
        return erfc((time_ms - forecast.mean_ms) / deviation_ms * sqrt(0.5)) / 2

    begin_ms = max(now_ms, forecast.least_ms)
    slack_ms, certain = 0.0, above(now_ms)
    for step in range(max(0, floor(steps(now_ms, forecast, cycle_ms)))):
        x_ms = begin_ms + step * cycle_ms
        share = (above(x_ms) - above(x_ms + cycle_ms)) / certain
        slack_ms += share * (x_ms + cycle_ms - now_ms - cost_ms)
    return slack_ms
