"""Small queries for real executions: those of the corpus with rates that a share of two cores can bear."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.query_graph.costs import nominal_cycles
from engine.query_graph.flow import flow_features, nominal_flow
from engine.query_graph.graph import REFERENCE_CORE_CPS, CostTrace, HostNode, QueryGraph
from engine.simulation.cohort_queries import (
    TRAINING_SHAPES,
    HardwareRanges,
    draw_hosts,
    draw_placement,
    draw_query,
    weighted_pick,
)

__all__ = ["SMALL_RANGES", "cpu_use", "draw_execution", "draw_until", "fills_soon", "max_cpu_percent", "times_rates"]

# Two cores bear two or three of them at once. Memory is ample: a process of Python says nothing about a Java heap.
SMALL_RANGES = HardwareRanges(
    cpu_percent=((50,), (50, 75, 100), (75, 100, 150)),
    ram_mb=((8000,), (8000, 16000), (16000,)),
    bandwidth_mbit_s=((5, 25, 50), (25, 50, 100), (100, 400)),
    latency_ms=((20, 40, 80), (5, 10, 20), (1, 2, 5)),
)

_USES = (0.2, 0.4, 0.6, 0.75, 0.9, 1.3, 2.0)  # nominal use of the CPU of the busiest host
_USE_WEIGHTS = (2, 3, 3, 2, 1, 2, 1)
_RATES_EPS = (5.0, 3000.0)
_MAX_FILL_S = 4.0  # windows are full early in a run of 15 s
_MAX_CONTENT = 20_000.0  # tuples of a window, and results of an evaluation, of the processes of Python
_SHARE_OF_CORES, _MAX_PERCENT = 75.0, 150.0
_ATTEMPTS = 10_000


def max_cpu_percent() -> float:
    """CPU quota of all hosts of an execution together, in percent of a core."""
    return min(_MAX_PERCENT, _SHARE_OF_CORES * len(os.sched_getaffinity(0)))


def cpu_use(graph: QueryGraph, hosts: tuple[HostNode, ...], placement: tuple[int, ...]) -> float:
    """CPU that the busiest host's operators ask for at nominal rates, in quotas; sending is not counted."""
    cycles = np.asarray(nominal_cycles(graph)) * nominal_flow(graph).in_eps
    totals = np.bincount(placement, cycles, minlength=len(hosts))
    return max(
        float(total) / (REFERENCE_CORE_CPS * host.cpu_percent / 100.0)
        for total, host in zip(totals, hosts, strict=True)
    )


def draw_execution(seed: int) -> CostTrace:
    """Query, hosts and placement of a small execution, without costs.

    A query of the corpus' shapes gets the rates at which its busiest host is used by a drawn share, from a fifth to
    twice its quota; queries whose windows take long to fill, or that hold or put out too much, are drawn again.

    Raises
    ------
    RuntimeError
        The machine's cores are too few for any.

    Examples
    --------
    >>> trace = draw_execution(3)
    >>> trace == draw_execution(3), trace.label is None, sum(host.cpu_percent for host in trace.hosts) <= 150
    (True, True, True)
    """
    return draw_until(seed, SMALL_RANGES, _scaled)


def draw_until(
    seed: int,
    ranges: HardwareRanges,
    scaled: Callable[[random.Random, QueryGraph, tuple[HostNode, ...], tuple[int, ...]], QueryGraph | None],
    *,
    content: float = _MAX_CONTENT,
) -> CostTrace:
    """The first query of the corpus' shapes that fits the machine's cores, at the rates that `scaled` gives it.

    `scaled` returns None for a query to be drawn again, as are those whose windows fill late, or hold more than
    `content` tuples.
    Raises `RuntimeError` where the machine's cores are too few for any.
    """
    source = random.Random(seed)
    for _ in range(_ATTEMPTS):
        graph = draw_query(source, weighted_pick(source, tuple(TRAINING_SHAPES), tuple(TRAINING_SHAPES.values())))
        hosts = draw_hosts(source, ranges, weighted_pick(source, (1, 2, 3), (1, 3, 2)))
        placement = draw_placement(source, graph, hosts)
        kept = sorted(set(placement))
        used, places = tuple(hosts[h] for h in kept), tuple(kept.index(h) for h in placement)
        if sum(host.cpu_percent for host in used) > max_cpu_percent():
            continue
        rated = scaled(source, graph, used, places)
        if rated is not None and fills_soon(rated, used, places, content):
            return CostTrace(rated, used, places, None)
    raise RuntimeError(f"no query fits into {max_cpu_percent():g} % of a core")


def fills_soon(graph: QueryGraph, hosts: tuple[HostNode, ...], placement: tuple[int, ...], content: float) -> bool:
    """Whether windows are full early in an execution, and hold at most `content` tuples, and joins put out no more."""
    anchor = flow_features(graph, hosts, np.array([placement])).anchor[0]
    flow = nominal_flow(graph)
    joins = [i for i, op in enumerate(graph.operators) if op.kind == "join"]
    results = max((float(flow.out_eps[i]) * graph.operators[i].window_slide for i in joins), default=0.0)
    return max(float(flow.state_tuples.max()), results) <= content and math.exp(anchor[1]) <= _MAX_FILL_S


def _scaled(
    source: random.Random, graph: QueryGraph, hosts: tuple[HostNode, ...], placement: tuple[int, ...]
) -> QueryGraph | None:
    """The query with all rates multiplied by one factor so that the busiest host has a drawn use; None if beyond."""
    use = weighted_pick(source, _USES, _USE_WEIGHTS)
    low, high = 1e-4, 1e2
    for _ in range(50):
        factor = math.sqrt(low * high)
        low, high = (low, factor) if cpu_use(times_rates(graph, factor), hosts, placement) > use else (factor, high)
    scaled = times_rates(graph, low)
    rates = [op.rate_eps for op in scaled.operators if op.kind == "source"]
    return scaled if min(rates) >= _RATES_EPS[0] and max(rates) <= _RATES_EPS[1] else None


def times_rates(graph: QueryGraph, factor: float) -> QueryGraph:
    """The query with the rates of its sources multiplied, to three digits.

    An aggregation that does not group has one result of a window still, of more tuples or fewer.
    """
    operators = tuple(
        replace(op, rate_eps=float(f"{op.rate_eps * factor:.3g}")) if op.kind == "source" else op
        for op in graph.operators
    )
    rated = replace(graph, operators=operators)
    kept = nominal_flow(rated).state_tuples
    single = (
        replace(op, selectivity=1.0 / max(1.0, float(kept[i]))) if op.kind == "agg" and op.group_type == "none" else op
        for i, op in enumerate(operators)
    )
    return replace(graph, operators=tuple(single))
