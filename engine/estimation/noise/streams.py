"""Random numbers by name: what is called the same gets the same ones in every deployment.

Two deployments that differ in a part are compared with the same chances in the rest of them, so that what is told of
the difference is no accident; and a query's figures do not depend on what else is estimated beside it.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from engine.arrays import FloatArray

__all__ = ["SAMPLE", "name_key", "named_rng", "spread_chances", "spread_draws", "spread_normals"]

SAMPLE = 1024  #: draws of which `spread_draws` is to take a few


def name_key(name: str, above: int = 0) -> int:
    """Key of a name under the key `above`, a whole number of 32 bits."""
    return zlib.crc32(name.encode(), above)


def named_rng(seed: int, name: str) -> np.random.Generator:
    """Generator of the numbers of a name."""
    return np.random.default_rng([seed, name_key(name)])


def spread_draws(
    values: FloatArray, count: int, rng: np.random.Generator, weights: FloatArray | None = None
) -> FloatArray:
    """So many of the drawn `values`, in random order, that stand for all of them: their quantiles at even distances.

    With `weights`, shape as `values`, they stand for values that are as much more likely.
    """
    order = np.argsort(values)
    reached = np.cumsum(np.ones(len(values)) if weights is None else weights[order])
    at = np.searchsorted(reached, (np.arange(count) + 0.5) / count * reached[-1])
    return np.asarray(rng.permutation(values[order[at]]))


def spread_chances(count: int, rng: np.random.Generator) -> FloatArray:
    """So many chances at even distances, in random order."""
    return np.asarray((rng.permutation(count) + 0.5) / count)


def spread_normals(count: int, rng: np.random.Generator) -> FloatArray:
    """Standard normal deviates of chances at even distances, in random order."""
    return np.asarray(rng.permutation(_normals(count)))


@lru_cache(maxsize=8)
def _normals(count: int) -> FloatArray:
    return np.array([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])
