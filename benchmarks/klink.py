"""Klink against its targets: ``./sluice bench klink [--parts solver,policies,...] [--quick] [--queries 42,80]``.

- solver: slack of 10,000 queries in one call against Algorithm 1's loop;
- published: this simulation beside the table it is held against;
- policies: every load, numbers of queries, delays and arrivals under every policy; where each wins; the targets;
- limits: three limits of the backlog, and the paper's reductions;
- backlogs: how long records of an agent's queries may wait;
- intervals: how often the next watermark lies within its interval, by four ways to make one;
- nodes: one to eight nodes, queries over two of them;
- memory: the memory mode, and memory and CPU over time;
- overhead: CPU time of one pick as agents do it;
- real: policies side by side on a real agent's runtime, on one recorded input, and what scheduling takes there.

All but solver, overhead and real are simulated, and the same on every machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from benchmarks.klink_nodes import memory, nodes
from benchmarks.klink_policies import backlogs, limits, policies, published
from benchmarks.klink_real import real
from benchmarks.klink_solver import intervals, overhead, solver
from benchmarks.machine import machine
from engine.klink.simulation_loads import DELAYS

__all__ = ["main"]


def main(arguments: Sequence[str] = ()) -> int:
    """Run the parts that were asked for; 1 when one misses a target."""
    parser = argparse.ArgumentParser(
        prog="sluice bench klink", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"some of {','.join(_PARTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="few loads, seeds and windows: that everything runs")
    parser.add_argument("--queries", type=_counts, help="policies: numbers of queries, as 42,80, with two seeds")
    asked = parser.parse_args(list(arguments))
    if unknown := [one for one in asked.parts.split(",") if one not in _PARTS]:
        parser.error(f"--parts has {', '.join(unknown)}; allowed: {', '.join(_PARTS)}")
    print(machine())
    parts = dict(_PARTS)
    if asked.queries:
        parts["policies"] = lambda _: policies(2, asked.queries, DELAYS)
    met = [parts[one](asked.quick) for one in asked.parts.split(",")]
    return 0 if all(met) else 1


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


def _solver(quick: bool) -> bool:
    return solver(5 if quick else 50)


def _published(quick: bool) -> bool:
    published(1 if quick else 3)
    return True


def _policies(quick: bool) -> bool:
    return policies(1, (36, 80), DELAYS[:1]) if quick else policies(3, (1, 20, 36, 42, 60, 80), DELAYS)


def _limits(quick: bool) -> bool:
    return limits(1, (60,)) if quick else limits(3, (42, 60, 80))


def _backlogs(quick: bool) -> bool:
    backlogs(1 if quick else 3, (0.33, 1.0) if quick else (0.0, 0.1, 0.2, 0.33, 0.5, 1.0, 2.0))
    return True


def _intervals(quick: bool) -> bool:
    return intervals(200 if quick else 3_000)


def _nodes(quick: bool) -> bool:
    nodes(1 if quick else 3, (1, 4) if quick else (1, 2, 4, 8))
    return True


def _memory(quick: bool) -> bool:
    memory(1 if quick else 3, (60,) if quick else (42, 60, 80))
    return True


def _overhead(quick: bool) -> bool:
    return overhead(1 if quick else 20)


def _real(quick: bool) -> bool:
    return real(1 if quick else 2, quick=quick)


_PARTS: dict[str, Callable[[bool], bool]] = {
    "solver": _solver,
    "published": _published,
    "policies": _policies,
    "limits": _limits,
    "backlogs": _backlogs,
    "intervals": _intervals,
    "nodes": _nodes,
    "memory": _memory,
    "overhead": _overhead,
    "real": _real,
}
