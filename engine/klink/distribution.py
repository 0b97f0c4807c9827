"""When the next sweeping watermark is expected: from finished epochs' delays to a mean, a spread and an interval.

An epoch is the time of one window; its delays are summed up as their mean (mu) and mean square (chi), in ms and ms2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, fsum, sqrt
from statistics import NormalDist

from engine.klink.view import SweepForecast

__all__ = ["LEAST_EPOCHS", "MEAN_VARIANCE", "deviations", "empirical_interval", "moments", "normal_forecast"]

#: Below it only the period of the windows is used.
LEAST_EPOCHS = 3

#: The variance that the paper prints as equation 6, which is that of the mean of the history.
MEAN_VARIANCE = "eq6"


def moments(mu: Sequence[float], chi: Sequence[float], mode: str = "predictive") -> tuple[float, float]:
    """Mean (ms) and variance (ms2) of the next delay, of epochs with mean delays `mu` and mean squares `chi`.

    `mode` "predictive" is the variance of one delay, mean(chi) - mean(mu)^2, summed up as that within epochs and that
    between them, so that nothing cancels; "eq6" is the paper's equation 6, the variance of the mean of the history.

    References
    ----------
    Klink, section 3.1, equations 3-6.
    """
    count = len(mu)
    mean = fsum(mu) / count
    within = fsum(square - value * value for value, square in zip(mu, chi, strict=True)) / count
    if mode == MEAN_VARIANCE:
        return mean, max(0.0, within / count)
    between = fsum((value - mean) ** 2 for value in mu) / count
    return mean, max(0.0, within + between)


def deviations(confidence: float) -> float:
    """Standard deviations on either side of the mean, between which a normal value lies with this confidence.

    Examples
    --------
    >>> round(deviations(0.95), 6)
    1.959964
    """
    return NormalDist().inv_cdf((1 + confidence) / 2)


def normal_forecast(
    deadline_ms: float, mean_ms: float, variance_ms2: float, epochs: int, confidence: float
) -> SweepForecast:
    """The watermark of a deadline, which comes after a delay of this mean and variance: w = g + period + delay."""
    expected_ms, deviation_ms = deadline_ms + mean_ms, sqrt(variance_ms2)
    half_ms = deviations(confidence) * deviation_ms
    return SweepForecast(expected_ms, deviation_ms, expected_ms - half_ms, expected_ms + half_ms, epochs)


def empirical_interval(delays: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Least and most delay that hold the next one with this confidence, whatever its distribution is.

    `delays` are in ascending order. The next of n + 1 delays like each other lies between the first and the k-th of
    the n that are known with a probability of (k - 1) / (n + 1). None where n is too small for the confidence.

    Examples
    --------
    >>> empirical_interval([float(delay) for delay in range(39)], 0.95)
    (0.0, 38.0)
    >>> empirical_interval([1.0, 2.0], 0.95) is None
    True
    """
    count = len(delays)
    rank = ceil(confidence * (count + 1) - 1e-9) + 1
    return (delays[0], delays[rank - 1]) if 1 < rank <= count else None
