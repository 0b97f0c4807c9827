"""Mace: maximum cumulative excess, the paper's worst-case equivalent of latency, with propagation delay along paths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.document.deployment import Deployment
from engine.estimation.backlog import Lead, lead_of, lead_work
from engine.estimation.loads import Loads, OperatorSeries, loads_of
from engine.estimation.waits.clocks import sources_above
from engine.records import Fact

__all__ = ["Mace", "drain_times", "mace", "path_delays"]


def path_delays(deployment: Deployment) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest total delay of source-to-sink paths through every server, in seconds, shape (n,) each.

    Paths are those of the query graph (replica by replica), not of the merged machine graph, which would invent paths.
    A server without a path has 0 and 0.
    """
    layout, graph = deployment.layout, deployment.graph
    replicas = _replica_order(graph.order, layout.rep_start)
    return _delays(
        replicas,
        layout.rep_operator,
        layout.rep_server,
        layout.hop_start,
        layout.hop_origin,
        layout.hop_server,
        layout.hop_delay_s,
        graph.sink.astype(np.int64),
        len(deployment.servers),
    )


def _replica_order(order: IntArray, rep_start: IntArray) -> IntArray:
    ranges = [np.arange(rep_start[j], rep_start[j + 1]) for j in order]
    return np.concatenate(ranges) if ranges else np.zeros(0, dtype=np.int64)


@compiled
def _delays(
    replicas: IntArray,
    rep_operator: IntArray,
    rep_server: IntArray,
    hop_start: IntArray,
    hop_origin: IntArray,
    hop_server: IntArray,
    hop_delay: FloatArray,
    sink: IntArray,
    servers: int,
) -> tuple[FloatArray, FloatArray]:
    count = len(replicas)
    up_least, up_most = np.full(count, np.inf), np.full(count, -np.inf)
    down_least, down_most = np.full(count, np.inf), np.full(count, -np.inf)
    for r in replicas:
        for h in range(hop_start[r], hop_start[r + 1]):
            a = hop_origin[h]
            up_least[r] = min(up_least[r], hop_delay[h] + (0.0 if a < 0 else up_least[a]))
            up_most[r] = max(up_most[r], hop_delay[h] + (0.0 if a < 0 else up_most[a]))
    shortest, longest = np.full(servers, np.inf), np.full(servers, -np.inf)
    for r in replicas[::-1]:
        if sink[rep_operator[r]]:
            down_least[r] = down_most[r] = 0.0
        i = rep_server[r]
        shortest[i] = min(shortest[i], up_least[r] + down_least[r])
        longest[i] = max(longest[i], up_most[r] + down_most[r])
        for h in range(hop_start[r], hop_start[r + 1]):
            a, link = hop_origin[h], hop_server[h]
            if a < 0:
                continue
            down_least[a] = min(down_least[a], hop_delay[h] + down_least[r])
            down_most[a] = max(down_most[a], hop_delay[h] + down_most[r])
            if link >= 0:
                shortest[link] = min(shortest[link], up_least[a] + hop_delay[h] + down_least[r])
                longest[link] = max(longest[link], up_most[a] + hop_delay[h] + down_most[r])
    for i in range(servers):
        if shortest[i] == np.inf:
            shortest[i] = longest[i] = 0.0
    return shortest, longest


