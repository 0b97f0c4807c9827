"""Speed of the what-if bench: 20 pool sizes of a 200-operator cluster over 1,000 subintervals, by Mace, on one core.

A step of the slider places every pool size anew, judges all queries, and loses every node of every size in turn. Cold
is the first step of a bench; warm are further positions, which begin with the placements of earlier ones. Compilation
and the parsing of the document are not timed. The target, under a second, is on CPU time: the sweep has one thread, and
CPU time leaves out what other processes take of its core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

from engine.document.deployment import Deployment
from engine.provisioning.answers.pools import PoolSize
from engine.provisioning.nodes import pool_of
from engine.provisioning.pool.bounds import fused_s
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.problem import pool_problem
from lab.benchmarks.machine import machine
from lab.benchmarks.workloads import PlacementSetting, build, problem_of

__all__ = ["main"]

SIZES = 20
TARGET_S = 1.0
PER_QUERY = 10
BOUND_S = 10.0
POSITIONS = (1.1, 1.2, 1.05, 0.9, 1.15)  # of the slider, after the first at 1


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; returns 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="sluice lab what-if", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="rounds of the placement search for each size (1)")
    options, _ = parser.parse_known_args(list(arguments))
    print(f"Machine: {machine()}")
    print(f"{SIZES} pool sizes, {len(POSITIONS) + 1} positions of the slider, {options.rounds} round(s) a size")
    met = [
        _measured("Section IX-B, X = 1", section9(), options.rounds),
        _measured("Section VIII, 14 queries of 14 operators", section8(), options.rounds),
    ]
    return 0 if all(met) else 1


def section9() -> Deployment:
    """The placement workload of section IX-B on 20 nodes, ten operators to a query, an objective each."""
    problem = problem_of(PlacementSetting(scale=1, subintervals=1000))
    items = range(problem.items)
    return Deployment.parse(
        {
            "subinterval_s": problem.width_s,
            "sources": [{"id": f"s{i}", "arrivals": problem.load[i]} for i in items],
            "nodes": [{"id": f"n{k}", "capacity_cps": 1.0, "price_per_hour": 1.0} for k in range(problem.cores)],
            "operators": [
                {
                    "id": f"o{i}",
                    "query": f"q{i // PER_QUERY}",
                    "node": f"n{i % problem.cores}",
                    "inputs": [{"from": f"s{i}", "selectivity": 1.0, "cycles_per_event": 1.0}],
                }
                for i in items
            ],
            "objectives": [
                {"query": f"q{q}", "statistic": "worst", "bound_s": BOUND_S} for q in range(len(items) // PER_QUERY)
            ],
        }
    )


def section8() -> Deployment:
    """Queries of section VIII on 12 nodes, over 1,000 subintervals of a quarter of a second."""
    return build(14, 12, 1, horizon_s=250.0).deployment


def _measured(name: str, deployment: Deployment, rounds: int) -> bool:
    least = max(1, len(deployment.nodes) - 6)
    sizes = range(least, least + SIZES)
    PoolCurve(deployment).sweep(1.0, sizes, rounds=rounds)  # compiles
    print(f"\n{name}: {len(deployment.operators)} operators, {len(deployment.queries)} queries, ", end="")
    print(f"d = {deployment.subintervals}, pools of {sizes[0]} to {sizes[-1]} nodes, now {len(deployment.nodes)}")
    cold, pool_sizes = _steps(deployment, sizes, rounds, lose_one=True)
    without, _ = _steps(deployment, sizes, rounds, lose_one=False)
    print("Step                        CPU s   elapsed s")
    print(f"Cold, with every loss      {cold[0][0]:6.2f}      {cold[0][1]:6.2f}")
    warm = [statistics.median(column) for column in zip(*cold[1:], strict=True)]
    print(f"Warm, with every loss      {warm[0]:6.2f}      {warm[1]:6.2f}")
    print(f"Cold, no losses            {without[0][0]:6.2f}      {without[0][1]:6.2f}")
    warm = [statistics.median(column) for column in zip(*without[1:], strict=True)]
    print(f"Warm, no losses            {warm[0]:6.2f}      {warm[1]:6.2f}")
    _quality(deployment, pool_sizes)
    slowest = max(cpu for cpu, _ in cold)
    met = slowest < TARGET_S
    verdict = "met" if met else "missed"
    print(f"Target: every step with every loss under {TARGET_S:g} s: {verdict}, at most {slowest:.2f} s")
    return met


def _steps(
    deployment: Deployment, sizes: Sequence[int], rounds: int, *, lose_one: bool
) -> tuple[list[tuple[float, float]], list[PoolSize]]:
    """CPU and elapsed seconds of every position, and what was found at the first."""
    bench = PoolCurve(deployment)
    times: list[tuple[float, float]] = []
    first: list[PoolSize] = []
    for factor in (1.0, *POSITIONS):
        cpu, began = time.process_time(), time.perf_counter()
        pool_sizes = bench.sweep(factor, sizes, lose_one=lose_one, rounds=rounds)
        times.append((time.process_time() - cpu, time.perf_counter() - began))
        first = first or pool_sizes
    return times, first


def _quality(deployment: Deployment, sizes: Sequence[PoolSize]) -> None:
    """Worst cases found against the whole load on one server as large as the pool."""
    problem = pool_problem(pool_of(deployment, sizes[-1].nodes).deployment)
    load = problem.load.sum(axis=0)
    print("Nodes, Mace_WC (fused bound), with one lost:")
    for size in sizes[::4]:
        bound = fused_s(load, problem.budget[: problem.cores_of(size.nodes)], deployment.subinterval_s)
        lost = f"{size.lost.worst_s:.2f}" if size.lost else "-"
        print(f"  {size.nodes:3} {size.worst_s:8.2f} ({bound:.2f}) {lost:>8}")
