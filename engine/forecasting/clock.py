"""Histories on the wall clock: people keep its hours, so a day's peak stays at its hour when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import numpy as np

from engine.elements import FloatArray, IntArray

__all__ = ["wall_clock"]


def wall_clock(
    counts: FloatArray, starts_s: float, bucket_s: float, ahead: int, zone: tzinfo | None
) -> tuple[FloatArray, IntArray]:
    """A history by wall-clock buckets, and where future buckets lie after its end.

    Parameters
    ----------
    counts : array, shape (n,)
        Events per bucket from `starts_s` (unix seconds) on, NaN where nothing is known.
    ahead : int
        Future buckets that follow.
    zone : tzinfo or None
        None leaves everything as it is. So do buckets longer than the change of the clock: it cannot be seen in them.

    Returns
    -------
    local : array, shape (m,)
        The hour that clocks leave out is NaN, the one that comes twice is the mean of both.
    places : array of int, shape (ahead,)
        Wall-clock bucket of each future bucket, counted from the end of `local`.
    """
    n = len(counts)
    places = np.arange(n + ahead)
    if zone is not None and n:
        moved = np.array([_offset_s(starts_s + i * bucket_s, zone) for i in range(n + ahead)]) / bucket_s
        moved -= moved[0]
        if np.array_equal(moved, np.round(moved)):
            places = places + moved.astype(np.int64)
    if not n:
        return counts, places
    places -= places[:n].min()
    size = int(places[:n].max()) + 1
    known = np.isfinite(counts)
    hits = np.bincount(places[:n][known], minlength=size)
    sums = np.bincount(places[:n][known], counts[known], minlength=size)
    local = np.divide(sums, hits, out=np.full(size, np.nan), where=hits > 0)
    return local, np.maximum(places[n:] - size, 0)


def _offset_s(at_s: float, zone: tzinfo) -> float:
    offset = datetime.fromtimestamp(at_s, UTC).astimezone(zone).utcoffset()
    return offset.total_seconds() if offset else 0.0
