"""Slack: the time left before a query must run, so that its window is out when its watermark comes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, erfc, exp, floor, log, pi, sqrt
from statistics import NormalDist

from engine.klink.watermarks import SweepForecast

__all__ = [
    "SOURCE",
    "expected_wait_ms",
    "forecast_wait_ms",
    "forwarding_messages",
    "loop_steps",
    "looped_slack_ms",
    "mean_excess",
    "min_slack_ms",
    "overdue_forecast",
    "stream_slack_ms",
]

_TAIL = 5.0  # standard deviations, from which on the difference of hazard and z would cancel
_DEPTH = 25  # of the continued fraction; from `_TAIL` on it is exact to the last digit

_FEW_BEYOND = 5  # delays, with fewer of which beyond an instant the latest ones count
_LATEST = 10  # of them
_MAX_GROWTH = log(1000.0)  # of what is overdue within its interval: a thousand times as late is for good

_ROOT_HALF, _ROOT_TWO_OVER_PI = sqrt(0.5), sqrt(2 / pi)


def mean_excess(z: float) -> float:
    """E[X - z | X >= z] of a standard normal X, for every z: its hazard h(z) less z.

    Up to 5 it is sqrt(2/pi) exp(-z^2/2) / erfc(z/sqrt 2) - z; above, where that would be the difference of two equal
    numbers, the continued fraction of Mills' ratio: 1 / (z + 2/(z + 3/(z + ..))).

    Examples
    --------
    >>> round(mean_excess(0.0), 9), mean_excess(-40.0), mean_excess(1e9)
    (0.797884561, 40.0, 1e-09)
    """
    if z <= _TAIL:
        return _hazard(z) - z
    fraction = z
    for term in range(_DEPTH, 1, -1):
        fraction = z + term / fraction
    return 1 / fraction


def expected_wait_ms(now_ms: float, mean_ms: float, deviation_ms: float) -> float:
    """E[w - t | w >= t]: how long until a watermark comes that is not here at `now_ms` (t), never below 0.

    Notes
    -----
    Exact, where the paper's equation 8 adds up bins of r ms between bounds of f: no r, no f, no empty sum for what is
    overdue. A watermark that is far overdue is expected at any moment: its wait falls to 0.

    References
    ----------
    Klink, section 3.2, equation 8.
    """
    if deviation_ms <= 0:
        return max(0.0, mean_ms - now_ms)
    z = (now_ms - mean_ms) / deviation_ms
    if z <= _TAIL:
        return mean_ms - now_ms + deviation_ms * _hazard(z)
    return deviation_ms * mean_excess(z)


def mean_excess_of(delays: Sequence[float], late_ms: float) -> float:
    """E[d - x | d > x] of delays like these (ascending, ms; more than 10), once one is late by x = `late_ms`.

    With fewer than 5 beyond x it is that of an exponential tail, the same for every x: the mean excess of the 10
    latest over the one before them.

    Examples
    --------
    >>> delays = [float(delay) for delay in range(100)]
    >>> mean_excess_of(delays, 89.5), mean_excess_of(delays, 500.0)
    (5.0, 5.5)
    """
    begin, threshold_ms = _beyond(delays, late_ms)
    return sum(delays[begin:]) / (len(delays) - begin) - threshold_ms


def _beyond(delays: Sequence[float], late_ms: float) -> tuple[int, float]:
    """Where the delays beyond x = `late_ms` begin, and x; of fewer than 5 the 10 latest, and the one before them."""
    begin = bisect_right(delays, late_ms)
    if len(delays) - begin >= _FEW_BEYOND:
        return begin, late_ms
    begin = len(delays) - _LATEST
    return begin, delays[begin - 1]


def overdue_forecast(now_ms: float, forecast: SweepForecast, confidence: float) -> SweepForecast:
    """The forecast of a watermark that is not here at `now_ms`: as it was up to E[w], then from now on.

    The interval of what is overdue begins now. With m past delays beyond its own it ends with the k-th of them,
    k = ceil(f (m + 1)): if the m + 1 are exchangeable (no trend, no stall that spans several), the next is within it
    with a probability of k / (m + 1) >= f. Where m is too small for that, it ends where a power law with the delays of
    `mean_excess_of` says, and not before the latest known one; of streams without a history, where the normal
    distribution beyond t does.

    Notes
    -----
    Of a power law the logarithms of d / x are exponential. With the sum S of r known ones, the next exceeds y with
    probability (1 + y / S)^-r, so y = S ((1 - f)^(-1/r) - 1) is exceeded with 1 - f: unlike a quantile of the fitted
    law, it counts that S is an estimate. Lighter tails make the interval too wide, heavier ones too narrow.
    """
    if now_ms <= forecast.mean_ms or forecast.deviation_ms <= 0:
        return forecast
    mean_ms = now_ms + forecast_wait_ms(now_ms, forecast)
    if forecast.delays:
        late_ms = now_ms - forecast.deadline_ms
        most_ms = forecast.deadline_ms + _most_delay_ms(forecast.delays, late_ms, confidence)
    else:
        most_ms = _normal_most_ms(now_ms, forecast, confidence)
    return replace(forecast, mean_ms=mean_ms, least_ms=now_ms, most_ms=max(mean_ms, most_ms))


def _most_delay_ms(delays: Sequence[float], late_ms: float, confidence: float) -> float:
    """Delay that one which is late by `late_ms` > 0 exceeds with a probability of 1 - f."""
    begin = bisect_right(delays, late_ms)
    rank = ceil(confidence * (len(delays) - begin + 1) - 1e-9)
    if rank <= len(delays) - begin:
        return delays[begin + rank - 1]
    begin, threshold_ms = _beyond(delays, late_ms)
    count = len(delays) - begin
    factor = (1 - confidence) ** (-1 / count) - 1
    if threshold_ms <= 0:  # no power law goes through 0: an exponential tail
        return max(delays[-1], late_ms + factor * sum(delays[begin:]))
    logarithms = sum(log(delay / threshold_ms) for delay in delays[begin:])
    return max(delays[-1], late_ms * exp(min(factor * logarithms, _MAX_GROWTH)))


def _normal_most_ms(now_ms: float, forecast: SweepForecast, confidence: float) -> float:
    """Beyond what a normal w, known to be above t, lies with a probability of 1 - f."""
    deviation_ms = forecast.deviation_ms
    z = (now_ms - forecast.mean_ms) / deviation_ms
    if z <= _TAIL:
        return forecast.mean_ms - deviation_ms * NormalDist().inv_cdf((1 - confidence) * erfc(z * _ROOT_HALF) / 2)
    rest = -2 * log(1 - confidence)  # Q(z) is phi(z) / z there, but for a part in z^2
    return now_ms + deviation_ms * rest / (sqrt(z * z + rest) + z)


def forecast_wait_ms(now_ms: float, forecast: SweepForecast) -> float:
    """Wait until a watermark comes that is not here: by the past delays beyond its own, once it is later than
    expected and there are enough of them; else as `expected_wait_ms`.
    """
    if forecast.delays and now_ms > forecast.mean_ms:
        return mean_excess_of(forecast.delays, now_ms - forecast.deadline_ms)
    return expected_wait_ms(now_ms, forecast.mean_ms, forecast.deviation_ms)


def stream_slack_ms(now_ms: float, cost_ms: float, forecast: SweepForecast, pending_ms: float | None = None) -> float:
    """Slack by one stream: until its sweeping watermark comes, less the work `cost_ms` that lies before it.

    Where the watermark is here, but not processed, since `pending_ms`, the slack is below 0 by how late it is.
    """
    if pending_ms is not None:
        return pending_ms - now_ms - cost_ms
    return forecast_wait_ms(now_ms, forecast) - cost_ms


def min_slack_ms(now_ms: float, cost_ms: float, streams: Iterable[tuple[SweepForecast, float | None]]) -> float | None:
    """Slack of a query: the least of its streams (forecast, when its watermark came); None without streams."""
    slacks = (stream_slack_ms(now_ms, cost_ms, forecast, pending_ms) for forecast, pending_ms in streams)
    return min(slacks, default=None)


def _hazard(z: float) -> float:
    """Density over what lies above it, of a standard normal; 0 far below the mean."""
    return _ROOT_TWO_OVER_PI * exp(-z * z / 2) / erfc(z * _ROOT_HALF)


def loop_steps(now_ms: float, forecast: SweepForecast, cycle_ms: float) -> float:
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
    for step in range(max(0, floor(loop_steps(now_ms, forecast, cycle_ms)))):
        x_ms = begin_ms + step * cycle_ms
        share = (above(x_ms) - above(x_ms + cycle_ms)) / certain
        slack_ms += share * (x_ms + cycle_ms - now_ms - cost_ms)
    return slack_ms


#: Where watermarks come from, if no operator makes them.
SOURCE = "source"


def forwarding_messages(ops: Sequence[tuple[str, str]], watermark_at: str = SOURCE) -> list[tuple[str, str, list[str]]]:
    """Messages as (sender, receiver, contents), sorted: `delay` of watermarks and `cost:OPERATOR`.

    Parameters
    ----------
    ops
        Operators and the node of each, in the order of the pipeline.
    watermark_at
        The operator that makes the watermarks, or the source, which the first operator's node sees first.

    Notes
    -----
    The node that first sees a watermark tells its delay to every other one: those downstream of a source, both ways
    of an operator. An operator's cost goes to every other node with an operator upstream of it: work that is left
    lies downstream.

    References
    ----------
    Klink, section 4; its text sends costs downstream, its example upstream, which alone is of use.

    Examples
    --------
    >>> forwarding_messages([("O1", "A"), ("O2", "B")])
    [('A', 'B', ['delay']), ('B', 'A', ['cost:O2'])]
    """
    contents: dict[tuple[str, str], set[str]] = {}
    first = next((node for name, node in ops if watermark_at in (SOURCE, name)), None)
    for index, (name, node) in enumerate(ops):
        for upstream in {other for _, other in ops[:index]} - {node}:
            contents.setdefault((node, upstream), set()).add(f"cost:{name}")
        if first is not None and node != first:
            contents.setdefault((first, node), set()).add("delay")
    return [(sender, receiver, sorted(info)) for (sender, receiver), info in sorted(contents.items())]
