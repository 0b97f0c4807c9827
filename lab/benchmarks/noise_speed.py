"""Cost of realised latencies: Flow with the walk on top of it, over Flow alone.

A chain, two chains that meet, and 60 operators on 10 nodes, in slices of 0.25 s. Flow and the walk run in turn, so that
a slow moment of the machine hits both; times are the least of several, of the processor. Compilation is not timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.noise.realisation import realise
from lab.benchmarks.machine import machine

__all__ = ["main"]

WIDTH, PATHS, TARGET = 0.25, (16, 32), 3.0


def main(arguments: Sequence[str] = ()) -> int:
    """Print the ratios; returns 1 if one of the least number of paths is above the target."""
    parser = argparse.ArgumentParser(prog="sluice lab noise", description=__doc__)
    parser.add_argument("--hours", type=float, default=8.0, help="horizon (8)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, of which the least counts (5)")
    options, _ = parser.parse_known_args(list(arguments))
    slices = int(options.hours * 3600 / WIDTH)
    print(f"Machine: {machine()}")
    print(f"{slices} slices of {WIDTH} s; Flow with the walk over Flow (target: at most {TARGET:g})")
    met = True
    for name, document in _documents(slices).items():
        ratios = _ratios(Deployment.parse(document), options.repeats)
        words = ", ".join(f"{ratio:.2f} with {paths} paths" for paths, ratio in ratios.items())
        print(f"{name}: {words}")
        met &= ratios[PATHS[0]] <= TARGET
    return 0 if met else 1


def _ratios(deployment: Deployment, repeats: int) -> dict[int, float]:
    flowed = flow(deployment, by_input=True)
    ways: dict[int, Callable[[], object]] = {0: lambda: flow(deployment, by_input=True)}
    ways |= {paths: lambda paths=paths: realise(deployment, flowed, paths=paths) for paths in PATHS}
    least = dict.fromkeys(ways, np.inf)
    for _ in range(repeats + 1):
        for key, run in ways.items():
            start = time.process_time()
            run()
            least[key] = min(least[key], time.process_time() - start)
    return {paths: 1.0 + float(least[paths] / least[0]) for paths in PATHS}


def _documents(slices: int) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(1)

    def document(rates: Sequence[float], nodes: int, operators: list[dict[str, Any]]) -> dict[str, Any]:
        sources = [
            {"id": f"s{i}", "arrivals": rng.poisson(rate * WIDTH, slices).astype(float)} for i, rate in enumerate(rates)
        ]
        machines = [{"id": f"n{i}", "capacity_cps": 1e6} for i in range(nodes)]
        return {"subinterval_s": WIDTH, "sources": sources, "nodes": machines, "operators": operators}

    chain = [_operator("a", 0, "s0", 8e3), _operator("b", 0, "a", 12e3), _operator("c", 1, "b", 20e3)]
    merge = [_operator("a", 0, "s0", 18e3, "A0"), _operator("b", 1, "a", 10e3, "A"), _operator("c", 1, "s1", 14e3, "B")]
    fleet = [
        _operator(f"o{q}.{k}", (3 * q + k) % 10, f"o{q}.{k - 1}" if k else f"s{q % 4}", 3e3, f"q{q}")
        for q in range(12)
        for k in range(5)
    ]
    return {
        "Chain": document([40.0], 2, chain),
        "Merge": document([40.0, 20.0], 2, merge),
        "10 nodes, 60 operators": document([40.0] * 4, 10, fleet),
    }


def _operator(name: str, node: int, above: str, cycles: float, query: str = "q") -> dict[str, Any]:
    reads = {"from": above, "selectivity": 1.0, "cycles_per_event": cycles, "cost_cv2": 1.0}
    return {"id": name, "node": f"n{node}", "query": query, "inputs": [reads]}
