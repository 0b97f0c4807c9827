"""Random queries for executions on Flink, and the plan by which the job makes them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import CostTrace, HostNode, QueryGraph
from engine.query_graph.processors import FLINK
from engine.simulation.cohort_queries import HardwareRanges
from lab.training.execution.queries import draw_until, times_rates
from lab.training.execution.tuples import group_count

__all__ = ["FLINK_RANGES", "draw_flink_execution", "flink_plan"]

#: Shares of cores at which a Java process still runs. Links have no delay of their own: the kernel may lack netem.
FLINK_RANGES = HardwareRanges(
    cpu_percent=((20, 30, 50), (30, 50, 75), (50, 75, 100)),
    ram_mb=((8000,), (8000,), (8000,)),
    bandwidth_mbit_s=((5, 25, 50), (25, 50, 100), (100, 400)),
    latency_ms=((0.1,), (0.1,), (0.1,)),
)
_PEAK_EPS = (200.0, 500_000.0)  # of a query's fastest source, drawn evenly by the logarithm
_MIN_EPS = 5.0
_MAX_FLOW_EPS = 600_000.0  # of any operator
_MAX_CONTENT = 100_000.0  # tuples of a window


def draw_flink_execution(seed: int) -> CostTrace:
    """Query, hosts and placement, without costs; rates go from idle to beyond what a host bears.

    Examples
    --------
    >>> trace = draw_flink_execution(3)
    >>> trace == draw_flink_execution(3), len(trace.hosts) <= 3, sum(host.cpu_percent for host in trace.hosts) <= 150
    (True, True, True)
    """
    trace = draw_until(seed, FLINK_RANGES, _rated, content=_MAX_CONTENT)
    return replace(trace, graph=replace(trace.graph, processor=FLINK.name))


def _rated(
    source: random.Random, graph: QueryGraph, hosts: tuple[HostNode, ...], placement: tuple[int, ...]
) -> QueryGraph | None:
    """The query with its fastest source at a drawn rate; None if another one is slow, or something flows too fast."""
    peak = math.exp(source.uniform(*map(math.log, _PEAK_EPS)))
    rates = [op.rate_eps for op in graph.operators if op.kind == "source"]
    rated = times_rates(graph, peak / max(rates))
    flow = nominal_flow(rated)
    is_bearable = max(float(flow.in_eps.max()), float(flow.out_eps.max())) <= _MAX_FLOW_EPS
    return rated if is_bearable and min(rates) * peak / max(rates) >= _MIN_EPS else None


def flink_plan(trace: CostTrace) -> str:
    """The query as `QueryJob` takes it: operators in topological order, the number of each in its name.

    Examples
    --------
    >>> flink_plan(draw_flink_execution(3)).split("/")[0]
    'source'
    """
    graph = trace.graph
    place = {i: row for row, i in enumerate(graph.order)}
    state = nominal_flow(graph).state_tuples
    return ";".join(
        "/".join(map(str, _fields(trace, i, [place[j] for j in graph.inputs[i]], float(state[i])))) for i in graph.order
    )


def _fields(trace: CostTrace, i: int, inputs: list[int], expected: float) -> Iterator[object]:
    """Fields of an operator, as the job's own comment lists them. `expected`: tuples that its window holds."""
    operator = trace.graph.operators[i]
    yield from (operator.kind, trace.placement[i])
    if operator.kind == "source":
        yield from (operator.rate_eps, operator.n_int, operator.n_str, operator.n_dbl)
        return
    yield from inputs
    if operator.kind == "filter":
        yield from (operator.function, operator.value_type, operator.selectivity)
    elif operator.kind == "agg":
        groups = group_count(operator.selectivity, expected) if operator.group_type != "none" else 1.0
        yield from (operator.function, groups, max(1, round(operator.values_out)))
    elif operator.kind == "join":
        keys = math.floor(1.0 / operator.selectivity)
        yield from (keys, operator.selectivity * keys)
    if operator.kind in ("agg", "join"):
        yield from (operator.window_policy, operator.window_type, operator.window_size, operator.window_slide)
