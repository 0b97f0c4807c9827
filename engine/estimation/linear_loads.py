"""Loads of operators and servers as sums over what a query's own sources send, or all: rates times costs.

They are linear in the rates unless an operator has a model, or loads on a server combine otherwise than by their sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.topology import hops_by_origin, readers_of

__all__ = ["GrownLoad", "QueryLoads", "is_linear"]


def is_linear(deployment: Deployment) -> bool:
    """Whether loads are sums of the arrivals times coefficients: no models, no other combination than the sum."""
    return not deployment.graph.models and deployment.combine.kind == "sum"


@dataclass(frozen=True, eq=False)
class GrownLoad:
    """Part of the load that grows with the rate of a query, or of all; K columns of whatever the walk has.

    Attributes
    ----------
    operators : tuple of int
        Operators it reaches.
    servers : dict of int to array
        Work of each server it reaches, (K,).
    by_operator : dict of int to array
        Work of each operator, (K,), in cycles.
    output : dict of int to array
        Events that each puts out, (K,).
    """

    operators: tuple[int, ...]
    servers: Mapping[int, FloatArray]
    by_operator: Mapping[int, FloatArray]
    output: Mapping[int, FloatArray]


class QueryLoads:
    """Loads that events of sources cause on their way through operators, servers and links.

    Parameters
    ----------
    events : array, shape (sources, K) or (sources, 1)
        Events of every source: of a second in K cases, or of each of K subintervals.
    output, cycles : array, shape (inputs, K) or (inputs, 1)
        Selectivity and cycles per event of every input.
    """

    def __init__(self, deployment: Deployment, events: FloatArray, output: FloatArray, cycles: FloatArray) -> None:
        self.deployment = deployment
        self._events, self._output, self._cycles = events, output, cycles

    @cached_property
    def whole(self) -> GrownLoad:
        """Load of everything."""
        every = self.deployment.graph.order.tolist()
        return self._propagated(every, set(every))

    def of_query(self, query: str) -> GrownLoad:
        """Load by a query's own sources: through its operators, and through those of others that read them."""
        own = set(self.deployment.operators_of(query))
        reached, todo = set(own), list(own)
        while todo:
            fresh = self._readers[todo.pop()] - reached
            reached |= fresh
            todo.extend(fresh)
        return self._propagated(sorted(reached, key=self._rank.__getitem__), own)

    def _propagated(self, order: Sequence[int], own: Collection[int]) -> GrownLoad:
        """Work by the sources that operators in `own` read, through operators in topological order."""
        graph, layout = self.deployment.graph, self.deployment.layout
        columns = max(self._events.shape[1], self._output.shape[1])
        base = len(self.deployment.sources)
        output: dict[int, FloatArray] = {}
        by_operator: dict[int, FloatArray] = {}
        servers: dict[int, FloatArray] = {}
        for j in order:
            out, work = np.zeros(columns), np.zeros(columns)
            for e in range(graph.in_start[j], graph.in_start[j + 1]):
                above = int(graph.in_stream[e])
                if above >= base:
                    events = output.get(above - base)
                else:
                    events = self._events[above] if j in own else None
                if events is not None:
                    out += self._output[e] * events  # sigma times rate
                    work += self._cycles[e] * events  # omega times rate
            output[j], by_operator[j] = out, work
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                _add(servers, int(layout.rep_server[r]), layout.rep_fraction[r] * work)
                for h in self.hops_from.get(r, ()):
                    _add(servers, int(layout.hop_server[h]), layout.hop_bytes[h] * out)
        return GrownLoad(tuple(order), servers, by_operator, output)

    @cached_property
    def _rank(self) -> list[int]:
        """Place of each operator in topological order."""
        return np.argsort(self.deployment.graph.order).tolist()

    @cached_property
    def _readers(self) -> list[set[int]]:
        """Operators that read each operator."""
        return readers_of(self.deployment.graph, len(self.deployment.sources))

    @cached_property
    def hops_from(self) -> dict[int, list[int]]:
        """Hops over a link server by the replica they come from."""
        return hops_by_origin(self.deployment.layout)


def _add(rows: dict[int, FloatArray], server: int, more: FloatArray) -> None:
    rows[server] = rows[server] + more if server in rows else more
