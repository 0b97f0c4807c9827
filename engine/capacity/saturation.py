"""Saturation: the factor of the rates at which the busiest server that they load has no time left.

With u the utilisation of a server and v the part of it that grows, the server is full at the factor f::

    u + (f - 1) v = 1    <=>    f = 1 + (1 - u) / v

and the capacity is the least f of all servers that the rates load: cores and links. What an operator does however many
events come, by its `marginal_cost`, is in u and not in v. Where loads are not sums of rates times costs, f is bisected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.capacity.answer import (
    KNOWN,
    NO_LOAD,
    NO_SOURCE,
    NOTHING_ARRIVES,
    UNKNOWN,
    CapacityLimit,
    ClusterCapacity,
    QueryCapacity,
    UnmeasuredOperator,
)
from engine.capacity.utilisation import UtilisationModel, is_measured
from engine.document.deployment import Deployment
from engine.document.elements import THESE
from engine.estimation.linear_loads import GrownLoad, is_linear
from engine.estimation.loads import loads_of
from engine.provisioning.changes import MAX_LOAD, apply_changes

__all__ = ["ClusterSaturation"]

_LEVEL = 0.9
_NARROW = 1e-4  # of a bisected factor


@dataclass(frozen=True, eq=False)
class _Saturation:
    """Factors at which the first server is full, (K,): by the mean costs first, then as samples allow; that server.

    From the column `quiet_from` on, hosts are as quiet as they may be, and costs fall as far as they may.
    """

    factors: FloatArray
    server: int
    quiet_from: int = 1

    @property
    def factor(self) -> float:
        return float(self.factors[0])

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the factors that samples leave plausible; None without samples."""
        if len(self.factors) < 2:
            return None
        as_it_was = self.factors[1 : self.quiet_from] if self.quiet_from > 1 else self.factors[1:]
        low = np.quantile(as_it_was, (1.0 - _LEVEL) / 2.0)
        return float(low), float(np.quantile(self.factors[self.quiet_from :], (1.0 + _LEVEL) / 2.0))

    @property
    def highest(self) -> float:
        """Factor that the least of what samples leave plausible of costs allows."""
        return max(self.factor, self.interval[1]) if self.interval else self.factor


