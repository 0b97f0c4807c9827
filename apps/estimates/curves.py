"""The curves of a query's chart and of a node's strip: thinned by maximum, packed into a few kilobytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from apps.queries.arrivals import series
from engine.arrays import FloatArray, step_maxima

__all__ = ["CURVE_POINTS", "STRIP_PARTS", "curves_pack", "curves_unpack"]

CURVE_POINTS = 1500  # more than a chart has pixels
STRIP_PARTS = 96


def curves_pack(curves: Mapping[str, Sequence[float] | FloatArray], subinterval_s: float) -> bytes:
    """Pack `flow`, the mean path per subinterval, with its time axis."""
    path = np.asarray(curves["flow"], dtype=np.float64)
    width = max(1, math.ceil(len(path) / CURVE_POINTS))
    rows = [np.arange(0, len(path), width) * subinterval_s, step_maxima(path, CURVE_POINTS)]
    return series.pack(np.concatenate([[float(len(rows))], *rows]))


def curves_unpack(data: bytes | memoryview) -> dict[str, list[float]]:
    """The lists of a chart: `time_s` (start of each point's stretch) and `flow_s`, the mean path."""
    array = series.unpack(bytes(data))
    rows = array[1:].reshape(int(array[0]), -1)
    return {"time_s": rows[0].tolist(), "flow_s": rows[1].tolist()}