@dataclass(frozen=True, eq=False)
class Mace:
    """Mace of a deployment with n servers over d subintervals of width w.

    Attributes
    ----------
    load : array, shape (n, d)
        Cycles (cores) or bytes (links) that arrive in each subinterval.
    ce : array, shape (n, d)
        Cumulative excess at the end of each subinterval, in cycles or bytes.
    worst_s : array, shape (n,)
        Largest of each server over time, its excess where the horizon begins included.
    total_s : array, shape (d,)
        Mace_p, the largest over the servers.
    series : OperatorSeries or None
        Per-operator series if they were asked for.
    start : array, shape (n,)
        Excess where the horizon begins: the work of what waits, on its whole way. Mace counts it as work alone;
        the age of waiting events is part of the latencies of Flow.
    lead : Lead or None
        The waiting events; None where nothing waits.
    """

    deployment: Deployment
    loads: Loads
    load: FloatArray
    ce: FloatArray
    worst_s: FloatArray
    total_s: FloatArray
    series: OperatorSeries | None
    start: FloatArray
    lead: Lead | None = None

    @cached_property
    def start_s(self) -> FloatArray:
        """Seconds to drain what waits where the horizon begins, shape (n,)."""
        return _start_seconds(self.deployment, self.start)

    @cached_property
    def mace_s(self) -> FloatArray:
        """Seconds to drain the excess with the capacities that follow, shape (n, d)."""
        return drain_times(self.ce.T, self.deployment.capacities, self.deployment.subinterval_s).T

    @property
    def worst(self) -> float:
        """Mace_WC in seconds, from the horizon's beginning on."""
        return float(max(self.total_s.max(), self.start_s.max(initial=0.0)))

    @cached_property
    def bottleneck(self) -> tuple[int, int] | None:
        """First server and first subinterval (from 0) with the largest Mace; None without servers."""
        if not len(self.worst_s):
            return None
        server = int(self.worst_s.argmax())
        return server, int(self.mace_s[server].argmax())

    @cached_property
    def least_capacity(self) -> FloatArray:
        """Smallest capacity above zero of every server, shape (n,), per second."""
        rows = self.deployment.capacities
        return np.asarray(np.where(rows > 0.0, rows, np.inf).min(axis=0))

    @cached_property
    def load_share(self) -> FloatArray:
        """Load as a share of capacity, shape (n, d); a subinterval without capacity counts as 0."""
        offered = self.deployment.capacities.T * self.deployment.subinterval_s
        return np.divide(self.load, offered, out=np.zeros_like(self.load), where=offered > 0.0)

    @cached_property
    def lambda_s(self) -> FloatArray:
        """Lambda of every server, shape (n,): one event of every input of every operator on it, in seconds."""
        graph, layout = self.deployment.graph, self.deployment.layout
        costs = graph.cycles[:, 1].copy()
        if graph.models:
            costs = self._model_costs(costs)
        reader = np.repeat(np.arange(len(graph.order)), np.diff(graph.in_start))
        per_operator = np.bincount(reader, costs, len(graph.order))
        on_cores = np.bincount(layout.rep_server, per_operator[layout.rep_operator], len(self.worst_s))
        on_link = layout.hop_server >= 0
        on_links = np.bincount(layout.hop_server[on_link], layout.hop_event_bytes[on_link], len(self.worst_s))
        return (on_cores + on_links) / self.least_capacity

    def _model_costs(self, costs: FloatArray) -> FloatArray:
        """Cycles per event of each input; of a model, the largest mean over the subintervals."""
        graph, arrivals = self.deployment.graph, self.deployment.arrivals
        streams = np.vstack([arrivals, self.loads.operators().output])
        linear = (graph.cycles[:, 0] == 0.0) & (graph.cycles[:, 2] == 0.0)
        for k in np.flatnonzero(~linear):
            events = streams[graph.in_stream[k]]
            events = events[events > 0.0]
            spent = np.polynomial.polynomial.polyval(events, graph.cycles[k])
            costs[k] = max(0.0, float((spent / events).max())) if len(events) else 0.0
        return costs

    @property
    def epsilon_s(self) -> float:
        """Epsilon of theorems 2 and 3: lambda summed over all servers."""
        return float(self.lambda_s.sum())

    @cached_property
    def loose_epsilon_s(self) -> FloatArray:
        """Epsilon for other schedulers (section VII-A), shape (d,): load over capacity, summed over the servers."""
        load = np.asfortranarray(self.load)  # a sum is rounded by how its rows lie in memory
        return np.asarray((load / self.least_capacity[:, None]).sum(axis=0))

    @cached_property
    def delays_s(self) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest total delay of the query graph's paths through each server (P_min, P_max), (n,) each."""
        return path_delays(self.deployment)

    @cached_property
    def theorem_limits(self) -> list[Fact]:
        """Reasons why the upper ends of theorems 2 and 3 do not hold; empty where they do.

        Policies are another matter: under others than stimulus time the bound by visits stands in their place.
        """
        limits = []
        sources, servers = _largest_meeting(self)
        if sources > 1 and servers > 1:
            limits.append(Fact("estimation.limited_by_sources", sources=sources, servers=servers))
        if self.delays_s[1].max(initial=0.0) > 0.0:
            limits.append(Fact("estimation.limited_by_links"))
        if not self.has_plain_sums:
            limits.append(Fact("estimation.limited_by_loads"))
        if self.lead is not None:
            limits.append(Fact("estimation.limited_by_backlogs"))
        return limits

    @property
    def has_plain_sums(self) -> bool:
        """Whether every event has a cost of its own, and loads are the sums of these."""
        return not self.deployment.graph.models and self.deployment.combine.kind == "sum"

    @property
    def widening_s(self) -> float:
        """Distance of the upper ends above Mace: w + epsilon."""
        return self.deployment.subinterval_s + self.epsilon_s

    @cached_property
    def upper_s(self) -> FloatArray:
        """Upper end of theorem 3, shape (d,); for nodes scheduled by stimulus time, mean costs, no `theorem_limits`."""
        return self.total_s + self.widening_s

    @cached_property
    def loose_upper_s(self) -> FloatArray:
        """Upper end of section VII-A, shape (d,); it misses that events wait again at every visit of a server."""
        return self.total_s + self.deployment.subinterval_s + self.loose_epsilon_s

    @cached_property
    def delayed_s(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper end with propagation delay (section VII-B), shape (d,) each."""
        shortest, longest = self.delays_s
        if not len(shortest):
            return self.total_s, self.upper_s
        return (self.mace_s + shortest[:, None]).max(axis=0), (self.mace_s + longest[:, None]).max(
            axis=0
        ) + self.widening_s


def _largest_meeting(found: Mace) -> tuple[int, int]:
    """Numbers of the busy sources whose events meet, directly or over others, and of the servers they load together.

    Of the largest such group, one of several sources and several servers before any other.
    """
    layout, above = found.deployment.layout, sources_above(found.deployment)
    busy = set(np.flatnonzero(found.deployment.arrivals.any(axis=1)).tolist())
    loaded = np.asarray(found.load.any(axis=1))
    groups: list[tuple[set[int], set[int]]] = [({u}, set()) for u in sorted(busy)]
    places = [(int(s), int(j)) for s, j in zip(layout.rep_server, layout.rep_operator, strict=True)]
    sent = np.flatnonzero((layout.hop_server >= 0) & (layout.hop_origin >= 0))
    places += [(int(layout.hop_server[h]), int(layout.rep_operator[layout.hop_origin[h]])) for h in sent]
    by_server: dict[int, set[int]] = {}
    for server, operator in places:
        if loaded[server]:
            by_server.setdefault(server, set()).update(above[operator] & busy)
    for server, sources in by_server.items():
        meeting = [group for group in groups if group[0] & sources]
        groups = [group for group in groups if not group[0] & sources]
        if meeting:
            groups.append((set().union(*(g[0] for g in meeting)), {server}.union(*(g[1] for g in meeting))))
    sizes = [(len(sources), len(servers)) for sources, servers in groups]
    return max(sizes, key=lambda size: (min(size) > 1, size), default=(0, 0))


def mace(deployment: Deployment, *, materialise: bool = False, out: FloatArray | None = None) -> Mace:
    """Mace of every server and subinterval.

    Parameters
    ----------
    deployment : Deployment
        n servers, m operators, d subintervals.
    materialise : bool
        Also make the load and output series of every operator, (m, d) each.
    out : array, shape (2, m, d), optional
        Memory for these series, to save the page faults of fresh memory when this is called again and again.

    Returns
    -------
    Mace
        Times in seconds; excess in cycles for cores, bytes for links.

    Raises
    ------
    UnplacedError
        If an operator has no node.

    Notes
    -----
    ce_p = max(0, ce_(p-1) + load_p - C_p w), and ce_0 is the work of what waits where the horizon begins. The
    lower bound on latency is exact for one source or one node only; see docs/models/mace.md for where theorem 2 fails.
    """
    loads = loads_of(deployment)
    rows = deployment.capacities
    ce = loads.excess_room
    lead = lead_of(deployment)
    start = np.zeros(len(deployment.servers)) if lead is None else lead_work(deployment, lead).excess
    worst, total = _excess(loads.by_time, rows, deployment.subinterval_s, start, ce)
    if len(rows) > 1:
        seconds = drain_times(ce, rows, deployment.subinterval_s)
        worst, total = seconds.max(axis=0, initial=0.0), seconds.max(axis=1, initial=0.0)
    if lead is not None:
        worst = np.maximum(worst, _start_seconds(deployment, start))
    series = loads.operators(out) if materialise else None
    return Mace(deployment, loads, loads.by_time.T, ce.T, worst, total, series, start, lead)


def _start_seconds(deployment: Deployment, start: FloatArray) -> FloatArray:
    """Seconds in which every server drains an excess from the horizon's beginning on, (n,)."""
    rows = deployment.capacities
    if len(rows) == 1:
        return np.asarray(start / rows[0])
    rows = np.vstack([rows[:1], rows])  # the excess of a row is drained with the rows that follow
    excess = np.zeros_like(rows)
    excess[0] = start
    return np.asarray(drain_times(excess, rows, deployment.subinterval_s)[0])


@compiled
def _excess(
    load: FloatArray, capacity: FloatArray, w: float, start: FloatArray, ce: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Fill the excess, (d, n), from that at the start; returns its largest seconds per server and per subinterval.

    These are for constant capacities.
    """
    d, n = load.shape
    worst, before, times, total = np.zeros(n), start.copy(), np.zeros(n), np.zeros(d)
    inverse = 1.0 / capacity[0]
    for p in range(d):
        rate = capacity[p if capacity.shape[0] > 1 else 0]
        row = ce[p]
        for i in range(n):
            excess = before[i] + load[p, i] - rate[i] * w
            excess = excess if excess > 0.0 else 0.0
            before[i] = excess
            row[i] = excess
            times[i] = excess * inverse[i]
            worst[i] = worst[i] if worst[i] > times[i] else times[i]
        # Four maxima side by side: one alone would wait for itself at every step.
        a = b = c = e = 0.0
        for i in range(0, n - n % 4, 4):
            a, b = max(a, times[i]), max(b, times[i + 1])
            c, e = max(c, times[i + 2]), max(e, times[i + 3])
        for i in range(n - n % 4, n):
            a = max(a, times[i])
        total[p] = max(max(a, b), max(c, e))
    return worst, total


def drain_times(ce: FloatArray, rows: FloatArray, w: float) -> FloatArray:
    """Seconds to drain an excess (d, n) with the capacities that follow, (d, n)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = ce / rows[0]
    for i in np.flatnonzero((rows != rows[0]).any(axis=0)):
        seconds[:, i] = _drain(np.ascontiguousarray(ce[:, i]), np.ascontiguousarray(rows[:, i]), w)
    return np.asarray(seconds)


@compiled
def _drain(ce: FloatArray, capacity: FloatArray, w: float) -> FloatArray:
    """Seconds to drain ce_p with the capacities of p+1, p+2 ..., the last of which holds for ever."""
    d = len(ce)
    done = np.cumsum(capacity) * w
    seconds = np.zeros(d)
    for p in range(d):
        if ce[p] <= 0.0:
            continue
        target = done[p] + ce[p]
        q = p + 1 + np.searchsorted(done[p + 1 :], target)
        reached = done[min(q, d) - 1]
        rate = capacity[min(q, d - 1)]
        seconds[p] = (q - 1 - p) * w + (target - reached) / rate
    return seconds
