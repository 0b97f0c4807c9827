"""Drawn tuples of one reducer: keys in memory and on disk, shuffle batches, bursts; seeded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lab.deadlines.policies import ReducerTrace

__all__ = ["ReducerLoad", "draw_trace", "miss_share"]


@dataclass(frozen=True)
class ReducerLoad:
    """A reducer that holds the state of its keys in memory, the most frequent first, and the rest on disk.

    One drawn tuple stands for `scale` real ones: rates are divided by it and costs multiplied.
    """

    rate_per_s: float = 450_000.0  #: tuples
    memory_s: float = 2e-6  #: cost of a tuple whose key is in memory
    disk_s: float = 28e-6  #: of one whose key is on disk
    memory_mb: float = 200.0
    keys_mb: float = 200.0  #: of all keys with their states
    keys: int = 200_000
    skew: float = 1.03  #: exponent of Zipf's law
    constraint_s: float = 1.0
    batch_s: float = 0.1  #: from one release to the next
    horizon_s: float = 20.0
    tied_s: float = 0.0  #: event times are rounded down to a multiple of it, where above 0
    window_s: float = 0.0  #: where above 0, finalisations of keys in windows of this length come, after each end
    lag_s: float = 0.05  #: mean time from event to release beyond the wait for the batch
    lag_deviation_s: float = 0.0
    scale: float = 20.0


def miss_share(load: ReducerLoad) -> float:
    """Share of the tuples whose key is on disk."""
    frequency = np.arange(1, load.keys + 1) ** -load.skew
    in_memory = round(min(load.memory_mb / load.keys_mb, 1.0) * load.keys)
    return float(frequency[in_memory:].sum() / frequency.sum())


def draw_trace(load: ReducerLoad, seed: int) -> ReducerTrace:
    """Tuples of Poisson arrivals over the horizon, released with their shuffle batch; or their windows."""
    draw = np.random.default_rng(seed)
    count = int(draw.poisson(load.rate_per_s / load.scale * load.horizon_s))
    event_s = np.sort(draw.uniform(0.0, load.horizon_s, count))
    if load.window_s:
        event_s = np.ceil(event_s / load.window_s) * load.window_s  # due after the window's end, as it is released
    on_disk = (draw.random(count) < miss_share(load)).astype(np.int64)
    lag_s = np.maximum(load.lag_s + load.lag_deviation_s * draw.standard_normal(count), 0.0)
    release_s = np.ceil((event_s + lag_s) / load.batch_s) * load.batch_s
    if load.tied_s:
        event_s = np.floor(event_s / load.tied_s) * load.tied_s
    order = np.lexsort((event_s, release_s))
    return ReducerTrace(
        release_s[order],
        event_s[order] + load.constraint_s,
        on_disk[order],
        (load.memory_s * load.scale, load.disk_s * load.scale),
    )
