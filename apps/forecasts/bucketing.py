"""Traces in buckets on the clock's grid, with what is not known told apart from what did not happen."""

from __future__ import annotations

import math

import numpy as np

from apps.forecasts.choices import BUCKETS
from apps.queries.resampling import Counts, Stamps, Trace, resample
from engine.elements import FloatArray

__all__ = ["bucketed", "coarser", "merged"]

_KNOWN_FROM = 0.5  # share of a bucket that counts must cover for it to be known


def bucketed(trace: Trace, bucket_s: int) -> tuple[float, FloatArray]:
    """Unix time of the first bucket, and events per bucket, NaN in gaps.

    Buckets at either end that the trace covers only in part are left out. A bucket half covered or more is scaled up to
    its whole; of single events nothing tells a gap from silence, so silence it is.
    """
    first_s = math.floor(trace.start_s / bucket_s) * bucket_s
    buckets = max(1, math.ceil((trace.end_s - first_s) / bucket_s))
    grid = {"start_s": first_s, "slice_s": float(bucket_s), "slices": buckets}
    values = resample(trace, **grid)
    covered = _covered(trace, grid, bucket_s)
    whole = np.flatnonzero(covered > 0.999)
    if not len(whole):
        return first_s, np.zeros(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(covered >= _KNOWN_FROM, values / covered, np.nan)
    low, high = int(whole[0]), int(whole[-1]) + 1
    return first_s + low * bucket_s, values[low:high]


def _covered(trace: Trace, grid: dict[str, float], bucket_s: int) -> FloatArray:
    if isinstance(trace, Stamps):
        share = np.ones(int(grid["slices"]))
        # The ends are known as far as half of the usual distance of two events beyond the first and the last.
        near = (trace.end_s - trace.start_s) / max(1.0, 2.0 * trace.total)
        share[0] = min(1.0, (grid["start_s"] + bucket_s - trace.start_s + near) / bucket_s)
        share[-1] = min(1.0, (trace.end_s + near - grid["start_s"]) / bucket_s - (len(share) - 1))
        return share
    known = resample(Counts(trace.starts_s, trace.widths_s, trace.widths_s), **grid)  # type: ignore[arg-type]
    return np.asarray(known / bucket_s)


def merged(
    first_s: float, values: FloatArray, later_s: float, later: FloatArray, bucket_s: int
) -> tuple[float, FloatArray]:
    """Two series on one grid as one: where both know a bucket the later one counts, between them is a gap."""
    start_s = min(first_s, later_s)
    places = [round((at - start_s) / bucket_s) for at in (first_s, later_s)]
    whole = np.full(max(places[0] + len(values), places[1] + len(later)), np.nan)
    whole[places[0] : places[0] + len(values)] = values
    part = whole[places[1] : places[1] + len(later)]
    np.copyto(part, later, where=np.isfinite(later))
    return start_s, whole


def coarser(first_s: float, values: FloatArray, bucket_s: int, wanted_s: int) -> tuple[float, FloatArray]:
    """A series in larger buckets (a multiple of its own); a bucket with an unknown part is unknown."""
    if bucket_s not in BUCKETS or wanted_s % bucket_s:
        raise ValueError(f"buckets of {bucket_s} s do not add up to {wanted_s} s")
    factor = wanted_s // bucket_s
    start_s = math.ceil(first_s / wanted_s) * wanted_s
    skip = round((start_s - first_s) / bucket_s)
    count = max(0, (len(values) - skip) // factor)
    return start_s, values[skip : skip + count * factor].reshape(count, factor).sum(axis=1)
