"""Random draws that belong to an event, not to the moment it is served.

An event's cost and outputs are hashed from its lineage and the seed. Two policies run with one seed therefore see the
very same work, and their difference is the policy's alone.
"""

from __future__ import annotations

import math

import numpy as np

from engine.simulation.compiled import compiled

__all__ = ["child_id", "cost_factor", "uniform"]

# Constants of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
ONE, S11, S27, S30, S31 = np.uint64(1), np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)


@compiled
def child_id(parent: np.uint64, number: int) -> np.uint64:
    """Id of the `number`-th descendant of an event, well mixed."""
    z = parent + GOLDEN * (np.uint64(number) + ONE)
    z = (z ^ (z >> S30)) * FIRST
    z = (z ^ (z >> S27)) * SECOND
    return z ^ (z >> S31)


@compiled
def uniform(event: np.uint64, purpose: int) -> float:
    """A number in (0, 1) for one purpose of one event."""
    return (float(child_id(event, purpose) >> S11) + 0.5) * 2.0**-53


@compiled
def cost_factor(event: np.uint64, sigma: float) -> float:
    """A lognormal factor of mean 1; `sigma` is the standard deviation of its logarithm."""
    radius = math.sqrt(-2.0 * math.log(uniform(event, 1_000_001)))
    normal = radius * math.cos(2.0 * math.pi * uniform(event, 1_000_002))
    return math.exp(sigma * normal - 0.5 * sigma * sigma)
