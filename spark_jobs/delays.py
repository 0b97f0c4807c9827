"""Figures of sweeping watermarks' delays, of many groups of windows at once.

An epoch of a stream is the time of one window. Its mean delay is mu and its mean squared delay chi, over the agents
that swept it; the next delay has the mean mean(mu) and the predictive variance mean(chi) - mean(mu)^2, which is summed
up as what lies within epochs and what lies between them: nothing cancels.

References
----------
Klink, section 3.1, equations 2-6, corrected as in docs/models/klink.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.klink.distribution import LEAST_EPOCHS
from spark_jobs.sweeps import CLAMPED, EXPECTED, HISTORY, WITHIN, behind

__all__ = ["LEAST_WINDOWS", "LEVELS", "Windows", "figures"]

LEAST_WINDOWS = 30  # before quantiles are told
LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 1.0)
_P99 = (0.99,)
_VALUE_BITS = 44  # of a delay in microseconds: what is above half a year counts as that


@dataclass(frozen=True)
class Windows:
    """Columns of windows, each an array of one value for each sweep; `group` numbers them from 0 without gaps."""

    group: Any
    seen_ms: Any
    deadline_us: Any
    period_us: Any
    delay_us: Any
    latency_us: Any
    marks: Any


@dataclass(frozen=True)
class _Epochs:
    """Sweeps of one deadline of one group."""

    of: Any  #: the epoch of each sweep
    group: Any
    newest: Any  #: order within the group: 0 is the newest
    mean_s: Any
    variance_s2: Any
    last: Any  #: a sweep of each, for what all of them share

    @classmethod
    def of_windows(cls, windows: Windows) -> _Epochs:
        order = np.lexsort((windows.deadline_us, windows.group))
        group, deadline = windows.group[order], windows.deadline_us[order]
        begins = np.append(True, (np.diff(group) != 0) | (np.diff(deadline) != 0))
        epoch = np.empty(len(order), dtype=np.int64)
        epoch[order] = np.cumsum(begins) - 1
        first = order[begins]
        count, delay_s = np.bincount(epoch), windows.delay_us / 1e6
        mean_s = np.bincount(epoch, delay_s) / count
        variance_s2 = np.bincount(epoch, (delay_s - mean_s[epoch]) ** 2) / count
        seen = np.maximum.reduceat(windows.seen_ms[order], np.flatnonzero(begins))
        by_age = np.lexsort((windows.deadline_us[first], seen, windows.group[first]))
        newest = np.empty(len(first), dtype=np.int64)
        newest[by_age] = behind(windows.group[first][by_age])
        return cls(epoch, windows.group[first], newest, mean_s, variance_s2, first)


def figures(windows: Windows) -> list[dict[str, Any]]:
    """Columns of WATERMARKS that tell of delays, a row for each group, over its newest epochs."""
    epochs = _Epochs.of_windows(windows)
    kept = epochs.newest < HISTORY
    rows = kept[epochs.of]
    group, groups = windows.group[rows], int(windows.group.max()) + 1
    moments = _moments(epochs.group[kept], epochs.mean_s[kept], epochs.variance_s2[kept], groups)
    newest = np.empty(groups, dtype=np.int64)
    newest[epochs.group[epochs.newest == 0]] = epochs.last[epochs.newest == 0]
    marks = windows.marks[rows]
    counted = {
        name: np.bincount(group, (marks & mark) > 0, groups).astype(np.int64)
        for name, mark in (("clamped", CLAMPED), ("expected", EXPECTED), ("within", WITHIN))
    }
    sweeps = np.bincount(group, minlength=groups)
    latency_us = windows.latency_us[rows]
    columns = {
        "period_s": windows.period_us[newest] / 1e6,
        "epochs": np.bincount(epochs.group[kept], minlength=groups),
        "sweeps": sweeps,
        **counted,
        **moments,
        "quantiles": _quantiles(group, windows.delay_us[rows], sweeps, LEVELS),
        "latency_mean_s": np.bincount(group, latency_us / 1e6, groups) / sweeps,
        "latency_p99_s": _quantiles(group, latency_us, sweeps, _P99)[:, 0],
        "measured_us": windows.deadline_us[newest],
    }
    listed = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [_told(dict(zip(columns, row, strict=True))) for row in listed]


def _moments(group: Any, mean_s: Any, variance_s2: Any, groups: int) -> dict[str, Any]:
    count = np.bincount(group, minlength=groups)
    mean = np.bincount(group, mean_s, groups) / count
    spread = np.bincount(group, variance_s2 + (mean_s - mean[group]) ** 2, groups) / count
    return {"mean_s": mean, "variance_s2": spread}


def _quantiles(group: Any, value_us: Any, count: Any, levels: tuple[float, ...]) -> Any:
    """Seconds by group and level, between the two values next to it: [groups, levels]."""
    keys = np.sort((group.astype(np.int64) << _VALUE_BITS) | np.minimum(value_us, (1 << _VALUE_BITS) - 1))
    values = keys & ((1 << _VALUE_BITS) - 1)
    begins = np.insert(np.cumsum(count)[:-1], 0, 0)[:, None]
    place = np.asarray(levels) * (count[:, None] - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, count[:, None] - 1)
    below, above = values[begins + low], values[begins + high]
    return (below + (place - low) * (above - below)) / 1e6


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """The row, less what so few epochs say nothing of."""
    values = row.pop("quantiles")
    if row["epochs"] < LEAST_EPOCHS:
        return row | dict.fromkeys(("mean_s", "variance_s2", "least_s", "most_s", "levels", "values_s"))
    shape = {"least_s": values[0], "most_s": values[-1], "levels": None, "values_s": None}
    if row["epochs"] >= LEAST_WINDOWS:
        shape |= {"levels": list(LEVELS), "values_s": values}
    return row | shape
