"""Cohort simulation: costs of a streaming query on a placement, from a run of 240 s in 50 ms steps.

A run is what a user would start: tuples come in bursts to a broker, operators take them from bounded queues as fast as
their host lets them, links share their host's way out, windows are evaluated all at once, and what is kept in memory
slows a host down, makes it pause or ends it. Nothing in it is fitted to a prediction model; its constants are those of
`CohortWorld` and of the cost table (`engine.query_graph.costs`).

Sources: Costream (ICDE 2024), definitions 1 to 8 and section VI.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from engine.query_graph.costs import CYCLES
from engine.query_graph.graph import CostTrace, HostNode, QueryGraph, TraceLabel
from engine.simulation.cohort_kernel import run_cohorts
from engine.simulation.cohort_queries import (
    PAPER_RANGES,
    TRAINING_SHAPES,
    HardwareRanges,
    draw_hosts,
    draw_placement,
    draw_query,
    generator_parameters,
    weighted_pick,
)
from engine.simulation.cohort_tables import (
    OTHER_ENGINE,
    CohortTables,
    CohortWorld,
    memory_parameters,
    new_tables,
    standard_normal,
)
from engine.solvers import solving

__all__ = [
    "OTHER_ENGINE",
    "SIMULATOR_VERSION",
    "CohortRun",
    "CohortWorld",
    "SimulatedTrace",
    "TraceSettings",
    "draw_trace",
    "simulate_cohorts",
    "simulate_trace",
    "trace_label",
    "trace_seed",
]

# Raised with every change that lets the same seed give another label.
SIMULATOR_VERSION = 1

_COUNTED = ("taken_0", "taken_1", "emitted", "queued_0", "queued_1", "sending", "waiting")


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
    tables = new_tables(graph, hosts, placement, world, random.Random(seed), noise=noise)
    run_cohorts(tables)
    return _run(tables, graph, world)


def trace_label(run: CohortRun, *, seed: int, world: CohortWorld | None = None) -> TraceLabel:
    """The run's label with the noise of a measurement on throughput and latencies."""
    world, hidden, label = world or CohortWorld(), random.Random(~seed), run.label
    factors = [math.exp(world.label_noise * standard_normal(hidden)) for _ in range(3)]
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


def _run(tables: CohortTables, graph: QueryGraph, world: CohortWorld) -> CohortRun:
    delivered, lp_s, le_s, backlog, crash_s, seconds = map(float, tables.totals)
    amounts, n = tables.queues["amount"], len(graph.operators)
    rows = [
        dict(zip(_COUNTED, map(float, values), strict=True))
        for values in zip(
            tables.operators["taken_0"],
            tables.operators["taken_1"],
            tables.operators["emitted"],
            amounts[0 : 2 * n : 2],
            amounts[1 : 2 * n : 2],
            amounts[2 * n :],
            tables.operators["backlog"],
            strict=True,
        )
    ]
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
    tuples = tuple(rows[graph.order.index(i)] for i in range(n))
    return CohortRun(label, crash_s if has_crashed else None, tuples)


_MASK = (1 << 64) - 1
_IDLE = 0.3  # share of the hosts without an operator that a trace lists
_SEED_BITS = 47  # a seed fits into any reader's whole numbers


@dataclass(frozen=True)
class TraceSettings:
    """Distribution of traces: shapes of queries by weight, ranges of hosts, and the simulated stream processor."""

    shapes: Mapping[str, float] = field(default_factory=lambda: dict(TRAINING_SHAPES))
    ranges: HardwareRanges = PAPER_RANGES
    world: CohortWorld = field(default_factory=CohortWorld)

    def digest(self) -> str:
        """SHA-256 of every parameter a trace depends on, cost table and version included."""
        parameters = {
            "version": SIMULATOR_VERSION,
            "cycles": dict(CYCLES),
            "shapes": dict(self.shapes),
            "ranges": asdict(self.ranges),
            "world": asdict(self.world),
            "generator": generator_parameters(),
            "memory": memory_parameters(),
        }
        return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class SimulatedTrace:
    """A labelled trace, the seed it is made from, and whether a host ran out of memory."""

    seed: int
    trace: CostTrace
    crashed: bool


def trace_seed(seed: int, index: int) -> int:
    """Seed of the trace `index` of a corpus of `seed`: neither needs the traces before it."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK >> (64 - _SEED_BITS)


def draw_trace(seed: int, settings: TraceSettings | None = None) -> CostTrace:
    """Query, hosts and placement of a seed, without costs.

    Examples
    --------
    >>> trace = draw_trace(7)
    >>> trace == draw_trace(7), trace.label is None
    (True, True)
    """
    settings = settings or TraceSettings()
    source = random.Random(seed)
    graph = draw_query(source, weighted_pick(source, tuple(settings.shapes), tuple(settings.shapes.values())))
    hosts = draw_hosts(source, settings.ranges)
    placement = draw_placement(source, graph, hosts)
    kept = [h for h in range(len(hosts)) if h in placement or source.random() < _IDLE]
    return CostTrace(graph, tuple(hosts[h] for h in kept), tuple(kept.index(h) for h in placement), None)


def simulate_trace(seed: int, settings: TraceSettings | None = None) -> SimulatedTrace:
    """The trace of a seed with its simulated costs, hidden noise included."""
    solving()
    settings = settings or TraceSettings()
    trace = draw_trace(seed, settings)
    run = simulate_cohorts(trace.graph, trace.hosts, trace.placement, seed=seed, world=settings.world)
    label = trace_label(run, seed=seed, world=settings.world)
    labelled = CostTrace(trace.graph, trace.hosts, trace.placement, label)
    return SimulatedTrace(seed, labelled, run.crashed_s is not None)
