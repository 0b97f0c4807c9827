"""Rates of synthetic sources over time, and the checks of their parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rate", "WorkloadError", "diurnal_rate", "draw_counts", "generator", "on_off_rate", "slices_of"]

FloatArray = NDArray[np.float64]
MAX_SLICES = 10_000_000
MAX_EVENTS = 50_000_000
MAX_PER_SLICE = 1e15  # whole numbers stay exact in float64


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

    def draw_times(self, rng: np.random.Generator) -> FloatArray:
        """Event times of a Poisson process of this rate, ascending."""
        total = float(self.events[-1])
        if total > MAX_EVENTS:
            raise WorkloadError({"mean_rate_eps": f"{total:.0f} events are expected; at most {MAX_EVENTS} are drawn"})
        return np.interp(np.sort(rng.uniform(0.0, total, rng.poisson(total))), self.events, self.edges_s)


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


def generator(seed: int) -> np.random.Generator:
    """A random generator; refuses what is no seed."""
    _raise_faults({"seed": _fault(seed, isinstance(seed, int) and seed >= 0, "a whole number >= 0")})
    return np.random.default_rng(seed)


def draw_counts(expected: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Poisson counts with the expected events of every slice."""
    most = float(expected.max(initial=0.0))
    if most > MAX_PER_SLICE:
        message = f"gives {most:.3g} events in a slice; allowed: at most {MAX_PER_SLICE:g}"
        raise WorkloadError({"mean_rate_eps": message})
    return rng.poisson(expected).astype(np.float64)


def slices_of(mean_rate_eps: float, horizon_s: float, slice_s: float) -> int:
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
    """Why `value` is refused; empty if it is not."""
    finite = not isinstance(value, bool) and math.isfinite(value)
    return "" if finite and good else f"{value!r} is refused; allowed: {allowed}"


def _raise_faults(faults: dict[str, str]) -> None:
    found = {field: message for field, message in faults.items() if message}
    if found:
        raise WorkloadError(found)