class ClusterSaturation:
    """Capacities of a placed deployment and its queries, with all that does not grow as it is.

    `biases` are measured over estimated work by kind of operator, (low, high): intervals include them.
    """

    def __init__(self, deployment: Deployment, *, biases: Mapping[str, tuple[float, float]] | None = None) -> None:
        self._is_behind = _operators_behind(deployment)
        self.deployment = deployment = deployment.without_backlogs()
        self.model = UtilisationModel(deployment, draws=is_linear(deployment), biases=biases)
        self._measured = [is_measured(operator) for operator in deployment.operators]
        self._is_unknown = [
            operator.is_cost_unknown or (operator.evidence is not None and operator.evidence.kind == "unknown")
            for operator in deployment.operators
        ]
        self._sure = (
            self.model
            if all(self._measured)
            else UtilisationModel(deployment, draws=is_linear(deployment), only_measured=True, biases=biases)
        )

    def of_query(self, query: str) -> QueryCapacity:
        """Capacity of a query: the rate of its own sources, read by others at the rates that they have."""
        sources = self.model.sources_of(query)
        now = float(self.model.rates[sources].sum())
        names = tuple(self.deployment.sources[i].id for i in sources)
        if not sources:
            return QueryCapacity(**_without_number(NO_SOURCE, now))
        if not now > 0.0:
            return QueryCapacity(**_without_number(NOTHING_ARRIVES, now), sources=names)
        grown = self.model.growth_of(query)
        found = self._saturation(grown, lambda factor: _grown_query(self.deployment, query, factor))
        sure = found if self._sure is self.model else _linear_saturation(self._sure, self._sure.growth_of(query))
        answer = self._answer(now, grown, found, sure)
        own = self.model.of_query(query) if self.model.falls else grown
        share = self._busiest_share(query, own) if answer["state"] == KNOWN else 0.0
        return QueryCapacity(**answer, busiest_share_per_s=now / share if share > 0.0 else None, sources=names)

    def of_cluster(self) -> ClusterCapacity:
        """Capacity of everything: all sources grow by one factor."""
        now = float(self.model.rates.sum())
        if not now > 0.0:
            return ClusterCapacity(**_without_number(NOTHING_ARRIVES, now))
        grown = self.model.growth
        found = self._saturation(grown, lambda factor: _grown_sources(self.deployment, factor))
        sure = found if self._sure is self.model else _linear_saturation(self._sure, self._sure.growth)
        return ClusterCapacity(**self._answer(now, grown, found, sure))

    def _saturation(self, grown: GrownLoad, grow: Callable[[float], Deployment]) -> _Saturation | None:
        if is_linear(self.deployment):
            return _linear_saturation(self.model, grown)
        return _bisected_saturation(self.deployment, grown, grow)

    def _answer(
        self, now: float, grown: GrownLoad, found: _Saturation | None, sure: _Saturation | None
    ) -> dict[str, Any]:
        """Fields that capacities of queries and clusters have in common."""
        on_way = self._on_way(grown)
        outside = tuple(self.deployment.operators[j].id for j in self._waiting_outside(grown))
        unmeasured = tuple(
            UnmeasuredOperator(operator.id, operator.query, operator.evidence.kind if operator.evidence else "assumed")
            for operator in (self.deployment.operators[j] for j in on_way if not self._measured[j])
        )
        unsampled = self._unsampled(on_way)
        spans_s = (self.deployment.operators[j].measured_s for j in on_way)
        measured_s = min((span_s for span_s in spans_s if span_s is not None), default=None)
        # What comes on the mean and leaves nothing waiting is sustained, whatever costs say.
        came_per_s = 0.0 if self._is_behind & {*on_way} else now
        if found is None and not unmeasured and not outside:
            return _without_number(NO_LOAD, now)
        rate = None if found is None else now * max(0.0, found.factor)
        if unmeasured or outside:  # no limit: whose load that is would rest on what nobody measured
            return _without_number(UNKNOWN, now) | {
                "at_most_per_s": None if sure is None else max(now * max(0.0, sure.highest), came_per_s),
                "assumed_per_s": None if outside or any(self._is_unknown[j] for j in on_way) else rate,
                "unmeasured": unmeasured,
                "outside": outside,
                "unsampled": unsampled,
                "measured_s": measured_s,
            }
        assert found is not None and rate is not None
        low, high = (None, None) if unsampled or found.interval is None else found.interval
        factor = max(0.0, found.factor)
        return _without_number(KNOWN, now) | {
            "rate_per_s": rate,
            "low_per_s": None if low is None else now * max(0.0, min(low, factor)),
            "high_per_s": None if high is None else max(now * max(high, factor), came_per_s),
            "factor": factor,
            "headroom_per_s": rate - now,
            "headroom_share": factor - 1.0,
            "limit": self._limit(found, grown),
            "unsampled": unsampled,
            "measured_s": measured_s,
        }

    def _on_way(self, grown: GrownLoad) -> list[int]:
        """Operators whose costs decide: those that the rates reach, and those that share a server with them."""
        found = set(grown.operators)
        for server in grown.servers:
            if self.deployment.servers[server].link is None:
                found.update(self.model.operators_by_server.get(server, ()))
        return sorted(found)

    def _waiting_outside(self, grown: GrownLoad) -> list[int]:
        """Operators that the rates reach whose own rate answers from outside bound: no work tells it."""
        return sorted(j for j in grown.operators if self.deployment.operators[j].waits_outside)

    def _unsampled(self, operators: Collection[int]) -> int:
        """Inputs whose error is not known."""
        if self.deployment.statistics_of == THESE:
            return 0
        listed = (self.deployment.operators[j] for j in operators)
        return sum(not (entry.is_sampled or entry.takes_nothing) for operator in listed for entry in operator.inputs)

    def _limit(self, found: _Saturation, grown: GrownLoad) -> CapacityLimit:
        server, more = self.deployment.servers[found.server], max(0.0, found.factor) - 1.0
        work = self.model.work_on(found.server, self.model.whole)
        for j, own in self.model.work_on(found.server, grown).items():
            work[j] += more * own
        total = sum(work.values())
        largest = max(work, key=lambda j: work[j], default=None)
        operator = None if largest is None else self.deployment.operators[largest]
        capacity = self.model.capacity[found.server]
        own_work = grown.servers.get(found.server)
        return CapacityLimit(
            server=server.name,
            resource="cpu" if server.link is None else "bandwidth",
            node=None if server.node is None else self.deployment.nodes[server.node].id,
            operator=None if operator is None else operator.id,
            query=None if operator is None else operator.query,
            share=0.0 if largest is None or not total > 0.0 else work[largest] / total,
            load=float(self.model.load[found.server, 0] / capacity),
            own_load=0.0 if own_work is None else float(own_work[0] / capacity),
        )

    def _busiest_share(self, query: str, grown: GrownLoad) -> float:
        """Largest share of a core that a replica of one of the query's operators takes."""
        layout, busiest = self.deployment.layout, 0.0
        for j in self.deployment.operators_of(query):
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                capacity = self.model.capacity[layout.rep_server[r]]
                busiest = max(busiest, float(layout.rep_fraction[r] * grown.by_operator[j][0] / capacity))
        return busiest


