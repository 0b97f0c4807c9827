"""Synthetic arrivals: events per slice, or event by event, from seeded generators.

Every generator describes a rate over time. A Poisson process with that rate has independent Poisson counts in
disjoint slices, so counts are drawn slice by slice: the cost depends on the number of slices, not on that of events.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.rates import Rate, WorkloadError, diurnal_rate, draw_counts, generator, on_off_rate, slices_of

__all__ = [
    "GENERATORS",
    "WorkloadError",
    "diurnal",
    "diurnal_times",
    "event_times",
    "on_off",
    "on_off_times",
    "poisson",
    "poisson_times",
    "whole_counts",
]

FloatArray = NDArray[np.float64]
DAY_S = 86_400.0


def on_off(
    *,
    mean_rate_eps: float,
    horizon_s: float,
    slice_s: float,
    ratio: float = 100.0,
    duration_ratio: float = 1 / 3,
    high_period_s: float = 10.0,
    fixed_periods: bool = False,
    seed: int = 0,
) -> FloatArray:
    """Events per slice of an On-Off source: high and low load in turn, exponential inter-arrival times.

    Parameters
    ----------
    mean_rate_eps : float
        Long-run mean rate, events/s. One short series deviates from it: periods are random.
    horizon_s, slice_s : float
        Length of the series and of a slice, seconds; the horizon holds a whole number of slices.
    ratio : float
        Rate in a high period over the rate in a low one, >= 1.
    duration_ratio : float
        Mean length of a high period over that of a low one.
    high_period_s : float
        Mean length of a high period, seconds.
    fixed_periods : bool
        Every period has its mean length; otherwise lengths are exponentially distributed.
    seed : int
        The same seed gives the same series.

    Returns
    -------
    ndarray of float64, shape (slices,)
        Events per slice, whole numbers.

    Raises
    ------
    WorkloadError
        (a ValueError) naming every parameter that is out of range.

    References
    ----------
    "Accurate Latency Estimation in a Distributed Event Processing System", section VIII, Event Workload.

    Examples
    --------
    >>> on_off(mean_rate_eps=100.0, horizon_s=4.0, slice_s=1.0, seed=1).shape
    (4,)
    """
    slices = slices_of(mean_rate_eps, horizon_s, slice_s)
    rng = generator(seed)
    rate = on_off_rate(rng, mean_rate_eps, horizon_s, ratio, duration_ratio, high_period_s, fixed_periods)
    return draw_counts(rate.per_slice(slices, slice_s), rng)


def on_off_times(
    *,
    mean_rate_eps: float,
    horizon_s: float,
    ratio: float = 100.0,
    duration_ratio: float = 1 / 3,
    high_period_s: float = 10.0,
    fixed_periods: bool = False,
    seed: int = 0,
) -> FloatArray:
    """Arrival time of every event of an On-Off source, seconds, ascending; parameters as in `on_off`."""
    slices_of(mean_rate_eps, horizon_s, horizon_s)
    rng = generator(seed)
    rate = on_off_rate(rng, mean_rate_eps, horizon_s, ratio, duration_ratio, high_period_s, fixed_periods)
    return rate.draw_times(rng)


def poisson(*, mean_rate_eps: float, horizon_s: float, slice_s: float, seed: int = 0) -> FloatArray:
    """Events per slice of a Poisson source of constant rate; shape (slices,), whole numbers."""
    slices = slices_of(mean_rate_eps, horizon_s, slice_s)
    return draw_counts(np.full(slices, mean_rate_eps * slice_s), generator(seed))


def poisson_times(*, mean_rate_eps: float, horizon_s: float, seed: int = 0) -> FloatArray:
    """Arrival time of every event of a Poisson source, seconds, ascending."""
    slices_of(mean_rate_eps, horizon_s, horizon_s)
    edges_s = np.array([0.0, horizon_s])
    return Rate(edges_s, edges_s * mean_rate_eps).draw_times(generator(seed))


def diurnal(
    *,
    mean_rate_eps: float,
    horizon_s: float,
    slice_s: float,
    swing: float = 0.6,
    second_swing: float = 0.0,
    peak_s: float = 14 * 3600.0,
    second_peak_s: float = 20 * 3600.0,
    day_s: float = DAY_S,
    noise: bool = True,
    seed: int = 0,
) -> FloatArray:
    """Events per slice of a source that follows the day: one or two harmonics with Poisson noise.

    The rate is ``mean * (1 + swing*cos(2 pi (t - peak)/day) + second_swing*cos(4 pi (t - second_peak)/day))``.

    Parameters
    ----------
    swing, second_swing : float
        Amplitudes of the daily and the half-daily wave, shares of the mean; their sum is at most 1.
    peak_s, second_peak_s : float
        Time of day of each wave's top, seconds after the start of the series.
    day_s : float
        Length of a day, seconds: shorter ones show a day in a short series.
    noise : bool
        Poisson noise; without it the counts are the expected ones and need not be whole.

    Returns
    -------
    ndarray of float64, shape (slices,)

    Raises
    ------
    WorkloadError
        naming every parameter that is out of range.
    """
    slices = slices_of(mean_rate_eps, horizon_s, slice_s)
    rate = diurnal_rate(mean_rate_eps, horizon_s, slices, swing, second_swing, peak_s, second_peak_s, day_s)
    expected = rate.per_slice(slices, slice_s)
    return draw_counts(expected, generator(seed)) if noise else expected


def diurnal_times(
    *,
    mean_rate_eps: float,
    horizon_s: float,
    swing: float = 0.6,
    second_swing: float = 0.0,
    peak_s: float = 14 * 3600.0,
    second_peak_s: float = 20 * 3600.0,
    day_s: float = DAY_S,
    seed: int = 0,
) -> FloatArray:
    """Arrival time of every event of a diurnal source, seconds, ascending; parameters as in `diurnal`."""
    slices_of(mean_rate_eps, horizon_s, horizon_s)
    rate = diurnal_rate(mean_rate_eps, horizon_s, 1, swing, second_swing, peak_s, second_peak_s, day_s)
    return rate.draw_times(generator(seed))


def event_times(counts: FloatArray, slice_s: float, rng: np.random.Generator | None = None) -> FloatArray:
    """Times of the events of a series of counts, seconds, ascending.

    Parameters
    ----------
    counts : ndarray, shape (slices,)
        Events per slice. Parts of events are carried on: an event arrives in the slice in which the sum becomes whole.
    rng : Generator, optional
        Draw times uniformly within their slice. By default they are even: the first at the slice's start, equal
        distances (assumption A-2 of the paper's Theorem 2).
    """
    whole = whole_counts(counts)
    total = int(whole.sum())
    starts = np.repeat(np.arange(len(whole)) * slice_s, whole)
    if rng is not None:
        return np.sort(starts + rng.random(total) * slice_s)
    rank = np.arange(total) - np.repeat(np.cumsum(whole) - whole, whole)
    return starts + rank * (slice_s / np.repeat(whole, whole))


def whole_counts(counts: FloatArray) -> NDArray[np.int64]:
    """Whole events per slice whose running sum is that of `counts` rounded down."""
    cumulated = np.floor(np.cumsum(counts) + 1e-6).astype(np.int64)  # 1e-6: ten times 0.1 event is one event
    return np.diff(cumulated, prepend=0)


GENERATORS: dict[str, Callable[..., FloatArray]] = {"on_off": on_off, "poisson": poisson, "diurnal": diurnal}
