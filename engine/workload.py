"""Synthetic arrivals: rates over time, events per slice or event by event, from seeded generators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GENERATORS",
    "Rate",
    "WorkloadError",
    "count_slices",
    "diurnal",
    "diurnal_rate",
    "draw_counts",
    "event_times",
    "on_off",
    "on_off_rate",
    "poisson",
    "random_generator",
    "whole_counts",
]


FloatArray = NDArray[np.float64]
MAX_SLICES = 10_000_000
MAX_EVENTS = 50_000_000
MAX_PER_SLICE = 1e15  # whole numbers stay exact in float64

DAY_S = 86_400.0


class WorkloadError(ValueError):
    """Parameters a generator refuses; `faults` maps each field to what is wrong with it."""

    def __init__(self, faults: dict[str, str]) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{field}: {message}" for field, message in faults.items()))


@dataclass(frozen=True)
class Rate:
    """A rate over time by its integral: `events[i]` are expected up to `edges_s[i]`, linear in between."""

    edges_s: FloatArray
    events: FloatArray

    def per_slice(self, slices: int, slice_s: float) -> FloatArray:
        """Events expected in each slice."""
        reached: FloatArray = np.interp(np.arange(slices + 1) * slice_s, self.edges_s, self.events)
        return np.diff(reached)


def on_off_rate(
    rng: np.random.Generator,
    mean_rate_eps: float,
    horizon_s: float,
    ratio: float,
    duration_ratio: float,
    high_period_s: float,
    fixed_periods: bool,
) -> Rate:
    """High and low periods in turn, drawn with `rng`; parameters as in `engine.workload.on_off`."""
    _raise_faults(
        {
            "ratio": _fault(ratio, ratio >= 1, "a number >= 1"),
            "duration_ratio": _fault(duration_ratio, duration_ratio > 0, "a number > 0"),
            "high_period_s": _fault(
                high_period_s, horizon_s / MAX_SLICES < high_period_s, f"more than {horizon_s / MAX_SLICES:g} s"
            ),
        }
    )
    low_period_s = high_period_s / duration_ratio
    share_high = duration_ratio / (1 + duration_ratio)
    high_eps = mean_rate_eps / (share_high + (1 - share_high) / ratio)
    high = bool(rng.random() < share_high)
    lengths, rates, reached_s = [], [], 0.0
    while reached_s < horizon_s:
        mean_s = high_period_s if high else low_period_s
        lengths.append(mean_s if fixed_periods else rng.exponential(mean_s))
        rates.append(high_eps if high else high_eps / ratio)
        reached_s += lengths[-1]
        high = not high
    lengths[-1] -= reached_s - horizon_s
    edges_s = np.concatenate(([0.0], np.cumsum(lengths)))
    events = np.concatenate(([0.0], np.cumsum(np.multiply(lengths, rates))))
    return Rate(edges_s, events)


def diurnal_rate(
    mean_rate_eps: float,
    horizon_s: float,
    slices: int,
    swing: float,
    second_swing: float,
    peak_s: float,
    second_peak_s: float,
    day_s: float,
) -> Rate:
    """One or two waves a day, in at least 1,000 pieces; parameters as in `engine.workload.diurnal`."""
    _raise_faults(
        {
            "swing": _fault(swing, 0 <= swing <= 1, "between 0 and 1"),
            "second_swing": _fault(second_swing, 0 <= second_swing <= 1 - swing, f"between 0 and {1 - swing:g}"),
            "peak_s": _fault(peak_s, True, "a finite number"),
            "second_peak_s": _fault(second_peak_s, True, "a finite number"),
            "day_s": _fault(day_s, horizon_s / MAX_SLICES < day_s, f"more than {horizon_s / MAX_SLICES:g} s"),
        }
    )
    steps = max(slices, math.ceil(1000 * horizon_s / day_s))  # at least 1,000 pieces a day follow the curve closely
    steps = slices * math.ceil(steps / slices)
    edges_s = np.linspace(0.0, horizon_s, steps + 1)

    def wave(harmonic: int, top_s: float) -> FloatArray:
        omega = 2 * math.pi * harmonic / day_s
        return np.asarray((np.sin(omega * (edges_s - top_s)) + math.sin(omega * top_s)) / omega)

    events = edges_s + swing * wave(1, peak_s) + second_swing * wave(2, second_peak_s)
    return Rate(edges_s, mean_rate_eps * np.maximum.accumulate(events))


def random_generator(seed: int) -> np.random.Generator:
    """A random generator; refuses what is no seed."""
    _raise_faults({"seed": _fault(seed, isinstance(seed, int) and seed >= 0, "a whole number >= 0")})
    return np.random.default_rng(seed)


def draw_counts(expected: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Poisson counts with the expected events of every slice."""
    highest = float(expected.max(initial=0.0))
    if highest > MAX_PER_SLICE:
        message = f"gives {highest:.3g} events in a slice; allowed: at most {MAX_PER_SLICE:g}"
        raise WorkloadError({"mean_rate_eps": message})
    return rng.poisson(expected).astype(np.float64)


def count_slices(mean_rate_eps: float, horizon_s: float, slice_s: float) -> int:
    """Number of slices; refuses a grid that is not whole."""
    faults = {
        "mean_rate_eps": _fault(mean_rate_eps, 0 <= mean_rate_eps <= 1e12, "between 0 and 1e12 events/s"),
        "horizon_s": _fault(horizon_s, horizon_s > 0, "more than 0 s"),
        "slice_s": _fault(slice_s, slice_s > 0, "more than 0 s"),
    }
    if not faults["horizon_s"] and not faults["slice_s"]:
        slices = horizon_s / slice_s
        if abs(slices - round(slices)) > 1e-6 * slices or not 1 <= round(slices) <= MAX_SLICES:
            allowed = f"1 to {MAX_SLICES} whole slices of {slice_s:g} s"
            faults["horizon_s"] = f"{horizon_s!r} holds {slices:g} slices; allowed: {allowed}"
    _raise_faults(faults)
    return round(horizon_s / slice_s)


def _fault(value: float, good: bool, allowed: str) -> str:
    """Reason why `value` is refused; empty if it is not."""
    finite = not isinstance(value, bool) and math.isfinite(value)
    return "" if finite and good else f"{value!r} is refused; allowed: {allowed}"


def _raise_faults(faults: dict[str, str]) -> None:
    refused = {field: message for field, message in faults.items() if message}
    if refused:
        raise WorkloadError(refused)


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
    slices = count_slices(mean_rate_eps, horizon_s, slice_s)
    rng = random_generator(seed)
    rate = on_off_rate(rng, mean_rate_eps, horizon_s, ratio, duration_ratio, high_period_s, fixed_periods)
    return draw_counts(rate.per_slice(slices, slice_s), rng)


def poisson(*, mean_rate_eps: float, horizon_s: float, slice_s: float, seed: int = 0) -> FloatArray:
    """Events per slice of a Poisson source of constant rate; shape (slices,), whole numbers."""
    slices = count_slices(mean_rate_eps, horizon_s, slice_s)
    return draw_counts(np.full(slices, mean_rate_eps * slice_s), random_generator(seed))


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
    slices = count_slices(mean_rate_eps, horizon_s, slice_s)
    rate = diurnal_rate(mean_rate_eps, horizon_s, slices, swing, second_swing, peak_s, second_peak_s, day_s)
    expected = rate.per_slice(slices, slice_s)
    return draw_counts(expected, random_generator(seed)) if noise else expected


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
