"""Mean utilisation of servers as sums over operators, for the rates that come and for what samples leave open of costs.

Utilisation is the mean load of a horizon over the mean capacity: what is sustained is a matter of means. Loads are
linear in rates unless an operator has a model, or loads on a server combine otherwise than by their sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import log

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Operator
from engine.estimation.linear_loads import GrownLoad, QueryLoads
from engine.estimation.noise.dispersion import input_costs

__all__ = ["UtilisationModel", "is_measured", "keeps_outputs"]

_DRAWS = 256  # sets of costs that the samples allow
_MAX_DRAWN = 3_000_000  # numbers of all inputs together; fewer sets where there are many inputs
_MIN_DRAWS = 40
_MIN_BIAS = 0.05  # of a kind's work: a ratio whose interval reaches to nothing


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


class UtilisationModel:
    """Mean load of every server of a placed deployment, by costs as they are and as their samples allow.

    Without `draws` there are means alone. From the column `quiet_from` on, where that is not the first set, hosts are
    as quiet as they may be, and costs fall as far as they may: the upper end of an interval is by these alone, the
    lower one by those before. `marginal` are the parts of costs that grow with the rate.
    `only_measured` leaves out what nobody measured: such operators cost nothing, and put out nothing unless that was
    counted. `biases` are measured over estimated work by kind of operator, the ends of an interval; sets of costs
    include them. With `factors` of the rates, shape (K, sources), the columns are loads at these, by mean costs.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        draws: bool = True,
        only_measured: bool = False,
        factors: FloatArray | None = None,
        biases: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self.deployment = deployment
        graph, d = deployment.graph, deployment
        self.horizon_s = d.subintervals * d.subinterval_s
        self.rates = np.array([float(source.arrivals.sum()) / self.horizon_s for source in d.sources])
        self.capacity = d.capacities.mean(axis=0)
        columns, self.quiet_from = 1, 1
        self._factors = factors
        if factors is not None:
            draws, columns = False, len(factors)
            self.rates = self.rates[:, None] * factors.T
        elif draws:
            columns += min(_DRAWS, max(_MIN_DRAWS, _MAX_DRAWN // max(1, len(graph.in_stream))))
        self.columns = columns
        self.output, self.cycles = (
            np.repeat(values[:, 1:2], columns, axis=1) for values in (graph.output, graph.cycles)
        )
        self.falls = any(operator.marginal_cost is not None for operator in d.operators)  # some cost, with the load
        self.marginal = np.ones_like(self.cycles)
        self._share_out()
        if draws:
            self._draw(biases or {})
        if only_measured:
            self._leave_out_unmeasured()

    def _draw(self, biases: Mapping[str, tuple[float, float]]) -> None:
        """Costs and selectivities as their samples allow: independent, lognormal with Student's tails.

        A bias of a kind is that of all its operators at once: anywhere from none to the end of its interval.
        """
        rng = np.random.default_rng(0)  # the same answer for the same statistics
        for e, noise in enumerate(input_costs(self.deployment)):
            for values, error in ((self.cycles, noise.cost_error), (self.output, noise.output_error)):
                if error > 0.0:
                    wide = rng.standard_t(max(noise.freedom, 1.0), self.columns - 1)
                    values[e, 1:] *= np.exp(np.clip(error * wide, -3.0, 3.0))
        start = self.deployment.graph.in_start
        for kind, (low, high) in sorted(biases.items()):
            least, most = log(max(min(1.0, low), _MIN_BIAS)), log(max(1.0, high))
            off = np.exp(rng.uniform(least, most, self.columns - 1))
            for j, operator in enumerate(self.deployment.operators):
                if operator.kind == kind:
                    self.cycles[start[j] : start[j + 1], 1:] *= off
        self._draw_calmer_costs(rng)

    def _share_out(self) -> None:
        """Parts of costs that grow with the rate, in the middle of what is known."""
        start = self.deployment.graph.in_start
        for j, operator in enumerate(self.deployment.operators):
            if operator.marginal_cost is not None:
                self.marginal[start[j] : start[j + 1]] = operator.marginal_cost.share

    def _draw_calmer_costs(self, rng: np.random.Generator) -> None:
        """Every set once more, with costs as they are on quieter hosts and under more load.

        Hosts are as quiet for all operators at once, and loads tell as little of all of them: with one u of each set,
        even between 0 and 1, a cost is c q^u, and the part of it that grows lies by u' between the middle and the end
        of its interval, the upper end in the sets before.
        """
        start, operators = self.deployment.graph.in_start, self.deployment.operators
        quiet = [(j, own.quiet_share) for j, own in enumerate(operators) if own.quiet_share is not None]
        falling = [(j, own.marginal_cost) for j, own in enumerate(operators) if own.marginal_cost is not None]
        if not quiet and not falling:
            return
        sets, self.quiet_from = self.columns - 1, self.columns
        self.output, self.cycles, self.marginal = (
            np.hstack([v, v[:, 1:]]) for v in (self.output, self.cycles, self.marginal)
        )
        self.columns += sets
        u = rng.uniform(0.0, 1.0, sets)
        for j, share in quiet:
            self.cycles[start[j] : start[j + 1], self.quiet_from :] *= share**u
        u = rng.uniform(0.0, 1.0, sets)
        for j, part in falling:
            self.marginal[start[j] : start[j + 1], 1 : self.quiet_from] += u * (part.high - part.share)
            self.marginal[start[j] : start[j + 1], self.quiet_from :] -= u * (part.share - part.low)

    def _leave_out_unmeasured(self) -> None:
        start = self.deployment.graph.in_start
        for j, operator in enumerate(self.deployment.operators):
            if not is_measured(operator):
                self.cycles[start[j] : start[j + 1]] = 0.0
                if not keeps_outputs(operator):
                    self.output[start[j] : start[j + 1]] = 0.0

    @cached_property
    def _linear(self) -> QueryLoads:
        return QueryLoads(self.deployment, self.rates.reshape(len(self.rates), -1), self.output, self.cycles)

    @cached_property
    def _growing(self) -> QueryLoads:
        """Loads less what is done however many events come."""
        if not self.falls:
            return self._linear
        cycles = self.cycles * self.marginal
        return QueryLoads(self.deployment, self.rates.reshape(len(self.rates), -1), self.output, cycles)

    @property
    def whole(self) -> GrownLoad:
        """Load of everything."""
        return self._linear.whole

    @property
    def growth(self) -> GrownLoad:
        """Part of the load of everything that grows with the rates."""
        return self._growing.whole

    @cached_property
    def load(self) -> FloatArray:
        """Work of every server per second, shape (servers, K)."""
        load = np.zeros((len(self.deployment.servers), self.columns))
        parts = (self.growth, self._lasting) if self.falls and self._factors is not None else (self.whole,)
        for part in parts:
            for server, work in part.servers.items():
                load[server] += work
        return load

    @property
    def _lasting(self) -> GrownLoad:
        """Work that is done however many events come, by the present rates."""
        present = np.array([source.arrivals.sum() for source in self.deployment.sources])[:, None] / self.horizon_s
        return QueryLoads(self.deployment, present, self.output, self.cycles * (1.0 - self.marginal)).whole

    def of_query(self, query: str) -> GrownLoad:
        """Load by a query's own sources: through its operators, and through those of others that read them."""
        return self._linear.of_query(query)

    def growth_of(self, query: str) -> GrownLoad:
        """Part of that which grows with their rates."""
        return self._growing.of_query(query)

    def sources_of(self, query: str) -> list[int]:
        """Sources that a query's own operators read."""
        graph, base = self.deployment.graph, len(self.deployment.sources)
        read = [
            int(stream)
            for j in self.deployment.operators_of(query)
            for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]]
        ]
        return sorted({stream for stream in read if stream < base})

    @cached_property
    def operators_by_server(self) -> dict[int, list[int]]:
        """Operators with a replica on each server, and those that send over each link."""
        layout = self.deployment.layout
        found: dict[int, list[int]] = {}
        for r, (server, j) in enumerate(zip(layout.rep_server.tolist(), layout.rep_operator.tolist(), strict=True)):
            found.setdefault(server, []).append(j)
            for h in self._linear.hops_from.get(r, ()):
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
                for h in self._linear.hops_from.get(r, ()):
                    if layout.hop_server[h] == server:
                        total += float(layout.hop_bytes[h] * load.output[j][0])
            work[j] = total
        return work
