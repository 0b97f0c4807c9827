"""The curves of a query's chart and of a node's strip: thinned by maximum, packed into a few kilobytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from apps.queries.arrivals import series

__all__ = ["CURVE_POINTS", "STRIP_PARTS", "curves_pack", "curves_unpack", "thinned"]

CURVE_POINTS = 1500  # more than a chart has pixels
STRIP_PARTS = 96

FloatArray = npt.NDArray[np.float64]


def thinned(values: npt.ArrayLike, limit: int) -> FloatArray:
    """`values` in at most `most` parts of equal length (the last may be shorter), the maximum of each.

    The maximum is kept because a chart of latency that hides a peak would be wrong about the one thing it is for.

    Examples
    --------
    >>> thinned([1, 5, 2, 0, 7], 3).tolist()
    [5.0, 2.0, 7.0]
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) <= limit:
        return array
    width = math.ceil(len(array) / limit)
    return np.maximum.reduceat(array, np.arange(0, len(array), width))


def curves_pack(curves: Mapping[str, Sequence[float] | FloatArray | None], subinterval_s: float) -> bytes:
    """Pack `estimate`, `low` and `high` per subinterval (the latter two may be missing) with their time axis."""
    estimate = np.asarray(curves["estimate"], dtype=np.float64)
    width = max(1, math.ceil(len(estimate) / CURVE_POINTS))
    rows = [np.arange(0, len(estimate), width) * subinterval_s, thinned(estimate, CURVE_POINTS)]
    low, high = curves.get("low"), curves.get("high")
    if low is not None and high is not None:
        rows += [thinned(low, CURVE_POINTS), thinned(high, CURVE_POINTS)]
    return series.pack(np.concatenate([[float(len(rows))], *rows]))


def curves_unpack(data: bytes | memoryview) -> dict[str, Any]:
    """The lists of a chart: `time_s` (start of each point's stretch), `estimate_s`, and `low_s`, `high_s` or null."""
    array = series.unpack(bytes(data))
    rows = array[1:].reshape(int(array[0]), -1)
    names = ("time_s", "estimate_s", "low_s", "high_s")
    curves: dict[str, Any] = dict.fromkeys(names)
    curves.update({name: row.tolist() for name, row in zip(names, rows, strict=False)})
    return curves
