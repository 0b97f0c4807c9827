"""Algorithms of section IX-B: Mace-HC as published, Random and Baseline, and Corr.

A search finds them by their names once this module is imported. None of them minds where items are at present, except
for `max_moves`.
"""

from __future__ import annotations

from engine.placement.local_search.climb import KICKS, RANDOM, RESTARTS
from engine.placement.local_search.search import ALGORITHMS, LocalAlgorithm
from lab.placement.correlation import CorrelationSearch

__all__ = ["PUBLISHED_ALGORITHMS"]

PUBLISHED_ALGORITHMS = {
    "mace-hc": LocalAlgorithm(RESTARTS, begins_placed=False),  # climbs from random placements
    "random": LocalAlgorithm(RANDOM, begins_placed=False),  # the best of random placements
    "baseline": LocalAlgorithm(RANDOM, begins_placed=False, rounds=1),  # one random placement
    "corr": LocalAlgorithm(KICKS, begins_placed=False, own=CorrelationSearch),  # load correlation
}
ALGORITHMS.update(PUBLISHED_ALGORITHMS)
