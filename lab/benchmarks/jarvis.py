"""Jarvis against its targets: ``./sluice lab jarvis [--parts solver,throughput,...] [--quick]``."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from engine.jarvis.partition import Frontier
from lab.benchmarks.jarvis_bytes import ProbeLoad, planetlab_ms, sent_bytes
from lab.benchmarks.jarvis_convergence import convergence, margins, overhead, staying, termination
from lab.benchmarks.jarvis_real import real
from lab.benchmarks.jarvis_throughput import several_queries, several_sources, throughput
from lab.benchmarks.machine import machine

__all__ = ["Instance", "highs", "instances", "main", "solver"]


_MAX_DIFFERENCE, _MIN_RATIO = 1e-9, 50.0
_MAX_OPERATORS, _MAX_RELAY = 10, 3.0
_BLOCKS = 20  # both solvers take turns; each block gives one ratio of times
_NOTHING = 1e-3  # of what All-SP sends; an objective below is compared on this scale, for nothing has no relative error

_QUICK_BUDGETS = (0.4, 0.8)


@dataclass(frozen=True)
class Instance:
    """A pipeline, its input and a budget; `sizes` is None where records count and not bytes."""

    relay: tuple[float, ...]
    cost: tuple[float, ...]
    sizes: tuple[float, ...] | None
    budget_s: float
    n_records: float

    @property
    def before(self) -> list[float]:
        """Weights of a record of the input before each operator and after the last, M+1 of them."""
        reach = np.cumprod([1.0, *self.relay])
        weights = np.array(self.sizes) if self.sizes else np.array([1.0] * len(self.relay) + [0.0])
        return [float(weight) for weight in reach * weights]


def instances(count: int, seed: int = 1) -> list[Instance]:
    """Pipelines of 1 to 10 operators; half are weighted by bytes; zero costs and relays of 0, 1 and up to 3 occur."""
    draw = np.random.default_rng(seed)
    return [_instance(draw, weighted=i % 2 == 0) for i in range(count)]


def _instance(draw: np.random.Generator, *, weighted: bool) -> Instance:
    count = int(draw.integers(1, _MAX_OPERATORS + 1))
    kinds = draw.random(count)
    relay = np.where(kinds < 0.1, 0.0, np.where(kinds < 0.25, 1.0, draw.uniform(0, 1, count)))
    relay = np.where(kinds > 0.9, draw.uniform(1, _MAX_RELAY, count), relay)
    cost = np.where(draw.random(count) < 0.1, 0.0, draw.uniform(0, 1e-3, count))
    sizes = tuple(draw.uniform(1, 200, count + 1).tolist()) if weighted else None
    n_records = float(draw.integers(100, 100_000))
    whole_s = float(n_records * (np.cumprod([1.0, *relay[:-1]]) * cost).sum())
    return Instance(
        tuple(relay.tolist()), tuple(cost.tolist()), sizes, whole_s * float(draw.uniform(0, 1.2)), n_records
    )


def highs(instance: Instance) -> float:
    """Bytes or records that leave the source by the paper's program, in effective load factors 1 >= e_1 >= ... >= e_M
    >= 0.

    Budget and objective are scaled to 1, as HiGHS' tolerances are absolute: unscaled it is off by up to 3e-5.
    """
    reach = np.cumprod([1.0, *instance.relay[:-1]])
    gains, costs, unit = np.diff(instance.before), reach * instance.cost, np.eye(len(reach))
    gain, cost = np.abs(gains).max() or 1.0, costs.max() or 1.0
    chain = [unit[i] - unit[i - 1] for i in range(1, len(reach))]
    limits = np.array([instance.budget_s / instance.n_records / cost, *[0.0] * len(chain)])
    solution = linprog(gains / gain, A_ub=np.vstack([costs / cost, *chain]), b_ub=limits, bounds=(0, 1), method="highs")
    return float((instance.before[0] + solution.fun * gain) * instance.n_records)


def _own(instance: Instance) -> float:
    return (
        Frontier.of(instance.relay, instance.cost, instance.sizes).at(instance.budget_s, instance.n_records).objective
    )


def solver(count: int) -> bool:
    """Largest relative difference over all instances, and the ratio of times, block by block; False where missed."""
    drawn = instances(count)
    highs(drawn[0])
    worst, ratios, own_us, highs_us = 0.0, [], [], []
    for block in _blocks(drawn):
        own, own_s = _timed(_own, block)
        reference, highs_s = _timed(highs, block)
        worst = max(worst, *map(_difference, block, own, reference))
        ratios.append(highs_s / own_s)
        own_us.append(1e6 * own_s / len(block))
        highs_us.append(1e6 * highs_s / len(block))
    ratio = statistics.median(ratios)
    print(f"\nsolver: {count:,} random instances of 1 to {_MAX_OPERATORS} operators against SciPy's HiGHS")
    print(f"  largest relative difference {worst:.1e}: {_met(worst <= _MAX_DIFFERENCE)} {_MAX_DIFFERENCE:g}")
    print(
        f"  {ratio:.0f} times faster ({min(ratios):.0f} to {max(ratios):.0f} over {len(ratios)} blocks): "
        f"{_met(ratio >= _MIN_RATIO)} {_MIN_RATIO:g}; {statistics.median(own_us):.1f} us an instance against "
        f"{statistics.median(highs_us):.0f} us"
    )
    return worst <= _MAX_DIFFERENCE and ratio >= _MIN_RATIO


def _blocks(drawn: Sequence[Instance]) -> list[Sequence[Instance]]:
    size = -(-len(drawn) // _BLOCKS)
    return [drawn[i : i + size] for i in range(0, len(drawn), size)]


def _timed(solve: object, block: Sequence[Instance]) -> tuple[list[float], float]:
    assert callable(solve)
    before_s = time.perf_counter()
    solutions = [solve(instance) for instance in block]
    return solutions, time.perf_counter() - before_s


def _difference(instance: Instance, own: float, reference: float) -> float:
    scale = max(abs(reference), _NOTHING * instance.before[0] * instance.n_records)
    return abs(own - reference) / scale


def _met(true: bool) -> str:
    return "meets" if true else "MISSES"


def main(arguments: Sequence[str] = ()) -> int:
    """Run the parts that were asked for; 1 when one misses a target."""
    parser = argparse.ArgumentParser(
        prog="sluice lab jarvis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"some of {','.join(_PARTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="few instances, seeds and seconds: that everything runs")
    parser.add_argument("--data", type=Path, help="folder of real traces, for the part bytes; drawn ones without it")
    asked = parser.parse_args(list(arguments))
    if unknown := [part for part in asked.parts.split(",") if part not in _PARTS]:
        parser.error(f"--parts has {', '.join(unknown)}; allowed: {', '.join(_PARTS)}")
    print(machine())
    met = [_PARTS[part](asked) for part in asked.parts.split(",")]
    return 0 if all(met) else 1


def _solver(asked: argparse.Namespace) -> bool:
    return solver(200 if asked.quick else 10_000)


def _bytes(asked: argparse.Namespace) -> bool:
    """Bytes of probes on the wire against those predicted."""
    origin = "round trips of PlanetLab, repeated in time" if asked.data else "drawn round trips"
    print(f"\nbytes: probes of S2SProbe made of {origin}, by an agent's runtime and as predicted")
    loads = [ProbeLoad(1, 5), ProbeLoad(1, 2), ProbeLoad(1, 10, 60), ProbeLoad(16, 5), ProbeLoad(16, 2)]
    return sent_bytes(loads[:1] if asked.quick else loads, planetlab_ms(asked.data, 100 if asked.quick else 490))


def _throughput(asked: argparse.Namespace) -> bool:
    return throughput(_QUICK_BUDGETS) if asked.quick else throughput()


def _scale(asked: argparse.Namespace) -> bool:
    met = several_sources()
    several_queries()
    return met


def _convergence(asked: argparse.Namespace) -> bool:
    seeds, fewer, pipelines = (2, 1, 2) if asked.quick else (20, 5, 100)
    met = [convergence(seeds), staying(fewer), margins(fewer), termination(pipelines), overhead(pipelines)]
    return all(met)


def _real(asked: argparse.Namespace) -> bool:
    return real(1, quick=True) if asked.quick else real(3)


_PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "solver": _solver,
    "bytes": _bytes,
    "throughput": _throughput,
    "scale": _scale,
    "convergence": _convergence,
    "real": _real,
}
