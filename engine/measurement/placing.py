"""Where the operators of a live query run by their load factors, before anything was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from engine.measurement.places import STREAM

__all__ = ["expected_shares"]


def expected_shares(load_factors: Mapping[str, Sequence[float]], operators: int) -> list[dict[str, float]]:
    """Share of each operator's events by place; agents are taken to collect alike.

    A record that is drained before an operator passes no later one at its source: the share that reaches operator j
    there is the product of the load factors up to j. The rest is the stream processor's.

    Parameters
    ----------
    load_factors : mapping
        By agent, for each operator that may run at a source, the share of records it takes.
    operators : int
        Of the whole pipeline.

    Examples
    --------
    >>> expected_shares({"a": [1.0, 0.5], "b": [1.0, 0.0]}, 3)
    [{'a': 0.5, 'b': 0.5, 'stream': 0.0}, {'a': 0.25, 'b': 0.0, 'stream': 0.75}, {'a': 0.0, 'b': 0.0, 'stream': 1.0}]
    """
    found = []
    for j in range(operators):
        near = {
            agent: math.prod(factors[: j + 1]) / len(load_factors) if j < len(factors) else 0.0
            for agent, factors in load_factors.items()
        }
        found.append({**near, STREAM: 1.0 - math.fsum(near.values())})
    return found
