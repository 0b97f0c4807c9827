"""Cohort simulation: costs of a streaming query on a placement, from a run of 240 s in 50 ms steps.

A run is what a user would start: tuples come in bursts to a broker, operators take them from bounded queues as fast as
their host lets them, links share their host's way out, windows are evaluated all at once, and what is kept in memory
slows a host down, makes it pause or ends it. Nothing in it is fitted to a prediction model; its constants are those of
`CohortWorld` and of the cost table (`engine.costream.costs`).

Sources: Costream (ICDE 2024), definitions 1 to 8 and section VI.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.costream.costs import operator_cost
from engine.costream.graph import REFERENCE_CORE_CPS, HostNode, QueryGraph, TraceLabel
from engine.simulation.cohort_kernel import run_cohorts

__all__ = [
    "OTHER_ENGINE",
    "SIMULATOR_VERSION",
    "CohortRun",
    "CohortWorld",
    "memory_parameters",
    "rerun_label",
    "simulate_cohorts",
    "trace_label",
]

# Raised with every change that lets the same seed give another label.
SIMULATOR_VERSION = 1

_KINDS = {"source": 0, "filter": 1, "join": 2, "agg": 3, "sink": 4}
_POLICIES = {"": 0, "count": 1, "time": 2}
_COUNTED = ("taken_0", "taken_1", "emitted", "queued_0", "queued_1", "sending", "waiting")

# bytes of a value on the wire, and of the object that holds it in memory
_WIRE = {"int": 5.0, "double": 9.0, "string": 18.0}
_OBJECT = {"int": 24.0, "double": 28.0, "string": 88.0}
_FRAME, _TUPLE = 46.0, 260.0  # bytes around a tuple: message on the wire, object and its bookkeeping in memory
_SERIALIZE, _SERIALIZE_BYTE = 30_000.0, 80.0  # cycles to send a tuple to another host and to read it there
_SYSTEM_MB, _PROCESS_MB, _OPERATOR_MB = 250.0, 220.0, 15.0  # memory that no tuple can have
_RESIDENT = 0.35  # at most, of what the system leaves
_COMFORT, _LIMIT = 0.42, 0.60  # of what is left: from here on pages are swapped; from here on the process dies


@dataclass(frozen=True)
class CohortWorld:
    """Constants of the simulated stream processor.

    Attributes
    ----------
    cost_factors
        Factor on the cost table per operator kind; kinds that are not named have 1.
    queue_tuples, send_tuples
        Bounds of an operator's input queue and of the queue to another host.
    state_factor
        Objects kept per tuple of a window, in tuples of a queue: the window's own lists, its index, what waits for
        acknowledgement.
    operator_noise, selectivity_noise, host_noise, label_noise
        Spread (standard deviation of the logarithm) of what a run hides: of each operator's cycles, of each
        selectivity, of a host's speed and bandwidth, and of the labels.
    burst, burst_s
        Spread of the rate of a source around its mean, and how long a burst lasts.
    duration_s, step_s
        Length of a run and of a step; a step divides 100 ms.
    """

    cost_factors: tuple[tuple[str, float], ...] = ()
    queue_tuples: float = 2048.0
    send_tuples: float = 1024.0
    state_factor: float = 8.0
    operator_noise: float = 0.10
    selectivity_noise: float = 0.08
    host_noise: float = 0.04
    label_noise: float = 0.03
    burst: float = 0.12
    burst_s: float = 1.5
    period_s: float = 0.1
    local_hop_s: float = 0.00012
    remote_hop_s: float = 0.0004
    fetch_s: float = 0.0012
    swap_slowness: float = 25.0
    pause_s: float = 0.004
    mark_bps: float = 0.8e9
    max_stall_s: float = 30.0
    backlog_share: float = 0.02
    tail: float = 0.1
    duration_s: float = 240.0
    step_s: float = 0.05

    def __post_init__(self) -> None:
        steps = self.period_s / self.step_s
        if self.step_s <= 0 or abs(steps - round(steps)) > 1e-6:
            raise ValueError(f"step_s is {self.step_s:g}; allowed: a part of {self.period_s:g} s without a rest")
        if unknown := [kind for kind, _ in self.cost_factors if kind not in _KINDS]:
            raise ValueError(f"cost_factors name {unknown}; allowed: {', '.join(_KINDS)}")


# Another engine, for tests of what a model takes over: other costs per operator, short queues, more memory per tuple.
OTHER_ENGINE = CohortWorld(
    cost_factors=(("source", 0.6), ("filter", 3.0), ("join", 2.0), ("agg", 5.0), ("sink", 1.5)),
    queue_tuples=256.0,
    send_tuples=128.0,
    state_factor=24.0,
)


@dataclass(frozen=True)
class CohortRun:
    """Result of a run, without noise on the labels.

    Attributes
    ----------
    label
        Costs as the paper defines them; latencies are None where no tuple arrived.
    crashed_s
        Time at which a host ran out of memory; None if none did.
    tuples
        Whole run, per operator in the query's order: `taken_0` and `taken_1` tuples taken from its inputs, `emitted`
        tuples, and those left at the end: `queued_0`, `queued_1`, `sending` to another host, `waiting` at the broker.
    """

    label: TraceLabel
    crashed_s: float | None
    tuples: tuple[dict[str, float], ...] = field(repr=False)


def memory_parameters() -> dict[str, object]:
    """Constants of tuples and memory, for the digest of a corpus."""
    return {
        "wire": _WIRE,
        "object": _OBJECT,
        "tuple": (_FRAME, _TUPLE, _SERIALIZE, _SERIALIZE_BYTE),
        "host": (_SYSTEM_MB, _PROCESS_MB, _OPERATOR_MB, _COMFORT, _LIMIT, _RESIDENT),
    }


def simulate_cohorts(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    placement: Sequence[int],
    *,
    seed: int,
    world: CohortWorld | None = None,
    noise: bool = True,
) -> CohortRun:
    """Run a query on a placement.

    Parameters
    ----------
    graph
        A query in which every operator has one reader, joins have two inputs, and one sink ends it.
    hosts, placement
        Hosts, and the host of each operator. Operators that stay on their host need no network.
    seed
        Seed of arrivals and of what the run hides; the same seed gives the same run on every machine.
    world
        Constants of the stream processor; `CohortWorld()` where left out.
    noise
        False: operators, selectivities and hosts are exactly as described. Arrivals stay random.

    Returns
    -------
    CohortRun
        Costs and counts; labels carry no noise of their own (`trace_label` adds it).

    Raises
    ------
    ValueError
        The query has another shape.
    """
    world = world or CohortWorld()
    _check_shape(graph)
    hidden = random.Random(seed)
    order = graph.order
    streams = np.array([hidden.getrandbits(64) for _ in range(1 + len(order))], dtype=np.uint64)
    operators, wiring = _operator_tables(graph, placement, order, world, hidden if noise else None)
    table = _host_table(hosts, placement, world, hidden if noise else None)
    steps = round(world.duration_s / world.step_s)
    totals, counts = run_cohorts(operators, wiring, table, _settings(world), steps, streams)
    rows = [dict(zip(_COUNTED, map(float, counts[order.index(i)]), strict=True)) for i in range(len(order))]
    return _run(totals, rows, graph, world)


def trace_label(run: CohortRun, *, seed: int, world: CohortWorld | None = None) -> TraceLabel:
    """The run's label with the noise of a measurement on throughput and latencies."""
    world, hidden, label = world or CohortWorld(), random.Random(~seed), run.label
    factors = [math.exp(world.label_noise * _normal(hidden)) for _ in range(3)]
    if label.throughput_eps is None or label.processing_latency_s is None or label.end_to_end_latency_s is None:
        return label
    return TraceLabel(
        label.throughput_eps * factors[0],
        label.processing_latency_s * factors[1],
        label.end_to_end_latency_s * factors[2],
        label.backlog_eps,
        label.backpressure,
        label.success,
    )


