"""Traces of a corpus: a query, hosts, a placement and the costs of its run, each made from a seed of its own."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from engine.query_graph.costs import CYCLES
from engine.query_graph.graph import CostTrace
from engine.simulation.cohort import SIMULATOR_VERSION, simulate_cohorts, trace_label
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
from engine.simulation.cohort_tables import CohortWorld, memory_parameters

__all__ = ["SimulatedTrace", "TraceSettings", "draw_trace", "simulate_trace", "trace_seed"]

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
    settings = settings or TraceSettings()
    trace = draw_trace(seed, settings)
    run = simulate_cohorts(trace.graph, trace.hosts, trace.placement, seed=seed, world=settings.world)
    label = trace_label(run, seed=seed, world=settings.world)
    labelled = CostTrace(trace.graph, trace.hosts, trace.placement, label)
    return SimulatedTrace(seed, labelled, run.crashed_s is not None)
