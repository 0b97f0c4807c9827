"""Arithmetic of the compiled walk in singles, and places in its pools of random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.compiler import spliced
from engine.estimation.noise.tables import POOL, SingleArray

__all__ = [
    "HALF",
    "OF_BRIDGES",
    "OF_COUNTS",
    "OF_PARTS",
    "OF_RATES",
    "OF_SLOW",
    "OF_WORK",
    "ONE",
    "STREAMS",
    "ZERO",
    "copy_singles",
    "exp_single",
    "log1p_above",
    "place_of",
    "places",
]

ZERO, ONE, HALF, _SIXTH = np.float32(0.0), np.float32(1.0), np.float32(0.5), np.float32(1 / 6)
_SIXTYFOURTH = np.float32(1 / 64)
_MASK, _POOL_BITS, _TWO_POOLS = np.uint64(POOL - 1), np.uint64(15), np.uint64(30)
_A, _B, _C, _BY = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xD6E8FEB86659FD93, 32))

#: Streams of random places: what draws them, times a number above the key of any server, stage, part and source.
STREAMS = 1 << 32
OF_WORK, OF_SLOW, OF_BRIDGES, OF_PARTS, OF_RATES, OF_COUNTS = range(6)


@spliced
def places(seed: int, stream: int, index: int) -> tuple[Any, Any, Any]:
    """Three places in the pools that look random, the same for the same arguments."""
    z = np.uint64(seed) + np.uint64(stream) * _A + np.uint64(index) * _B
    z = (z ^ (z >> _BY)) * _C
    z = (z ^ (z >> _BY)) * _C
    z ^= z >> _BY
    return np.int64(z & _MASK), np.int64((z >> _POOL_BITS) & _MASK), np.int64((z >> _TWO_POOLS) & _MASK)


@spliced
def place_of(seed: int, stream: int, index: int) -> Any:
    return places(seed, stream, index)[0]


@spliced
def copy_singles(source: SingleArray, target: SingleArray) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@spliced
def exp_single(x: Any) -> Any:
    """exp(x) in singles, for loops over paths: accurate to 1e-3 up to 8."""
    y = x * _SIXTYFOURTH
    y = ONE + y * (ONE + y * (HALF + y * _SIXTH))
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    return y * y


@spliced
def log1p_above(x: float) -> float:
    """ln(1 + x) for x of at least 0, accurate to 1 %."""
    return math.log1p(x) if x > 2.0 else (3.0 * x * x + 6.0 * x) / (x * x + 6.0 * x + 6.0)
