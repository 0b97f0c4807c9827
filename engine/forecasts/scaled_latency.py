"""Latency of every query when each source's arrivals are scaled by its own factor, for many sets of factors at once.

Loads are linear in the sources (`engine.estimation.loads.LinearLoads`), so a set of factors costs one weighted sum and
one scan. The shape within the horizon stays what it is: a source that doubles does so in every subinterval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.document.deployment import Deployment
from engine.document.topology import DataflowGraph
from engine.document.unknown_costs import unknown_grounds
from engine.errors import InfeasibleError
from engine.estimation.loads import operator_gains, server_gains
from engine.estimation.overload import CLOSING, ROUNDING
from engine.estimation.probes import ProbedDeployment, probe_deployment
from engine.placement.problem import BoolArray

__all__ = ["ScaledLatencies", "ScaledMace"]

_KINDS = {"worst": 0, "mean": 1}


@dataclass(frozen=True, eq=False)
class _Tables:
    """Tables of the kernel: servers that matter, the sources that load them, queries with an objective."""

    start: IntArray  # (servers + 1,) entries of a server
    source: IntArray  # (entries,)
    gain: FloatArray  # (entries,) load per event
    room: FloatArray  # (servers,) capacity of a subinterval
    rate: FloatArray  # (servers,) capacity per second
    query_start: IntArray  # (queries + 1,)
    query_server: IntArray
    sink: FloatArray  # (queries, sources) sink events per event of a source
    kind: IntArray  # (queries,) 0 worst, 1 mean, 2 quantile
    level: FloatArray  # (queries,)


@dataclass(frozen=True, eq=False)
class ScaledLatencies:
    """Each query's statistic in seconds, and by how much a server of it falls behind for good every second, (n, q).

    The latter is 0 where the query catches up (`engine.estimation.overload.lasting_growth`).
    """

    latency_s: FloatArray
    growth: FloatArray

    def violated(self, bounds_s: FloatArray, latency_s: FloatArray | None = None) -> BoolArray:
        """Where an objective is broken by the latency, as read here or as given, or will be since it only grows."""
        read = self.latency_s if latency_s is None else latency_s
        return np.asarray((read > bounds_s[None, :]) | (self.growth > 0.0))


class ScaledMace:
    """Mace of a deployment under scaled arrivals; of a query that puts nothing out, what one event would meet.

    Attributes
    ----------
    queries : tuple of str
        Queries with an objective, in the order of the results.
    bounds_s : array, shape (q,)
        Their objectives.
    unknown : dict
        Queries whose latency nobody knows, since nothing comes out, or costs or plans are unknown, and why.
    """

    def __init__(self, deployment: Deployment, *, graph: DataflowGraph | None = None) -> None:
        probed = probe_deployment(deployment) if graph is None else ProbedDeployment(deployment)
        deployment, graph = probed.deployment, graph or probed.deployment.graph
        if graph.models or deployment.combine.kind != "sum" or len(deployment.capacities) > 1:
            raise InfeasibleError(
                "Forecasts of latency need linear loads: operators without polynomial models, loads that add up, and "
                "capacities that do not change over the horizon"
            )
        self.deployment = deployment
        self.unknown = {name: str(probe.fact) for name, probe in probed.probes.items() if not probe.is_known}
        for name in deployment.queries:
            if grounds := unknown_grounds(deployment, name):
                self.unknown[name] = str(grounds)
        self.queries = tuple(q for q in deployment.queries if deployment.objective_of(q))
        objectives = [deployment.objective_of(q) for q in self.queries]
        self.statistics = tuple(o.statistic for o in objectives if o)
        self.bounds_s = np.array([o.bound_s for o in objectives if o])
        self._arrivals = np.ascontiguousarray(deployment.arrivals)
        self._tables = _tables(deployment, graph, self.queries, self.statistics)

    @property
    def cells(self) -> int:
        """Numbers that one set of factors costs at most, for budgets."""
        return self._arrivals.shape[1] * max(1, len(self._tables.source))

    def loads(self, factors: FloatArray) -> FloatArray:
        """Mean load of each query's busiest server, as a share of its capacity, (n, q), for factors (n, sources)."""
        t = self._tables
        servers = np.zeros((len(t.rate), self._arrivals.shape[0]))
        at = np.repeat(np.arange(len(t.rate)), np.diff(t.start))
        servers[at, t.source] = t.gain / t.room[at]
        shares = (self._every_source(factors) * self._arrivals.mean(axis=1)) @ servers.T
        loads = np.zeros((len(factors), len(self.queries)))
        for q in range(len(self.queries)):
            used = t.query_server[t.query_start[q] : t.query_start[q + 1]]
            loads[:, q] = shares[:, used].max(axis=1, initial=0.0)
        return loads

    def _every_source(self, factors: FloatArray) -> FloatArray:
        """Factors with those of sources that stand for what a query does not get, which stay as they are."""
        more = np.ones((len(factors), self._arrivals.shape[0] - factors.shape[1]))
        return np.ascontiguousarray(np.hstack([factors, more]), dtype=np.float64)

    def latencies(self, factors: FloatArray) -> ScaledLatencies:
        """Each query's statistic, and whether it catches up, for factors of shape (n, sources)."""
        t = self._tables
        return ScaledLatencies(
            *_latencies(
                self._every_source(factors),
                self._arrivals,
                self._arrivals.max(axis=1, initial=0.0),
                t.start,
                t.source,
                t.gain,
                t.room,
                t.rate,
                t.query_start,
                t.query_server,
                t.sink,
                t.kind,
                t.level,
            )
        )