def _linear_saturation(model: UtilisationModel, grown: GrownLoad) -> _Saturation | None:
    """First server that is full; None where the rates load none."""
    servers = [server for server, work in sorted(grown.servers.items()) if work[0] > 0.0]
    if not servers:
        return None
    capacity = model.capacity[servers][:, None]
    own = np.array([grown.servers[server] for server in servers])
    with np.errstate(divide="ignore"):
        factors = 1.0 + (capacity - model.load[servers]) / own  # f = 1 + (1 - u) / v
    return _Saturation(factors.min(axis=0), servers[int(factors[:, 0].argmin())], model.quiet_from)


def _bisected_saturation(
    deployment: Deployment, grown: GrownLoad, grow: Callable[[float], Deployment]
) -> _Saturation | None:
    """The same where loads are not linear; without an interval."""
    capacity = deployment.capacities.mean(axis=0) * deployment.subinterval_s
    servers = sorted(grown.servers)

    def shares(factor: float) -> FloatArray:
        return np.asarray((loads_of(grow(factor)).by_time.mean(axis=0) / capacity)[servers])

    now, nothing = shares(1.0), shares(0.0)
    if not (now > nothing).any():
        return None
    loaded = now > nothing
    low, high = (0.0, 1.0) if now[loaded].max() >= 1.0 else (1.0, 2.0)
    if nothing[loaded].max() >= 1.0:
        return _Saturation(np.zeros(1), servers[int(np.where(loaded, nothing, -1.0).argmax())])
    while shares(high)[loaded].max() < 1.0:
        if high >= MAX_LOAD:
            return None
        low, high = high, min(4.0 * high, MAX_LOAD)
    while high - low > _NARROW * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if shares(middle)[loaded].max() < 1.0 else (low, middle)
    return _Saturation(np.array([low]), servers[int(np.where(loaded, shares(high), -1.0).argmax())])


def _operators_behind(deployment: Deployment) -> set[int]:
    """Operators that something is known to wait for: of their own, or of a source that they read."""
    waiting = {source.id for source in deployment.sources if source.backlog and not source.backlog.is_empty}
    return {
        j
        for j, operator in enumerate(deployment.operators)
        for entry in operator.inputs
        if (entry.source in waiting if entry.backlog is None else not entry.backlog.is_empty)
    }


def _grown_query(deployment: Deployment, query: str, factor: float) -> Deployment:
    return apply_changes(deployment, [{"scale_query": query, "by": factor}], path="capacity")


def _grown_sources(deployment: Deployment, factor: float) -> Deployment:
    return apply_changes(deployment, [{"scale_source": "*", "by": factor}], path="capacity")


def _without_number(state: str, now: float) -> dict[str, Any]:
    numbers = ("rate_per_s", "low_per_s", "high_per_s", "at_most_per_s", "assumed_per_s", "factor", "headroom_per_s")
    return {"state": state, "now_per_s": now, **dict.fromkeys(numbers), "headroom_share": None, "limit": None}
