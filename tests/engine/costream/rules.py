"""Rules 2 and 3 of candidates, checked on whole placements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.arrays import IntArray
from engine.query_graph.graph import QueryGraph

__all__ = ["is_acyclic", "is_ascending", "never_returns"]

BoolArray = npt.NDArray[np.bool_]


def is_ascending(graph: QueryGraph, strengths: Sequence[int], placements: IntArray) -> BoolArray:
    """Whether each of k placements (k, n) keeps rule 2."""
    bins = np.asarray(strengths)[placements]
    kept = np.ones(len(placements), dtype=bool)
    for a, b in graph.edges:
        kept &= bins[:, a] <= bins[:, b]
    return kept


def is_acyclic(graph: QueryGraph, placements: IntArray) -> BoolArray:
    """Whether each of k placements (k, n) leaves the graph of hosts without a cycle."""
    rows, hosts = np.arange(len(placements)), int(placements.max()) + 1
    reach = np.zeros((len(placements), hosts, hosts), dtype=bool)
    for a, b in graph.edges:
        reach[rows, placements[:, a], placements[:, b]] |= placements[:, a] != placements[:, b]
    for via in range(hosts):
        reach |= reach[:, :, via, None] & reach[:, None, via, :]
    kept: BoolArray = ~reach.diagonal(axis1=1, axis2=2).any(axis=1)
    return kept


def never_returns(graph: QueryGraph, placements: IntArray) -> BoolArray:
    """Whether each of k placements (k, n) keeps rule 3 as the paper states it: on every path on its own."""
    before: list[set[int]] = [set() for _ in graph.operators]
    for i in graph.order:
        before[i] = {a for p in graph.inputs[i] for a in (p, *before[p])}
    kept = np.ones(len(placements), dtype=bool)
    for last in graph.order:
        for middle in before[last]:
            away = placements[:, middle] != placements[:, last]
            for first in before[middle]:
                kept &= ~(away & (placements[:, first] == placements[:, last]))
    return kept