def _tables(
    deployment: Deployment, graph: DataflowGraph, queries: tuple[str, ...], statistics: tuple[str, ...]
) -> _Tables:
    layout = deployment.layout
    gain, cost = operator_gains(
        graph.order, graph.in_start, graph.in_stream, graph.output[:, 1], graph.cycles[:, 1], len(deployment.sources)
    )
    loads = server_gains(
        gain,
        cost,
        layout.rep_operator,
        layout.rep_server,
        layout.rep_fraction,
        layout.hop_server,
        layout.hop_origin,
        layout.hop_bytes,
        len(deployment.servers),
    )
    closures = deployment.closures
    used = [_servers_of(deployment, closures, deployment.queries.index(q)) for q in queries]
    kept = np.unique(np.concatenate(used)) if used else np.zeros(0, dtype=np.int64)
    kept = kept[loads[kept].any(axis=1)]
    place = {int(server): i for i, server in enumerate(kept)}
    members = [[place[s] for s in servers.tolist() if s in place] for servers in used]
    rows, columns = np.nonzero(loads[kept])
    rate = deployment.capacities[0][kept]
    sinks = np.array(
        [gain[graph.query_sink & (graph.query == deployment.queries.index(q))].sum(axis=0) for q in queries]
    )
    return _Tables(
        np.searchsorted(rows, np.arange(len(kept) + 1)),
        columns,
        loads[kept][rows, columns],
        rate * deployment.subinterval_s,
        rate,
        np.concatenate([[0], np.cumsum([len(m) for m in members])]).astype(np.int64),
        np.array([s for m in members for s in m], dtype=np.int64),
        sinks.reshape(len(queries), len(deployment.sources)),
        np.array([_KINDS.get(name, 2) for name in statistics], dtype=np.int64),
        np.array([float(name[1:]) if name[0] == "q" else 0.0 for name in statistics]),
    )


def _servers_of(deployment: Deployment, closures: tuple[IntArray, IntArray], query: int) -> IntArray:
    """Servers that hold a query up: those of the replicas above its sinks, and the links into them."""
    layout = deployment.layout
    replicas = closures[1][closures[0][query] : closures[0][query + 1]]
    hops = [layout.hop_server[layout.hop_start[r] : layout.hop_start[r + 1]] for r in replicas]
    links = np.concatenate([*hops, np.zeros(0, dtype=np.int64)])
    return np.unique(np.concatenate([layout.rep_server[replicas], links[links >= 0]]))


@compiled
def _latencies(
    factors: FloatArray,
    arrivals: FloatArray,
    peak: FloatArray,
    start: IntArray,
    source: IntArray,
    gain: FloatArray,
    room: FloatArray,
    rate: FloatArray,
    query_start: IntArray,
    query_server: IntArray,
    sink: FloatArray,
    kind: IntArray,
    level: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Statistic and growth of every query for every row of factors.

    A server whose peak fits has no excess and is not scanned. Growth is as in `engine.estimation.overload`: what comes
    over the closing third beyond what is processed.
    """
    n, d, servers, queries = len(factors), arrivals.shape[1], len(rate), len(kind)
    latencies, growths = np.zeros((n, queries)), np.zeros((n, queries))
    seconds = np.zeros((servers, d))
    worst, growth = np.zeros(servers), np.zeros(servers)
    closing = max(1, int(np.ceil(d * CLOSING)))
    load, line, weight = np.zeros(d), np.zeros(d), np.zeros(d)
    for row in range(n):
        scale = factors[row]
        for i in range(servers):
            worst[i] = growth[i] = 0.0
            largest = 0.0
            for k in range(start[i], start[i + 1]):
                largest += gain[k] * scale[source[k]] * peak[source[k]]
            if largest <= room[i]:
                continue
            load[:] = -room[i]
            for k in range(start[i], start[i + 1]):
                share = gain[k] * scale[source[k]]
                for p in range(d):
                    load[p] += share * arrivals[source[k], p]
            excess, inverse, more, ahead, least = 0.0, 1.0 / rate[i], 0.0, 0.0, np.inf
            for p in range(d):
                excess = max(0.0, excess + load[p])
                more += load[p]
                if p >= d - closing:
                    ahead += load[p]
                    least = min(least, excess)
                seconds[i, p] = excess * inverse
                worst[i] = max(worst[i], seconds[i, p])
            rise = ahead / (closing * room[i])
            if excess > ROUNDING * room[i] and rise > ROUNDING and (more > ROUNDING * d * room[i] or least > 0.0):
                growth[i] = rise
        for q in range(queries):
            top = 0.0
            for j in range(query_start[q], query_start[q + 1]):
                top = max(top, worst[query_server[j]])
                growths[row, q] = max(growths[row, q], growth[query_server[j]])
            if kind[q] == 0 or top == 0.0:
                latencies[row, q] = top
                continue
            line[:] = 0.0
            weight[:] = 0.0
            for j in range(query_start[q], query_start[q + 1]):
                i = query_server[j]
                if worst[i] > 0.0:
                    for p in range(d):
                        line[p] = max(line[p], seconds[i, p])
            for s in range(arrivals.shape[0]):
                share = sink[q, s] * scale[s]
                if share > 0.0:
                    for p in range(d):
                        weight[p] += share * arrivals[s, p]
            latencies[row, q] = _statistic(line, weight, kind[q], level[q])
    return latencies, growths


@compiled
def _statistic(line: FloatArray, weight: FloatArray, kind: int, level: float) -> float:
    """Mean or quantile of `line`, weighted; as `engine.arrays.statistic_or_worst`."""
    total = weight.sum()
    if total <= 0.0:
        return float(line.max())
    if kind == 1:
        return float((line * weight).sum() / total)
    order = np.argsort(line)
    reached, target = 0.0, level * total * (1.0 - 1e-12)
    for p in order:
        reached += weight[p]
        if reached >= target:
            return float(line[p])
    return float(line[order[-1]])
