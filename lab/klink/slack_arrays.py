"""Moments and slacks of many queries in one call: rows are queries, columns streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx

__all__ = ["expected_waits_ms", "moments", "slacks_ms"]

Floats = npt.NDArray[np.float64]

_TAIL = 5.0  # standard deviations, from which on the difference of hazard and z would cancel
_DEPTH = 25  # of the continued fraction above it


def moments(mu: Floats, chi: Floats) -> tuple[Floats, Floats]:
    """Mean (ms) and predictive variance (ms2) of the next delay, of shape (..,), of histories of shape (.., h).

    Histories shorter than h are padded with NaN; without any epoch both are NaN.
    """
    known = ~np.isnan(mu)
    with np.errstate(invalid="ignore"):
        count = known.sum(-1)
        mean = np.where(known, mu, 0).sum(-1) / count
        within = np.where(known, chi - mu * mu, 0).sum(-1) / count
        between = np.where(known, (mu - mean[..., None]) ** 2, 0).sum(-1) / count
    return mean, np.maximum(0, within + between)


def expected_waits_ms(now_ms: Any, mean_ms: Floats, deviation_ms: Floats) -> Floats:
    """`slack.expected_wait_ms` of arrays of one shape; NaN where the mean is."""
    lead = mean_ms - now_ms
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = -lead / deviation_ms
        waits = lead + deviation_ms * (np.sqrt(2 / np.pi) / erfcx(z * np.sqrt(0.5)))
        tail = z > _TAIL
        if tail.any():
            waits[tail] = deviation_ms[tail] * _tail_excess(z[tail])
    return np.where(deviation_ms > 0, waits, np.maximum(0, lead))


def slacks_ms(
    now_ms: float, cost_ms: Floats, mean_ms: Floats, deviation_ms: Floats, pending_ms: Floats | None = None
) -> Floats:
    """Slack of each query: the least of its streams.

    Parameters
    ----------
    cost_ms
        Work before the watermark, of shape (n,).
    mean_ms, deviation_ms
        When each stream's next sweeping watermark is expected, of shape (n, m); mean NaN where there is no stream.
    pending_ms
        When one came that is not processed, of shape (n, m); NaN where none has.

    Returns
    -------
    ndarray of shape (n,)
        NaN for a query without streams.
    """
    waits = expected_waits_ms(now_ms, mean_ms, deviation_ms)
    if pending_ms is not None:
        waits = np.where(np.isnan(pending_ms), waits, pending_ms - now_ms)
    least: Floats = np.fmin.reduce(waits, axis=1)
    return least - cost_ms


def _tail_excess(z: Floats) -> Floats:
    fraction = z
    for term in range(_DEPTH, 1, -1):
        fraction = z + term / fraction
    return 1 / fraction
