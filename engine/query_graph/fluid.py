"""Fluid of a placement: rates, waits and latencies with the costs of the table, where hosts and links are scarce.

Flow in closed form, for arrivals that do not vary over a run: sources are held back until no host, no operator's thread
and no uplink has more to do than it can; what they do not take waits at the broker, so that results age as the run goes
on; queues before what is short are full. Nothing in it is learned. Formulas: docs/models/costream.md, "The fluid".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.query_graph.costs import SERIALIZE, SERIALIZE_BYTE, OperatorCycles, evaluations_of, operator_cost
from engine.query_graph.flow import BYTES_PER_MBIT, MIN_RATE_EPS, nominal_flow, operator_flow
from engine.query_graph.graph import OPERATOR_KINDS, REFERENCE_CORE_CPS, HostNode, OperatorNode, QueryGraph
from engine.query_graph.processors import STREAM_PROCESSORS, StreamProcessor

__all__ = ["NO_FACTORS", "RUN_S", "Fluid", "fluid_of"]

#: Seconds of a run: that of a simulated run, and of an observed stretch.
RUN_S: Final = 240.0

_BACKLOG_SHARE = 0.02  # of arrivals that stay at the broker, from which on there is back-pressure (definition 4)
_BURST = 0.5  # of the work of an evaluation, before its mean result
_ROUNDS = 16  # of holding sources back
_FITS = 1.001  # times too much that counts as fitting
_FULL = 0.95  # use by what is left, from which on queues are full
_BUSY = 0.9  # use up to which tuples wait as in a queue that is not full
_KEPT_BYTES = 4300.0  # of a tuple in a window, twice that in a join
_SYSTEM_BYTES, _HEAP_SHARE = 250e6, 0.6  # of a host's memory: what no tuple can have, and how far the rest may fill
_MIN, _MAX_LOGIT = 1e-9, 3.0

#: Factors on the cost table where no execution has shown others.
NO_FACTORS: Final[Mapping[str, float]] = MappingProxyType(dict.fromkeys(OPERATOR_KINDS, 1.0))


@dataclass(frozen=True)
class Fluid:
    """Fluid of k placements; arrays of shape (k,) unless said otherwise.

    Attributes
    ----------
    costs
        (k, 3): ln of throughput (tuples/s), processing and end-to-end latency (s).
    taken
        Least share of its arrivals that a source takes; 1 where nothing is short.
    host_use, thread_use, link_use, memory_use
        Largest use of a host's CPU, of a core by an operator, of an uplink and of a memory, were no source held back.
    way_s, service_s, burst_s, queue_s, broker_s
        Longest way: links and the filling of windows; cycles of a tuple, with waits for what is busy; work of
        evaluations; full queues; the mean
        wait at the broker.
    results
        Tuples at the sinks in a run.
    """

    costs: FloatArray
    taken: FloatArray
    host_use: FloatArray
    thread_use: FloatArray
    link_use: FloatArray
    memory_use: FloatArray
    way_s: FloatArray
    service_s: FloatArray
    burst_s: FloatArray
    queue_s: FloatArray
    broker_s: FloatArray
    results: FloatArray

    @property
    def use(self) -> FloatArray:
        """Largest use of a host, a thread or an uplink; above 1 something is short."""
        return np.maximum(np.maximum(self.host_use, self.thread_use), self.link_use)

    @property
    def backpressure(self) -> FloatArray:
        """Logit of back-pressure: ln of the share that stays at the broker over the one that may."""
        return _logit(np.log(np.maximum(1.0 - self.taken, _MIN) / _BACKLOG_SHARE))

    @property
    def success(self) -> FloatArray:
        """Logit of success: ln of the expected results over ln 2, at most -2 ln of the use of memory."""
        by_results = np.log(np.maximum(self.results, _MIN) / np.log(2.0))
        return _logit(np.minimum(by_results, -2.0 * np.log(np.maximum(self.memory_use, _MIN))))


def _logit(values: FloatArray) -> FloatArray:
    clipped: FloatArray = np.clip(values, -_MAX_LOGIT, _MAX_LOGIT)
    return clipped


def fluid_of(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    placements: IntArray,
    factors: Mapping[str, float] = NO_FACTORS,
    processor: StreamProcessor | None = None,
) -> Fluid:
    """The fluid of placements, whole numbers of shape (k, n): host of each operator.

    Parameters
    ----------
    factors
        On the costs of the query's stream processor, per kind of operator.
    processor
        Record in the place of that of the query's stream processor, for who fits one.

    Examples
    --------
    >>> from engine.query_graph.graph import OperatorNode
    >>> source = OperatorNode("source", 6, 6, rate_eps=400, n_int=6)
    >>> graph = QueryGraph((source, OperatorNode("sink", 6, 6)), ((0, 1),))
    >>> hosts = [HostNode(10, 4000, 1000, 0.001, 0), HostNode(200, 4000, 1000, 0.001, 1)]
    >>> fluid_of(graph, hosts, np.array([[0, 0], [1, 1]])).taken.round(2).tolist()
    [0.75, 1.0]
    """
    return _FluidRun(graph, hosts, placements, factors, processor or STREAM_PROCESSORS[graph.processor]).fluid()


@dataclass(frozen=True)
class _Rates:
    """Tuples/s in, out and scanned, tuples in windows, seconds of filling, evaluations/s; each (n, k)."""

    entering: FloatArray
    leaving: FloatArray
    scanned: FloatArray
    kept: FloatArray
    fill_s: FloatArray
    evaluations: FloatArray


class _FluidRun:
    """k placements of n operators on h hosts; arrays are (n, k) or (h, k), so that an operator is one row."""

    def __init__(
        self,
        graph: QueryGraph,
        hosts: Sequence[HostNode],
        placements: IntArray,
        factors: Mapping[str, float],
        processor: StreamProcessor,
    ) -> None:
        self.graph, self.places = graph, np.ascontiguousarray(np.asarray(placements, dtype=np.int64).T)
        self.processor = processor
        n, k = self.places.shape
        self.cells = (self.places * k + np.arange(k)).ravel()
        kind_factors = {kind: factors[kind] * processor.factors[kind] for kind in OPERATOR_KINDS}
        self.costs = [_times(operator_cost(op), kind_factors[op.kind]) for op in graph.operators]
        self.quota = np.array([host.cpu_percent for host in hosts]) / 100.0 * REFERENCE_CORE_CPS
        self.speed = np.minimum(self.quota, REFERENCE_CORE_CPS)[self.places]  # of a thread, cycles/s
        self.pace = np.full_like(self.speed, REFERENCE_CORE_CPS) if processor.is_full_speed else self.speed
        self.links = np.array([host.bandwidth_mbit_s for host in hosts]) * BYTES_PER_MBIT
        self.latency_s = np.array([host.latency_s for host in hosts])
        memory = np.array([host.ram_mb for host in hosts]) * 1e6
        self.memory = _HEAP_SHARE * np.maximum(memory - _SYSTEM_BYTES, 0.25 * memory)
        self.bytes = nominal_flow(graph).out_bytes
        self.away = {(a, b): (self.places[a] != self.places[b]).astype(np.float64) for a, b in graph.edges}
        self.handed = {edge: self._handed(edge[1], away) for edge, away in self.away.items()}
        sends, copies = (
            np.zeros((n, k)),
            np.zeros((n, k)),
        )  # readers on other hosts, and those that a tuple is copied for
        for (a, b), away in self.away.items():
            sends[a] += away
            copies[a] += self.handed[a, b] if processor.is_chained else away
        self.wire = sends * self.bytes[:, None]  # bytes that a tuple out takes of the uplink
        of_kind = np.array([factors[op.kind] for op in graph.operators]) * processor.send_factor
        make = np.array([cost.make for cost in self.costs])
        # cycles of a tuple that goes out, with its way to other threads and hosts
        self.make = make[:, None] + of_kind[:, None] * copies * (SERIALIZE + SERIALIZE_BYTE * self.bytes[:, None])

    def fluid(self) -> Fluid:
        """Hold sources back until everything fits, then follow the ways."""
        taken = np.ones(self.places.shape)
        rates = self._rates(taken)
        doubled = np.array([2.0 if op.kind == "join" else 1.0 for op in self.graph.operators])
        memory = self._per_host(rates.kept * (_KEPT_BYTES * doubled)[:, None]) / self.memory[:, None]
        host, thread, link = uses = self._uses(rates)
        # results of joins by time grow with the product of their rates: held back in full, too little would be left
        degree = 1 + sum(op.kind == "join" and op.window_policy == "time" for op in self.graph.operators)
        for _ in range(_ROUNDS):
            held = self._upstream(self._over(host, thread, link))
            if not (held > _FITS).any():
                break
            for i, inputs in enumerate(self.graph.inputs):
                if not inputs:
                    taken[i] /= np.maximum(held[i], 1.0) ** (1.0 / degree)
            rates = self._rates(taken)
            host, thread, link = self._uses(rates)
        is_held = self._downstream(1.0 - taken) > _MIN
        pressed = is_held & (self._upstream(self._over(host, thread, link)) >= _FULL)
        # sojourn over service at use rho, work of one size: 1 + rho / (2·(1 - rho)) (Pollaczek and Khinchine)
        use = np.minimum(np.maximum(thread, np.take_along_axis(host, self.places, axis=0)), _BUSY)
        sojourn = 1.0 + 0.5 * use / (1.0 - use)
        clogged = is_held & (np.take_along_axis(link, self.places, axis=0) >= _FULL)
        full = {(a, b): pressed[b] | (clogged[a] & (away > 0.0)) for (a, b), away in self.away.items()}
        return self._ways(rates, taken, full, sojourn, [use.max(axis=0) for use in (*uses, memory)])

    def _rates(self, taken: FloatArray) -> _Rates:
        """Rates where sources take these shares of what arrives."""
        rows = np.zeros((6, *taken.shape))
        for i in self.graph.order:
            op, inputs = self.graph.operators[i], self.graph.inputs[i]
            for row, value in enumerate(operator_flow(op, [rows[1, a] for a in inputs], op.rate_eps * taken[i])):
                rows[row, i] = value
            rows[5, i] = evaluations_of(op, rows[0, i], len(inputs))
            if self.processor.counts_together and op.kind == "join" and op.window_policy == "count":
                rows[1, i], rows[4, i] = self._joined(op, rows[5, i], [(rows[1, a], self.bytes[a]) for a in inputs])
        return _Rates(*rows)

    def _joined(
        self, op: OperatorNode, evaluations: FloatArray, inputs: Sequence[tuple[FloatArray, float]]
    ) -> tuple[FloatArray, FloatArray]:
        """Tuples/s out and seconds of filling of a join whose windows hold W = 2·size tuples of both inputs.

        Notes
        -----
        Well mixed, W²·p·(1 - p) pairs are compared where p come from one side. But tuples come by buffers: in runs of L
        = in / (2·least buffers/s of a side) from one side. A window that is shorter meets an end of a run in W/L of
        cases, wherever within it: W³/(6·L) pairs. Harmonic sum of both.
        """
        rates = [np.maximum(rate, MIN_RATE_EPS) for rate, _ in inputs]
        total: FloatArray = rates[0] + rates[1]
        width = 2.0 * op.window_size
        per_buffer = [
            np.maximum(rate * self._fill_s(rate, size), 1.0) for rate, (_, size) in zip(rates, inputs, strict=True)
        ]
        switches = 2.0 * np.minimum.reduce([rate / tuples for rate, tuples in zip(rates, per_buffer, strict=True)])
        mixed = width**2 * rates[0] * rates[1] / total**2
        in_runs = width**3 * switches / (6.0 * total)
        return evaluations * op.selectivity / (1.0 / mixed + 1.0 / in_runs), width / total

    def _handed(self, reader: int, away: FloatArray) -> FloatArray:
        """1 where tuples go to another thread, by a queue or a buffer; 0 within a chain, (k,)."""
        is_head = not self.processor.is_chained or self.graph.operators[reader].kind in ("agg", "join")
        return np.ones_like(away) if is_head else away

    def _fill_s(self, rate: FloatArray, size: float) -> FloatArray:
        """Seconds from a buffer's first tuple until it is sent: full, or at the latest after the timeout."""
        full_s = self.processor.buffer_bytes / np.maximum(rate * size, MIN_RATE_EPS)
        return np.minimum(full_s, self.processor.buffer_timeout_s)

    def _uses(self, rates: _Rates) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Use of hosts (h, k), of a thread's core (n, k) and of uplinks (h, k)."""
        take, scan, evaluate = (
            np.array([getattr(cost, name) for cost in self.costs])[:, None] for name in ("take", "scan", "evaluate")
        )
        cycles = take * rates.entering + self.make * rates.leaving + scan * rates.scanned + evaluate * rates.evaluations
        sent = self._per_host(rates.leaving * self.wire)
        host = self._per_host(cycles) / self.quota[:, None]
        return host, self._of_threads(cycles) / self.speed, sent / self.links[:, None]

    def _of_threads(self, cycles: FloatArray) -> FloatArray:
        """Cycles/s of the thread that runs each operator, (n, k): those of its whole chain."""
        if not self.processor.is_chained:
            return cycles
        heads = np.tile(np.arange(len(cycles))[:, None], cycles.shape[1])
        for i in self.graph.order:
            for a in self.graph.inputs[i]:
                heads[i] = np.where(self.handed[a, i] > 0.0, heads[i], heads[a])
        cells = (heads * cycles.shape[1] + np.arange(cycles.shape[1])).ravel()
        return np.bincount(cells, cycles.ravel(), minlength=cycles.size)[cells].reshape(cycles.shape)

    def _per_host(self, values: FloatArray) -> FloatArray:
        """Sums by host, (h, k)."""
        h, k = len(self.quota), values.shape[1]
        return np.bincount(self.cells, values.ravel(), minlength=h * k).reshape(h, k).astype(np.float64, copy=False)

    def _over(self, host: FloatArray, thread: FloatArray, link: FloatArray) -> FloatArray:
        """Times too much that is asked of each operator, (n, k); a host that is short holds up its busiest one."""
        busiest = np.zeros(host.size)
        np.maximum.at(busiest, self.cells, (thread * self.speed).ravel())
        own = np.take_along_axis(host, self.places, axis=0)
        is_busiest = (thread * self.speed).ravel() >= busiest[self.cells] * (1.0 - _MIN)
        over = np.maximum(thread, np.where(is_busiest.reshape(own.shape), own, 0.0))
        return np.maximum(over, np.where(self.wire > 0.0, np.take_along_axis(link, self.places, axis=0), 0.0))

    def _upstream(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The greatest value of each operator and of all that it leads to."""
        held = values.copy()
        for i in reversed(self.graph.order):
            for a in self.graph.inputs[i]:
                np.maximum(held[a], held[i], out=held[a])
        return held

    def _downstream(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The greatest value of each operator and of all that leads to it."""
        held = values.copy()
        for i in self.graph.order:
            for a in self.graph.inputs[i]:
                np.maximum(held[i], held[a], out=held[i])
        return held

    def _ways(
        self,
        rates: _Rates,
        taken: FloatArray,
        full: Mapping[tuple[int, int], npt.NDArray[np.bool_]],
        sojourn: FloatArray,
        uses: Sequence[FloatArray],
    ) -> Fluid:
        """Latencies along the longest ways; `full` says of streams where queues are full, `sojourn` is over service."""
        parts = np.zeros((5, *taken.shape))  # way, service, bursts, queues, broker
        processor = self.processor
        for i in self.graph.order:
            op, cost, inputs = self.graph.operators[i], self.costs[i], self.graph.inputs[i]
            for a in inputs:
                away, handed = self.away[a, i], self.handed[a, i]
                leaving = np.maximum(rates.leaving[a], MIN_RATE_EPS)
                queue = processor.queue_tuples / np.maximum(rates.entering[i], MIN_RATE_EPS)
                queue = queue + away * processor.sent_tuples / leaving
                buffers = handed * (processor.buffers + away * processor.sent_buffers)
                queue = queue + buffers * processor.buffer_bytes / (leaving * self.bytes[a])
                along = parts[:, a].copy()
                along[0] += np.where(
                    away > 0.0, self.latency_s[self.places[a]] + processor.remote_hop_s, processor.hop_s
                )
                # a tuple comes at any time of its buffer's filling, and is there when the whole buffer is
                fill_s = self._fill_s(leaving, self.bytes[a])
                along[0] += handed * fill_s / 2.0 + away * fill_s * leaving * self.bytes[a] / self.links[self.places[a]]
                along[3] += np.where(full[a, i], queue, 0.0)
                np.maximum(parts[:, i], along, out=parts[:, i])
            if not inputs:
                parts[4, i] = (1.0 - taken[i]) * RUN_S / 2.0  # what comes out at time t came at taken·t: mean of a run
            parts[0, i] += rates.fill_s[i]
            parts[1, i] += sojourn[i] * (cost.take + self.make[i]) / self.pace[i]
            if op.window_policy:
                results = rates.leaving[i] / np.maximum(rates.evaluations[i], MIN_RATE_EPS)
                scanned = rates.scanned[i] / np.maximum(rates.evaluations[i], MIN_RATE_EPS)
                work = cost.evaluate + cost.scan * scanned + self.make[i] * results
                parts[2, i] += _BURST * work / self.pace[i]
        sinks = list(self.graph.sinks)
        way, service, burst, queue, broker = parts[:, sinks].max(axis=1)
        plain = way + service + burst
        # queues hold no more than what sources took too much of
        costs = plain + np.minimum(queue, broker), plain + processor.poll_s + broker
        throughput = np.maximum(rates.entering[sinks].sum(axis=0), MIN_RATE_EPS)
        least = taken[[i for i, inputs in enumerate(self.graph.inputs) if not inputs]].min(axis=0)
        logs = np.log(np.stack([throughput, *costs], axis=1))
        host, thread, link, memory = uses
        results = throughput * RUN_S
        return Fluid(logs, least, host, thread, link, memory, way, service, burst, queue, broker, results)


def _times(cost: OperatorCycles, factor: float) -> OperatorCycles:
    return OperatorCycles(cost.take * factor, cost.make * factor, cost.scan * factor, cost.evaluate * factor)
