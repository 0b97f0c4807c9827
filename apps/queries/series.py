"""How series of numbers are kept in the database: zstd-compressed little-endian float64."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import zstandard

__all__ = ["digest", "downsampled", "pack", "unpack"]

FloatArray = npt.NDArray[np.float64]

# Level 3 packs a day of slices in a few milliseconds; higher levels gain little on counts.
_LEVEL = 3


def pack(values: npt.ArrayLike) -> bytes:
    """Compress a series, shape (n,), for a binary column."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(_raw(values))


def unpack(data: bytes | memoryview) -> FloatArray:
    """The series that `pack` compressed, read-only, shape (n,)."""
    return np.frombuffer(zstandard.ZstdDecompressor().decompress(bytes(data)), dtype="<f8")


def digest(values: npt.ArrayLike) -> str:
    """SHA-256 of the uncompressed series, in hex: the same numbers have the same digest."""
    return hashlib.sha256(_raw(values)).hexdigest()


def downsampled(values: FloatArray, points: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A series in at most `points` nearly equal parts, for a chart.

    Returns
    -------
    first : ndarray, shape (m,)
        Index of each part's first value, m = min(points, n).
    mean, largest : ndarray, shape (m,)
        Mean and maximum of each part: a peak of one slice stays visible.
    """
    edges = np.linspace(0, len(values), min(points, len(values)) + 1).round().astype(np.int64)
    first, width = edges[:-1], np.diff(edges)
    return first.astype(np.float64), np.add.reduceat(values, first) / width, np.maximum.reduceat(values, first)


def _raw(values: npt.ArrayLike) -> bytes:
    # Adding 0.0 turns -0.0 into 0.0, so that equal series have equal bytes.
    return (np.ascontiguousarray(values, dtype="<f8") + 0.0).tobytes()
