"""Jarvis against its targets: ``./sluice bench jarvis [--parts solver,throughput,...] [--quick]``.

- solver: the closed form against SciPy's HiGHS on random instances, both in the same run;
- throughput: what rate every strategy sustains over CPU budgets, for the paper's three queries (simulated);
- scale: sources of one stream processor, queries of one source (simulated);
- convergence: epochs after the paper's six changes, limit cycles, margins, termination (simulated), CPU of deciding;
- real: agents' runtimes on this machine with real CPU budgets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from benchmarks.jarvis_convergence import convergence, margins
from benchmarks.jarvis_real import real
from benchmarks.jarvis_scale import several_queries, several_sources
from benchmarks.jarvis_solver import solver
from benchmarks.jarvis_staying import overhead, staying, termination
from benchmarks.jarvis_throughput import throughput
from benchmarks.machine import machine

__all__ = ["main"]

_QUICK_BUDGETS = (0.4, 0.8)


def main(arguments: Sequence[str] = ()) -> int:
    """Run the parts that were asked for; 1 when one misses a target."""
    parser = argparse.ArgumentParser(
        prog="sluice bench jarvis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"some of {','.join(_PARTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="few instances, seeds and seconds: that everything runs")
    asked = parser.parse_args(list(arguments))
    if unknown := [one for one in asked.parts.split(",") if one not in _PARTS]:
        parser.error(f"--parts has {', '.join(unknown)}; allowed: {', '.join(_PARTS)}")
    print(machine())
    met = [_PARTS[one](asked.quick) for one in asked.parts.split(",")]
    return 0 if all(met) else 1


def _solver(quick: bool) -> bool:
    return solver(200 if quick else 10_000)


def _throughput(quick: bool) -> bool:
    return throughput(_QUICK_BUDGETS) if quick else throughput()


def _scale(quick: bool) -> bool:
    met = several_sources()
    several_queries()
    return met


def _convergence(quick: bool) -> bool:
    seeds, fewer, pipelines = (2, 1, 2) if quick else (20, 5, 100)
    met = [convergence(seeds), staying(fewer), margins(fewer), termination(pipelines), overhead(pipelines)]
    return all(met)


def _real(quick: bool) -> bool:
    return real(1, quick=True) if quick else real(3)


_PARTS: dict[str, Callable[[bool], bool]] = {
    "solver": _solver,
    "throughput": _throughput,
    "scale": _scale,
    "convergence": _convergence,
    "real": _real,
}
