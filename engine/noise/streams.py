"""Random numbers by name: what is called the same gets the same ones in every deployment.

Two deployments that differ in a part are compared with the same chances in the rest of them, so that what is told of
the difference is no accident; and a query's figures do not depend on what else is estimated beside it.
"""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["name_key", "named_rng"]


def name_key(name: str, above: int = 0) -> int:
    """Key of a name under the key `above`, a whole number of 32 bits."""
    return zlib.crc32(name.encode(), above)


def named_rng(seed: int, name: str) -> np.random.Generator:
    """Generator of the numbers of a name."""
    return np.random.default_rng([seed, name_key(name)])
