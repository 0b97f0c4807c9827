"""Speed of Mace and Flow: 4,000 operators on 400 nodes over 1,000 subintervals.

Mace is set against one ``np.sum`` of a float64 array of operators x subintervals, in the same process and interleaved,
so that a slow moment of the machine hits both. Times are medians. The deployment is parsed beforehand; its flat arrays
are part of it, and the time to make them is printed on a line of its own. Compilation is not timed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.mace import mace
from lab.benchmarks.machine import machine

__all__ = ["main"]

OPERATORS, NODES, SUBINTERVALS, SOURCES, PER_QUERY = 4000, 400, 1000, 20, 10
UTILISATION = 0.75


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="sluice lab mace-speed", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="interleaved runs of the fast parts (15)")
    options, _ = parser.parse_known_args(list(arguments))
    print(f"Machine: {machine()}")
    print(
        f"{OPERATORS} operators, {SUBINTERVALS} subintervals, {NODES} nodes, {SOURCES} sources, {PER_QUERY} per query"
    )
    document = workload(np.random.default_rng(1))
    parsed = _seconds(lambda: Deployment.parse(document))
    deployment = Deployment.parse(document)
    derived = _seconds(lambda: (deployment.graph, deployment.layout, deployment.arrivals))
    print(f"Document parsed in {1e3 * parsed:.0f} ms, flat arrays in {1e3 * derived:.0f} ms")
    met = _mace(deployment, options.repeats)
    return 0 if _flow(deployment) and met else 1


def workload(rng: np.random.Generator, *, joins: bool = False) -> dict[str, Any]:
    """Queries of ten operators in a chain with two branches, over nodes that are each loaded to 0.75 on average.

    With `joins` the last operator of a query also reads the two loose ends of the branches.
    """
    operators = []
    for i in range(OPERATORS):
        query, step = divmod(i, PER_QUERY)
        above = f"s{query % SOURCES}" if not step else f"o{i - (2 if step % 4 == 3 else 1)}"
        reads = [above, f"o{i - 7}", f"o{i - 3}"] if joins and step == PER_QUERY - 1 else [above]
        inputs = [
            {"from": name, "selectivity": rng.uniform(0.7, 1.1), "cycles_per_event": rng.uniform(5e3, 3e4)}
            for name in reads
        ]
        operators.append({"id": f"o{i}", "query": f"q{query}", "node": f"n{(i * 7) % NODES}", "inputs": inputs})
    bursts = np.where((np.arange(SUBINTERVALS) // 10) % 3 == 0, 2.0, 0.5)
    sources = [rng.poisson(1000 * np.roll(bursts, 7 * i)).astype(float) for i in range(SOURCES)]
    document: dict[str, Any] = {
        "subinterval_s": 1.0,
        "sources": [{"id": f"s{i}", "arrivals": arrivals} for i, arrivals in enumerate(sources)],
        "nodes": [{"id": f"n{i}", "capacity_cps": 1.0} for i in range(NODES)],
        "operators": operators,
    }
    mean_load = mace(Deployment.parse(document)).load.mean(axis=1)
    for node, load in zip(document["nodes"], mean_load, strict=True):
        node["capacity_cps"] = float(load) / UTILISATION
    return document


def _mace(deployment: Deployment, repeats: int) -> bool:
    array = np.random.default_rng(2).random((OPERATORS, SUBINTERVALS))
    room = np.zeros((2, OPERATORS, SUBINTERVALS))
    mace(deployment, materialise=True)
    ways: list[Callable[[], object]] = [
        lambda: array.sum(),
        lambda: mace(deployment),
        lambda: mace(deployment, materialise=True, out=room),
        lambda: mace(deployment, materialise=True),
    ]
    total, fast, full, fresh = (statistics.median(column) for column in _interleaved(repeats, ways))
    plain = _seconds(lambda: plain_mace(deployment))
    print(f"np.sum of {OPERATORS} x {SUBINTERVALS} float64: {1e3 * total:.2f} ms")
    print(f"Mace: {1e3 * fast:.2f} ms, {fast / total:.2f} times the sum (target: at most 2)")
    print(
        f"Mace with every operator's load and output: {1e3 * full:.2f} ms, {full / total:.2f} times (target: at most 4)"
    )
    print(f"The same into fresh memory: {1e3 * fresh:.2f} ms, {fresh / total:.2f} times")
    print(f"Mace in plain Python: {plain:.2f} s, {plain / fast:.0f} times slower")
    return fast <= 2 * total and full <= 4 * total


def _flow(deployment: Deployment) -> bool:
    """Flow runs on one core; CPU time leaves out what other processes take of it."""
    joined = Deployment.parse(workload(np.random.default_rng(1), joins=True))
    flow(joined, by_input=True, trace=True)
    ways: list[Callable[[], object]] = [
        lambda: flow(deployment),
        lambda: flow(deployment, by_input=True),
        lambda: flow(deployment, by_input=True, trace=True),
        lambda: flow(joined),
        lambda: flow(joined, by_input=True),
    ]
    columns = _interleaved(3, ways, clock=time.process_time)
    per_step = [1e9 * statistics.median(column) / (OPERATORS * SUBINTERVALS) for column in columns]
    plain, reported, traced, joined_plain, joined_reported = per_step
    print("CPU time of Flow per operator and subinterval (target: at most 200 ns)")
    print(f"Flow: {plain:.0f} ns, by input {reported:.0f} ns")
    print(f"By input with the hops of every query's worst slice: {traced:.0f} ns")
    print(
        f"With a tenth of the operators reading three inputs: {joined_plain:.0f} ns, by input {joined_reported:.0f} ns"
    )
    print(f"(Mace_WC {mace(deployment).worst:.2f} s, Flow_WC {flow(deployment).wc:.2f} s)")
    return max(plain, reported) <= 200


def plain_mace(deployment: Deployment) -> list[float]:
    """Mace_p the straightforward way: operator by operator, subinterval by subinterval, lists and floats only."""
    series = {source.id: source.arrivals.tolist() for source in deployment.sources}
    loads = {node.id: [0.0] * deployment.subintervals for node in deployment.nodes}
    for j in deployment.order:
        operator = deployment.operators[j]
        output, load = [0.0] * deployment.subintervals, loads[operator.replicas[0].node]
        for entry in operator.inputs:
            for p, events in enumerate(series[entry.source]):
                output[p] += entry.selectivity * events
                load[p] += entry.cycles_per_event * events
        series[operator.id] = output
    worst = [0.0] * deployment.subintervals
    for node in deployment.nodes:
        capacity, excess = node.capacity_cps or 1.0, 0.0
        for p, load_p in enumerate(loads[node.id]):
            excess = max(0.0, excess + load_p - capacity * deployment.subinterval_s)
            worst[p] = max(worst[p], excess / capacity)
    return worst


def _interleaved(
    repeats: int, functions: Sequence[Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of each function, run in turn `repeats` times."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for column, function in zip(times, functions, strict=True):
            column.append(_seconds(function, clock))
    return times


def _seconds(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    function()
    return clock() - start
