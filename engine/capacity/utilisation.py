"""Mean utilisation of servers as sums over operators, for the rates that come and for what samples leave open of costs.

Utilisation is the mean load of a horizon over the mean capacity: what is sustained is a matter of means. Loads are
linear in rates unless an operator has a model, or loads on a server combine otherwise than by their sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Operator
from engine.document.topology import hops_by_origin, readers_of
from engine.estimation.noise.dispersion import input_costs

__all__ = ["GrownLoad", "UtilisationModel", "is_measured", "keeps_outputs"]

_DRAWS = 256  # sets of costs that the samples allow
_MAX_DRAWN = 3_000_000  # numbers of all inputs together; fewer sets where there are many inputs
_MIN_DRAWS = 40


def is_measured(operator: Operator) -> bool:
    """Whether the costs of an operator were measured: neither nominal, nor assumed, predicted or unknown."""
    return not operator.inputs or (
        operator.evidence is not None
        and (operator.evidence.kind == "measured" or operator.cost_by == "load_step")
        and not (operator.never_ran or operator.is_cost_unknown)
    )


def keeps_outputs(operator: Operator) -> bool:
    """Whether it was counted what an operator puts out, be its cost known or not: by some event at least."""
    evidence = operator.evidence
    if evidence is not None and evidence.kind == "unknown":
        return evidence.events > 0.0
    return operator.cost_by is not None or (evidence is not None and evidence.kind == "measured")


@dataclass(frozen=True, eq=False)
class GrownLoad:
    """Part of the load that grows with the rate of a query, or of all.

    Attributes
    ----------
    operators : tuple of int
        Operators it reaches.
    servers : dict of int to array
        Work of each server it reaches per second, (K,): in its first column by the mean costs.
    by_operator : dict of int to array
        Work of each operator per second, (K,), in cycles.
    output : dict of int to array
        Events that each puts out per second, (K,).
    """

    operators: tuple[int, ...]
    servers: Mapping[int, FloatArray]
    by_operator: Mapping[int, FloatArray]
    output: Mapping[int, FloatArray]


class UtilisationModel:
    """Mean load of every server of a placed deployment, by costs as they are and as their samples allow.

    Without `draws` there are means alone. `only_measured` leaves out what nobody measured: such operators cost nothing,
    and put out nothing unless that was counted. With `factors` of the rates, shape (K, sources), the columns are loads
    at these, by mean costs.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        draws: bool = True,
        only_measured: bool = False,
        factors: FloatArray | None = None,
    ) -> None:
        self.deployment = deployment
        graph, d = deployment.graph, deployment
        self.horizon_s = d.subintervals * d.subinterval_s
        self.rates = np.array([float(source.arrivals.sum()) / self.horizon_s for source in d.sources])
        self.capacity = d.capacities.mean(axis=0)
        columns = 1
        if factors is not None:
            draws, columns = False, len(factors)
            self.rates = self.rates[:, None] * factors.T
        elif draws:
            columns += min(_DRAWS, max(_MIN_DRAWS, _MAX_DRAWN // max(1, len(graph.in_stream))))
        self.columns = columns
        self.output, self.cycles = (
            np.repeat(values[:, 1:2], columns, axis=1) for values in (graph.output, graph.cycles)
        )
        if draws:
            self._draw()
        if only_measured:
            self._leave_out_unmeasured()

    def _draw(self) -> None:
        """Costs and selectivities as their samples allow: independent, lognormal with Student's tails."""
        rng = np.random.default_rng(0)  # the same answer for the same statistics
        for e, noise in enumerate(input_costs(self.deployment)):
            for values, error in ((self.cycles, noise.cost_error), (self.output, noise.output_error)):
                if error > 0.0:
                    wide = rng.standard_t(max(noise.freedom, 1.0), self.columns - 1)
                    values[e, 1:] *= np.exp(np.clip(error * wide, -3.0, 3.0))

    def _leave_out_unmeasured(self) -> None:
        start = self.deployment.graph.in_start
        for j, operator in enumerate(self.deployment.operators):
            if not is_measured(operator):
                self.cycles[start[j] : start[j + 1]] = 0.0
                if not keeps_outputs(operator):
                    self.output[start[j] : start[j + 1]] = 0.0

    @cached_property
    def whole(self) -> GrownLoad:
        """Load of everything."""
        every = self.deployment.graph.order.tolist()
        return self._propagated(every, set(every))

    @cached_property
    def load(self) -> FloatArray:
        """Work of every server per second, shape (servers, K)."""
        load = np.zeros((len(self.deployment.servers), self.columns))
        for server, work in self.whole.servers.items():
            load[server] = work
        return load

    def of_query(self, query: str) -> GrownLoad:
        """Load by a query's own sources: through its operators, and through those of others that read them."""
        own = set(self.deployment.operators_of(query))
        reached, todo = set(own), list(own)
        while todo:
            fresh = self._readers[todo.pop()] - reached
            reached |= fresh
            todo.extend(fresh)
        return self._propagated(sorted(reached, key=self._rank.__getitem__), own)

    def sources_of(self, query: str) -> list[int]:
        """Sources that a query's own operators read."""
        graph, base = self.deployment.graph, len(self.deployment.sources)
        read = [
            int(stream)
            for j in self.deployment.operators_of(query)
            for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]]
        ]
        return sorted({stream for stream in read if stream < base})

    def _propagated(self, order: Sequence[int], own: Collection[int]) -> GrownLoad:
        """Work by the sources that operators in `own` read, through operators in topological order."""
        d, graph, layout = self.deployment, self.deployment.graph, self.deployment.layout
        base = len(d.sources)
        output: dict[int, FloatArray] = {}
        by_operator: dict[int, FloatArray] = {}
        servers: dict[int, FloatArray] = {}
        for j in order:
            out, work = np.zeros(self.columns), np.zeros(self.columns)
            for e in range(graph.in_start[j], graph.in_start[j + 1]):
                above = int(graph.in_stream[e])
                if above >= base:
                    events = output.get(above - base)
                else:
                    events = self.rates[above] if j in own else None
                if events is not None:
                    out += self.output[e] * events  # sigma times rate
                    work += self.cycles[e] * events  # omega times rate
            output[j], by_operator[j] = out, work
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                _add(servers, int(layout.rep_server[r]), layout.rep_fraction[r] * work)
                for h in self._hops_from.get(r, ()):
                    _add(servers, int(layout.hop_server[h]), layout.hop_bytes[h] * out)
        return GrownLoad(tuple(order), servers, by_operator, output)

    @cached_property
    def _rank(self) -> list[int]:
        return np.argsort(self.deployment.graph.order).tolist()

    @cached_property
    def _readers(self) -> list[set[int]]:
        """Operators that read each operator."""
        return readers_of(self.deployment.graph, len(self.deployment.sources))

    @cached_property
    def _hops_from(self) -> dict[int, list[int]]:
        """Hops over a link server by the replica they come from."""
        return hops_by_origin(self.deployment.layout)

    @cached_property
    def operators_by_server(self) -> dict[int, list[int]]:
        """Operators with a replica on each server, and those that send over each link."""
        layout = self.deployment.layout
        found: dict[int, list[int]] = {}
        for r, (server, j) in enumerate(zip(layout.rep_server.tolist(), layout.rep_operator.tolist(), strict=True)):
            found.setdefault(server, []).append(j)
            for h in self._hops_from.get(r, ()):
                found.setdefault(int(layout.hop_server[h]), []).append(j)
        return {server: list(dict.fromkeys(listed)) for server, listed in found.items()}

    def work_on(self, server: int, load: GrownLoad) -> dict[int, float]:
        """Work of each operator of a load on one server per second, by the mean costs."""
        layout, work = self.deployment.layout, dict[int, float]()
        for j in self.operators_by_server.get(server, []):
            if j not in load.by_operator:
                continue
            total = 0.0
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                if layout.rep_server[r] == server:
                    total += float(layout.rep_fraction[r] * load.by_operator[j][0])
                for h in self._hops_from.get(r, ()):
                    if layout.hop_server[h] == server:
                        total += float(layout.hop_bytes[h] * load.output[j][0])
            work[j] = total
        return work


def _add(rows: dict[int, FloatArray], server: int, more: FloatArray) -> None:
    rows[server] = rows[server] + more if server in rows else more
