"""A deployment as stations, queues, edges and targets, with the cost and outputs of an event at each input."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.document.backlog import InputBacklog
from engine.document.deployment import Deployment
from engine.document.elements import WINDOW_END, Input, Operator
from engine.estimation.loads import loads_of
from engine.estimation.waits.clocks import closes, is_event_time, sources_above, watermark_delays
from engine.estimation.waits.holds import BUFFER_BYTES
from engine.simulation.rows import (
    BATCH,
    BATCHED,
    BUFFER,
    CLOCK,
    COUNT,
    EDGE,
    HOLD,
    PIPE,
    QUEUE,
    SERVER,
    STATION,
    TARGET,
    WATERMARK,
    Rows,
)

__all__ = [
    "MAX_PATHS",
    "HoldLayout",
    "InputWork",
    "OperatorHolds",
    "SimulationLayout",
    "capacities",
    "lay_out",
    "lay_out_holds",
    "work_of",
]


@dataclass(frozen=True, slots=True)
class OperatorHolds:
    """Holds of one operator by their number, -1 for none; whether it is told of time by markers, and tells on."""

    window: int = -1
    buffer: int = -1
    batch: int = -1
    listens: bool = False
    tells: bool = False


@dataclass(frozen=True, slots=True)
class HoldLayout:
    """Tables of holds; `queue` of a hold counts from the first queue after those of stations.

    `members` are the windows of batches, one batch after the other. `marks`, shape (holds, sources), is the latest time
    seen of every source, infinite of those that a hold does not wait for.
    """

    holds: Rows
    batches: Rows
    members: Rows
    marks: Rows
    of: tuple[OperatorHolds, ...]


def lay_out_holds(deployment: Deployment, *, phase_s: float, seed: int) -> HoldLayout:
    """Holds of a deployment whose horizon begins `phase_s` after a multiple of all periods.

    Where in its timeout each buffer begins is drawn.
    """
    builder = _HoldBuilder(deployment, phase_s, np.random.default_rng([seed, 1]))
    batches = {key: builder.add_batch(operator) for key, operator in builder.batched().items()}
    needed = builder.told_of_time()
    of = tuple(builder.add_operator(j, batches, needed) for j in range(len(deployment.operators)))
    return builder.tables(of)


class _HoldBuilder:
    def __init__(self, deployment: Deployment, phase_s: float, rng: np.random.Generator) -> None:
        self._deployment, self._phase_s, self._rng = deployment, phase_s, rng
        self._holds: list[dict[str, float]] = []
        self._batches: list[dict[str, float]] = []
        self._windows: list[list[int]] = []
        self._marks: list[np.ndarray] = []
        self._above, self._delays_s = sources_above(deployment), watermark_delays(deployment)

    def batched(self) -> dict[tuple[object, object], Operator]:
        """One operator of all that run in the same micro-batches."""
        return {(op.query, op.trigger): op for op in self._deployment.operators if op.trigger}

    def told_of_time(self) -> list[bool]:
        """Whether an operator has windows by event time, or such behind it."""
        deployment, graph = self._deployment, self._deployment.graph
        needed = [is_event_time(operator) for operator in deployment.operators]
        for j in graph.order[::-1]:
            if needed[j]:
                for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]] - len(deployment.sources):
                    if stream >= 0:
                        needed[stream] = True
        return needed

    def add_batch(self, operator: Operator) -> int:
        trigger, number = operator.trigger, len(self._batches)
        assert trigger is not None
        gate, leaving = (self._add(kind=BATCHED, batch=number) for _ in range(2))
        row = {"interval_s": trigger.interval_s, "overhead_s": trigger.overhead_s or 0.0, "phase_s": self._phase_s}
        self._batches.append({**row, "gate": gate, "exit": leaving})
        self._windows.append([])
        return number

    def add_operator(self, j: int, batches: dict[tuple[object, object], int], needed: list[bool]) -> OperatorHolds:
        operator, graph, sources = self._deployment.operators[j], self._deployment.graph, len(self._deployment.sources)
        readers = np.flatnonzero(graph.in_stream == sources + j)
        tells = any(needed[i] for i in np.searchsorted(graph.in_start, readers, side="right") - 1)
        batch = batches.get((operator.query, operator.trigger), -1)
        window = self._add_window(j, operator, batch) if closes(operator) else -1
        if window >= 0 and batch >= 0:
            self._windows[batch].append(window)
        buffer = self._add_buffer(operator) if operator.buffer_timeout_s and len(readers) else -1
        return OperatorHolds(window, buffer, batch, needed[j], tells)

    def _add_window(self, j: int, operator: Operator, batch: int) -> int:
        window = operator.window
        assert window is not None
        common: dict[str, Any] = {"batch": batch, "restarts": int(window.measured_from == WINDOW_END)}
        if window.policy == "count":
            return self._add(kind=COUNT, size=window.period, **common)
        timed: dict[str, Any] = {"period_s": window.period, "phase_s": self._phase_s, **common}
        if not is_event_time(operator):
            return self._add(kind=CLOCK, **timed)
        delay_s = float(self._delays_s[j]) + (window.allowed_lateness_s or 0.0)
        return self._add(kind=WATERMARK, delay_s=delay_s, waits_for=self._above[j], **timed)

    def _add_buffer(self, operator: Operator) -> int:
        timeout_s, size = operator.buffer_timeout_s or 0.0, operator.bytes_per_event
        readers = [op for op in self._deployment.operators if any(e.source == operator.id for e in op.inputs)]
        channels = len(operator.replicas) * max(len(reader.replicas) for reader in readers)
        phase_s = float(self._rng.random()) * timeout_s
        full = BUFFER_BYTES * channels if size > 0.0 else 0.0
        return self._add(kind=BUFFER, period_s=timeout_s, phase_s=phase_s, size=full, delay_s=size)

    def _add(self, *, waits_for: set[int] | None = None, **fields: float) -> int:
        sources = self._deployment.sources
        self._holds.append({"batch": -1, **fields})
        wanted = [u in (waits_for or ()) and bool(source.arrivals.any()) for u, source in enumerate(sources)]
        self._marks.append(np.where(wanted, -np.inf, np.inf))
        return len(self._holds) - 1

    def tables(self, of: tuple[OperatorHolds, ...]) -> HoldLayout:
        holds, batches = np.zeros(len(self._holds), HOLD), np.zeros(len(self._batches), BATCH)
        for rows, listed in ((holds, self._holds), (batches, self._batches)):
            for row, fields in zip(rows, listed, strict=True):
                for name, value in fields.items():
                    row[name] = value
        holds["queue"], holds["watermark"] = np.arange(len(holds)), -np.inf
        ends = np.cumsum([len(windows) for windows in self._windows], dtype=np.int64)
        if len(batches):
            batches["last_window"] = ends
            batches["first_window"] = np.concatenate([[0], ends[:-1]])
        members = np.array([hold for windows in self._windows for hold in windows], np.int64)
        marks = np.array(self._marks).reshape(len(holds), len(self._deployment.sources))
        return HoldLayout(holds, batches, members, marks, of)


MAX_PATHS = 64  # beyond so many source paths an operator keeps one queue per input


@dataclass(frozen=True, slots=True)
class InputWork:
    """Cost and yield of events; the second axis is 1 or the number of subintervals."""

    cycles: FloatArray
    """Cycles per event, shape (inputs, 1 or d)."""
    selectivity: FloatArray
    """Outputs per event, shape (inputs, 1 or d)."""
    factor: FloatArray
    """Factor of all work on a server by the load combination, shape (servers, 1 or d)."""
    events: FloatArray
    """Events expected at each input over the whole horizon, shape (inputs,)."""
    outputs: FloatArray
    """What they are expected to put out, shape (inputs,)."""


def work_of(deployment: Deployment) -> InputWork:
    """Costs and yields of all inputs, numbered operator by operator.

    Non-linear models and load combinations depend on how many events belong to a subinterval: each event of it takes an
    equal share of what the model gives for their expected number.
    """
    entries = [entry for operator in deployment.operators for entry in operator.inputs]
    width = deployment.subintervals if any(entry.model for entry in entries) else 1
    cycles, selectivity = np.zeros((len(entries), width)), np.zeros((len(entries), width))
    arrived = np.zeros((len(entries), deployment.subintervals))
    output = {source.id: np.asarray(source.arrivals) for source in deployment.sources}
    first = np.cumsum([0] + [len(operator.inputs) for operator in deployment.operators])
    for i in deployment.order:
        emitted = np.zeros(deployment.subintervals)
        for port, entry in enumerate(deployment.operators[i].inputs, start=int(first[i])):
            arrived[port] = output[entry.source]
            cycles[port], selectivity[port] = _per_event(entry, arrived[port], width)
            emitted += arrived[port] * selectivity[port]
        output[deployment.operators[i].id] = emitted
    factors = loads_of(deployment).work_factors
    factor = np.ones((len(deployment.servers), 1)) if factors is None else np.ascontiguousarray(factors.T)
    return InputWork(cycles, selectivity, factor, arrived.sum(axis=1), (arrived * selectivity).sum(axis=1))


def capacities(deployment: Deployment) -> FloatArray:
    """Capacity of every server, cycles/s or bytes/s, shape (servers, 1 or d)."""
    varies = any(node.capacity_series_cps is not None for node in deployment.nodes)
    rows = np.empty((len(deployment.servers), deployment.subintervals if varies else 1))
    for i, server in enumerate(deployment.servers):
        if server.link is not None:
            rows[i] = deployment.links[server.link].bandwidth_bytes_s
        elif server.node is not None:
            node = deployment.nodes[server.node]
            rows[i] = node.capacity_cps if node.capacity_series_cps is None else node.capacity_series_cps
    return rows


def _per_event(entry: Input, events: FloatArray, width: int) -> tuple[FloatArray, FloatArray]:
    if entry.model is None:
        return np.full(width, entry.cycles_per_event), np.full(width, entry.selectivity)
    some = np.maximum(events, 1e-300)
    present = events > 0
    cycles = np.where(present, np.maximum(0.0, np.polyval(entry.model.cycles[::-1], events)) / some, 0.0)
    outputs = np.where(present, np.maximum(0.0, np.polyval(entry.model.output[::-1], events)) / some, 0.0)
    return cycles, outputs


@dataclass(frozen=True, slots=True)
class SimulationLayout:
    """The static tables of a simulation; rows as in `engine.simulation.rows`."""

    stations: Rows
    queues: Rows
    servers: Rows
    edges: Rows
    targets: Rows
    pipes: Rows
    source_edges: Rows
    """Edges of every source, and of every input at which events wait where the horizon begins."""
    inputs: int
    queue_counts: Rows
    """FIFO queues of each station, shape (stations,)."""
    holds: HoldLayout
    """What holds events up; its queues are the last ones."""


_NO_HOLDS = OperatorHolds()


@dataclass(slots=True)
class _Station:
    server: int
    operator: int
    queues: int
    link_bytes: float = -1.0
    pipe: int = -1
    edges: tuple[int, int] = (0, 0)
    holds: OperatorHolds = _NO_HOLDS


class _Builder:
    """Collects rows; stations are numbered in order of creation first, by server at the end."""

    def __init__(self, deployment: Deployment, by_path: bool, holds: HoldLayout) -> None:
        self.deployment = deployment
        self.holds = holds
        self.by_path = by_path
        self.stations: list[_Station] = []
        self.edges: list[tuple[int, int, int, int, int]] = []
        self.targets: list[tuple[float, int, int, int, int]] = []
        self.replicas: dict[tuple[int, int], int] = {}
        self.crossings: dict[tuple[int, int, int], int] = {}
        self.link_of = {(link.source, link.target): i for i, link in enumerate(deployment.links)}
        self.node_servers = {(s.node, s.core): i for i, s in enumerate(deployment.servers) if s.node is not None}
        self.link_servers = {s.link: i for i, s in enumerate(deployment.servers) if s.link is not None}
        delayed = [i for i, link in enumerate(deployment.links) if link.delay_s > 0]
        self.pipe_of = {link: pipe for pipe, link in enumerate(delayed)}
        self.number_inputs()
        self.count_paths()

    def number_inputs(self) -> None:
        """Readers of a source or operator: (operator, input of it, number of that input over all operators)."""
        self.readers: dict[str, list[tuple[int, int, int]]] = {}
        self.inputs = 0
        for i, operator in enumerate(self.deployment.operators):
            for port, entry in enumerate(operator.inputs):
                self.readers.setdefault(entry.source, []).append((i, port, self.inputs))
                self.inputs += 1

    def count_paths(self) -> None:
        """`first_slots[operator][input]` and whether upstream paths stay apart on that input."""
        paths = {source.id: 1 for source in self.deployment.sources}
        self.first_slots: dict[int, list[int]] = {}
        self.keeps: dict[int, bool] = {}
        self.queue_counts: dict[int, int] = {}
        for i in self.deployment.order:
            operator = self.deployment.operators[i]
            upstream = [paths[entry.source] for entry in operator.inputs]
            keeps = self.by_path and sum(upstream) <= MAX_PATHS
            widths = upstream if keeps else [int(self.by_path)] * len(upstream)
            self.first_slots[i] = [sum(widths[:port]) for port in range(len(widths))]
            self.keeps[i] = keeps
            self.queue_counts[i] = paths[operator.id] = max(1, sum(widths))

    def add_replicas(self) -> None:
        for i, operator in enumerate(self.deployment.operators):
            for r, replica in enumerate(operator.replicas):
                server = self.node_servers[self.deployment.node_index[replica.node], replica.core]
                self.replicas[i, r] = len(self.stations)
                self.stations.append(_Station(server, i, self.queue_counts[i], holds=self.holds.of[i]))

    def add_entry(self, waiting: InputBacklog) -> tuple[int, int]:
        """The edge into one input, of events that wait there already; returns its range."""
        reader = self.deployment.operator_index[waiting.operator]
        port = next(port for entries in self.readers.values() for i, port, k in entries if k == waiting.number)
        start = len(self.targets)
        for r, replica in enumerate(self.deployment.operators[reader].replicas):
            self.targets.append((replica.fraction, 0, self.replicas[reader, r], -1, -1))
        slot = self.first_slots[reader][port]
        self.edges.append((waiting.number, slot, int(self.keeps[reader]), start, len(self.targets)))
        return len(self.edges) - 1, len(self.edges)

    def add_edges(self, emitter: str, operator: int | None, node: str | None) -> tuple[int, int]:
        """Edges of a source (no operator, no node) or of one replica of an operator; returns their range."""
        first = len(self.edges)
        for reader, port, number in self.readers.get(emitter, []):
            start = len(self.targets)
            for r, replica in enumerate(self.deployment.operators[reader].replicas):
                via, pipe = self.way(operator, node, replica.node, reader, number)
                self.targets.append((replica.fraction, 0, self.replicas[reader, r], via, pipe))
            slot = self.first_slots[reader][port]
            self.edges.append((number, slot, int(self.keeps[reader]), start, len(self.targets)))
        return first, len(self.edges)

    def way(self, operator: int | None, start: str | None, end: str, reader: int, number: int) -> tuple[int, int]:
        """Link station and pipe between two nodes; -1 where there is none."""
        link = self.link_of.get((start, end), -1) if start is not None and start != end else -1
        if operator is None or link < 0:
            return -1, -1
        pipe = self.pipe_of.get(link, -1)
        if self.deployment.links[link].bandwidth_bytes_s is None:
            return -1, pipe
        key = (link, operator, number)
        if key not in self.crossings:
            self.crossings[key] = len(self.stations)
            size_bytes = self.deployment.operators[operator].bytes_per_event
            server = self.link_servers[link]
            self.stations.append(_Station(server, operator, self.queue_counts[reader], size_bytes, pipe))
        return self.crossings[key], -1


def lay_out(deployment: Deployment, *, by_path: bool, phase_s: float = 0.0, seed: int = 0) -> SimulationLayout:
    """Lay a placed deployment out in tables.

    Parameters
    ----------
    deployment : Deployment
    by_path : bool
        One FIFO per source path in every operator queue (stimulus time needs it), or a single FIFO.
    phase_s : float
        How long after a multiple of all periods of windows and triggers the horizon begins.
    seed : int
        Seed of where buffers begin.
    """
    builder = _Builder(deployment, by_path, lay_out_holds(deployment, phase_s=phase_s, seed=seed))
    builder.add_replicas()
    source_edges = [builder.add_edges(source.id, None, None) for source in deployment.sources]
    source_edges += [builder.add_entry(found) for found in deployment.backlogs if found.is_used]
    for i, operator in enumerate(deployment.operators):
        for r, replica in enumerate(operator.replicas):
            builder.stations[builder.replicas[i, r]].edges = builder.add_edges(operator.id, i, replica.node)
    return _tables(builder, source_edges)


def _tables(builder: _Builder, source_edges: list[tuple[int, int]]) -> SimulationLayout:
    """Number the stations server by server and turn the collected rows into arrays."""
    listed = sorted(range(len(builder.stations)), key=lambda s: builder.stations[s].server)
    number = np.empty(len(listed) + 1, np.int32)
    number[listed] = np.arange(len(listed))
    number[-1] = -1  # so that "no link station" stays -1
    ordered = [builder.stations[s] for s in listed]
    counts = np.array([station.queues for station in ordered], np.int32)
    first_queue = np.cumsum(counts) - counts
    stations = np.array(
        [
            (s.link_bytes, s.server, s.operator, *s.edges, queue, s.pipe, 0, *astuple(s.holds))
            for s, queue in zip(ordered, first_queue, strict=True)
        ],
        STATION,
    )
    targets = np.array(builder.targets, TARGET)
    targets["station"] = number[targets["station"]]
    targets["via"] = number[targets["via"]]
    servers = np.zeros(len(builder.deployment.servers), SERVER)
    servers["event"] = servers["station"] = -1
    bounds = np.searchsorted(stations["server"], np.arange(len(servers) + 1))
    servers["first_station"], servers["last_station"] = bounds[:-1], bounds[1:]
    holds = builder.holds
    holds.holds["queue"] += counts.sum()
    queues = np.full(int(counts.sum()) + len(holds.holds), -1, np.int32)
    return SimulationLayout(
        stations=stations,
        queues=np.array(list(zip(queues, queues, strict=True)), QUEUE),
        servers=servers,
        edges=np.array(builder.edges, EDGE),
        targets=targets,
        pipes=np.array([(builder.deployment.links[link].delay_s, -1, -1) for link in builder.pipe_of], PIPE),
        source_edges=np.array(source_edges, np.int32).reshape(-1, 2),
        inputs=builder.inputs,
        queue_counts=counts,
        holds=holds,
    )