def rerun_label(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    placement: Sequence[int],
    *,
    seed: int,
    repeats: int = 4,
    world: CohortWorld | None = None,
) -> TraceLabel:
    """Geometric mean of `repeats` further runs (majority of the yes-no labels): the best any prediction could do.

    A cost is None where fewer than half of the runs have one.
    """
    seeds = [random.Random(seed * 1_000_003 + k).getrandbits(48) for k in range(1, repeats + 1)]
    labels = [
        trace_label(simulate_cohorts(graph, hosts, placement, seed=s, world=world), seed=s, world=world) for s in seeds
    ]

    def centre(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return math.exp(sum(map(math.log, present)) / len(present)) if 2 * len(present) >= repeats else None

    return TraceLabel(
        centre([label.throughput_eps for label in labels]),
        centre([label.processing_latency_s for label in labels]),
        centre([label.end_to_end_latency_s for label in labels]),
        sum(label.backlog_eps for label in labels) / repeats,
        2 * sum(label.backpressure for label in labels) > repeats,
        2 * sum(label.success for label in labels) > repeats,
    )


def _check_shape(graph: QueryGraph) -> None:
    faults = []
    for i, operator in enumerate(graph.operators):
        inputs, readers = len(graph.inputs[i]), len(graph.readers[i])
        wanted = {"source": 0, "join": 2}.get(operator.kind, 1)
        if inputs != wanted:
            faults.append(f"operator {i} ({operator.kind}) has {inputs} inputs; allowed: {wanted}")
        if readers != (operator.kind != "sink"):
            faults.append(
                f"operator {i} ({operator.kind}) has {readers} readers; allowed: {int(operator.kind != 'sink')}"
            )
    if len(graph.sinks) != 1:
        faults.append(f"the query has {len(graph.sinks)} ends; allowed: one sink")
    if faults:
        raise ValueError("; ".join(faults))


def _normal(hidden: random.Random) -> float:
    """Standard normal number out of two uniform ones (`random.gauss` keeps one back)."""
    return math.sqrt(-2.0 * math.log(1.0 - hidden.random())) * math.cos(2.0 * math.pi * hidden.random())


def _spread(hidden: random.Random | None, sigma: float) -> float:
    return math.exp(sigma * _normal(hidden)) if hidden else 1.0


def _widths(graph: QueryGraph, per_value: dict[str, float]) -> list[float]:
    """Bytes of the values of the tuples that each operator emits."""
    widths = [0.0] * len(graph.operators)
    for i in graph.order:
        operator = graph.operators[i]
        if operator.kind == "source":
            widths[i] = (
                operator.n_int * per_value["int"]
                + operator.n_dbl * per_value["double"]
                + operator.n_str * per_value["string"]
            )
        elif operator.kind == "agg":  # group, value, time
            group = "int" if operator.group_type == "none" else operator.group_type
            widths[i] = per_value[group] + per_value[operator.value_type] + per_value["int"]
        else:
            widths[i] = sum(widths[j] for j in graph.inputs[i])
    return widths


def _operator_tables(
    graph: QueryGraph,
    placement: Sequence[int],
    order: Sequence[int],
    world: CohortWorld,
    hidden: random.Random | None,
) -> tuple[FloatArray, IntArray]:
    factors = dict(world.cost_factors)
    wire, heap = _widths(graph, _WIRE), _widths(graph, _OBJECT)
    table, wiring = np.zeros((len(order), 12)), np.zeros((len(order), 6), dtype=np.int64)
    used = sorted(set(placement))
    for row, i in enumerate(order):
        operator, cost = graph.operators[i], operator_cost(graph.operators[i])
        factor = factors.get(operator.kind, 1.0) * _spread(hidden, world.operator_noise)
        reader = graph.readers[i][0] if graph.readers[i] else -1
        is_remote = reader >= 0 and placement[reader] != placement[i]
        wire_bytes = _FRAME + wire[i]
        sent = _SERIALIZE + _SERIALIZE_BYTE * wire_bytes if is_remote else 0.0
        take, make = (cost.take + sent, 1.0) if operator.kind == "source" else (cost.take, cost.make + sent)
        selectivity = min(1.0, operator.selectivity * _spread(hidden, world.selectivity_noise))
        kept = world.state_factor * (2.0 if operator.kind == "join" else 1.0) if operator.window_policy else 1.0
        inputs = [kept * (_TUPLE + heap[j]) for j in graph.inputs[i]] or [_TUPLE + heap[i]]
        table[row] = (
            operator.rate_eps,
            take * factor,
            max(make, 1.0) * factor,
            cost.scan * factor,
            cost.evaluate * factor,
            selectivity,
            operator.window_size,
            operator.window_slide or operator.window_size,
            inputs[0],
            inputs[-1],
            _TUPLE + heap[i],
            wire_bytes,
        )
        wiring[row] = (
            _KINDS[operator.kind],
            order.index(reader) if reader >= 0 else -1,
            graph.inputs[reader].index(i) if reader >= 0 else 0,
            used.index(placement[i]),
            is_remote,
            _POLICIES[operator.window_policy],
        )
    return table, wiring


def _host_table(
    hosts: Sequence[HostNode],
    placement: Sequence[int],
    world: CohortWorld,
    hidden: random.Random | None,
) -> FloatArray:
    used = sorted(set(placement))
    spreads = [_spread(hidden, world.host_noise) for _ in hosts]
    table = np.empty((len(used), 7))
    for row, h in enumerate(used):
        host, spread = hosts[h], spreads[h]
        heap = max(host.ram_mb - _SYSTEM_MB, 0.25 * host.ram_mb) * 1e6
        resident = (_PROCESS_MB + _OPERATOR_MB * sum(place == h for place in placement)) * 1e6
        table[row] = (
            REFERENCE_CORE_CPS * spread,
            REFERENCE_CORE_CPS * spread * host.cpu_percent / 100.0,
            _COMFORT * heap,
            _LIMIT * heap,
            host.bandwidth_mbit_s * 1e6 / 8.0 * spread,
            host.latency_s,
            min(resident, _RESIDENT * heap),
        )
    return table


def _settings(world: CohortWorld) -> FloatArray:
    block_s = 2.0 * world.period_s
    return np.array(
        (
            world.step_s,
            block_s,
            world.period_s,
            world.queue_tuples,
            world.send_tuples,
            world.local_hop_s,
            world.remote_hop_s,
            world.fetch_s,
            world.burst,
            math.exp(-block_s / world.burst_s),
            world.swap_slowness,
            world.pause_s,
            world.mark_bps,
            world.max_stall_s,
            world.tail,
        )
    )


def _run(totals: FloatArray, rows: list[dict[str, float]], graph: QueryGraph, world: CohortWorld) -> CohortRun:
    delivered, lp_s, le_s, backlog, crash_s, seconds = map(float, totals)
    rate = sum(operator.rate_eps for operator in graph.operators)
    waiting = sum(row["waiting"] for row in rows if row["waiting"] >= 0.5)  # less is rounding
    has_crashed = crash_s >= 0.0
    success = delivered >= 0.5 and not has_crashed
    label = TraceLabel(
        throughput_eps=delivered / world.duration_s if success else None,
        processing_latency_s=lp_s / delivered if success else None,
        end_to_end_latency_s=le_s / delivered if success else None,
        backlog_eps=waiting / max(seconds, world.step_s),
        backpressure=backlog > world.backlog_share * rate * max(seconds, world.step_s),
        success=success,
    )
    return CohortRun(label, crash_s if has_crashed else None, tuple(rows))
