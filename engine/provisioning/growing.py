"""Mace while one load grows: loads are linear, so the load of a server is what it is now plus a share of one series.

Only servers that the query's events reach change. What the other servers cost is known from the load as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.admission.margins import sink_events
from engine.deployment import Deployment, Objective
from engine.elements import FloatArray, IntArray
from engine.mace import drain_times, mace
from engine.placement.problem import BoolArray
from engine.placement.scan import excess_of
from engine.quantiles import statistic_of
from engine.topology import closures_of, servers_above

__all__ = ["Growing", "is_linear"]


def is_linear(deployment: Deployment) -> bool:
    """Whether loads are sums of the arrivals times coefficients: no models, no other combination than the sum."""
    return not deployment.graph.models and deployment.combine.kind == "sum"


@dataclass(frozen=True, eq=False)
class _Added:
    """What one more time the load of a query adds: to servers, and to what each query emits."""

    servers: IntArray
    load: FloatArray  # (servers, d)
    emitted: dict[str, FloatArray]


class Growing:
    """Whether objectives are kept at factors of the load, on one deployment at Mace's width."""

    def __init__(self, coarse: Deployment) -> None:
        self.deployment = coarse
        found = mace(coarse)
        self.load = np.ascontiguousarray(found.load)
        self.mace_s = found.mace_s
        self.worst_s = found.worst_s
        self.emitted = sink_events(coarse)
        self.objectives = [entry for entry in coarse.objectives if entry.query in coarse.queries]
        self.used = _servers_used(coarse)
        at = {query: i for i, query in enumerate(coarse.queries)}
        self.uses = [self.used[at[entry.query]] for entry in self.objectives]

    @cached_property
    def limit_s(self) -> FloatArray:
        """Tightest bound on the worst case of any query that uses a server, shape (servers,)."""
        limit = np.full(len(self.load), np.inf)
        for entry, used in zip(self.objectives, self.uses, strict=True):
            if entry.statistic == "worst":
                limit[used] = np.minimum(limit[used], entry.bound_s)
        return limit

    @cached_property
    def kept_now(self) -> bool:
        """Whether every objective is kept as it is."""
        every = np.arange(len(self.load))
        return self._kept(every, self.worst_s, self.mace_s, self.emitted)

    def keeps(self, query: str | None) -> Callable[[float], bool]:
        """Whether every objective is kept by Mace at a factor of one query's load, or of all."""
        added = self._everything() if query is None else self._of(query)
        d, rows = self.deployment, self.deployment.capacities
        rates = np.ascontiguousarray(rows[:, added.servers])
        budget = np.ascontiguousarray(rates.T) * d.subinterval_s
        now = self.load[added.servers]

        def kept(factor: float) -> bool:
            excess = excess_of(now + (factor - 1.0) * added.load, budget)
            seconds = drain_times(np.ascontiguousarray(excess.T), rates, d.subinterval_s).T
            seconds = np.where(excess > 0.0, seconds, 0.0)
            emitted = {q: self.emitted[q] + (factor - 1.0) * more for q, more in added.emitted.items()}
            return self._kept(added.servers, seconds.max(axis=1, initial=0.0), seconds, emitted)

        return kept if self.kept_now else lambda factor: False

    def _kept(self, servers: IntArray, worst_s: FloatArray, mace_s: FloatArray, emitted: dict[str, FloatArray]) -> bool:
        """Whether all objectives are kept with other figures of some servers, and other weights of some queries."""
        if (worst_s > self.limit_s[servers]).any():
            return False
        changed = np.zeros(len(self.load), dtype=bool)
        changed[servers] = True
        return all(
            self._statistic(entry, used, servers, changed, mace_s, emitted) <= entry.bound_s
            for entry, used in zip(self.objectives, self.uses, strict=True)
            if entry.statistic != "worst" and ((used & changed).any() or entry.query in emitted)
        )

    def _statistic(
        self,
        entry: Objective,
        used: BoolArray,
        servers: IntArray,
        changed: BoolArray,
        mace_s: FloatArray,
        emitted: dict[str, FloatArray],
    ) -> float:
        series = mace_s[used[servers]].max(axis=0, initial=0.0)
        series = np.maximum(series, self.mace_s[used & ~changed].max(axis=0, initial=0.0))
        worst = float(series.max(initial=0.0))
        if worst <= entry.bound_s:
            return worst
        return statistic_of(series, emitted.get(entry.query, self.emitted[entry.query]), entry.statistic)

    def _everything(self) -> _Added:
        return _Added(np.arange(len(self.load)), self.load, dict(self.emitted))

    def _of(self, query: str) -> _Added:
        """Follow the query's own sources through its operators, and through those of others that read them."""
        d, graph, layout = self.deployment, self.deployment.graph, self.deployment.layout
        base, width = len(d.sources), d.subintervals
        own = set(d.operators_of(query))
        output: dict[int, FloatArray] = {}
        load: dict[int, FloatArray] = {}
        reached = set(own)
        todo = list(own)
        while todo:
            fresh = self._readers[todo.pop()] - reached
            reached |= fresh
            todo.extend(fresh)
        for j in sorted(reached, key=self._rank.__getitem__):
            out, work = np.zeros(width), np.zeros(width)
            for e in range(graph.in_start[j], graph.in_start[j + 1]):
                above = int(graph.in_stream[e])
                events = (d.arrivals[above] if j in own else None) if above < base else output.get(above - base)
                if events is not None:
                    out += graph.output[e, 1] * events
                    work += graph.cycles[e, 1] * events
            output[j], load[j] = out, work
        servers: dict[int, FloatArray] = {}
        for j in sorted(reached):
            for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
                _add(servers, int(layout.rep_server[r]), layout.rep_fraction[r] * load[j])
                for h in self._hops_from.get(r, ()):
                    _add(servers, int(layout.hop_server[h]), layout.hop_bytes[h] * output[j])
        indices = np.array(sorted(servers), dtype=np.int64)
        rows = np.array([servers[s] for s in indices.tolist()]).reshape(-1, width)
        emitted: dict[str, FloatArray] = {}
        for j in sorted(reached):
            if graph.query_sink[j]:
                name = d.queries[graph.query[j]]
                emitted[name] = emitted.get(name, 0.0) + output[j]
        return _Added(indices, rows, emitted)

    @cached_property
    def _rank(self) -> list[int]:
        """Place of each operator in topological order."""
        return np.argsort(self.deployment.graph.order).tolist()

    @cached_property
    def _readers(self) -> list[set[int]]:
        """Operators that read each operator."""
        graph, base = self.deployment.graph, len(self.deployment.sources)
        readers: list[set[int]] = [set() for _ in self.deployment.operators]
        for j in range(len(readers)):
            for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]].tolist():
                if stream >= base:
                    readers[stream - base].add(j)
        return readers

    @cached_property
    def _hops_from(self) -> dict[int, list[int]]:
        """Hops over a link server by the replica they come from."""
        layout = self.deployment.layout
        found: dict[int, list[int]] = {}
        for h in np.flatnonzero((layout.hop_server >= 0) & (layout.hop_origin >= 0)).tolist():
            found.setdefault(int(layout.hop_origin[h]), []).append(h)
        return found


def _add(rows: dict[int, FloatArray], server: int, more: FloatArray) -> None:
    rows[server] = rows[server] + more if server in rows else more


def _servers_used(deployment: Deployment) -> BoolArray:
    """Servers that each query waits for, shape (queries, servers)."""
    start, members = closures_of(deployment)
    used = np.zeros((len(deployment.queries), len(deployment.servers)), dtype=bool)
    for i in range(len(deployment.queries)):
        used[i, servers_above(deployment.layout, members[start[i] : start[i + 1]])] = True
    return used
