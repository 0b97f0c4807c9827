"""Plans of a map-reduce stage against grid, rules of thumb and simulation: ``./sluice lab planner-plans``.

An exhaustive grid (36 pairs of M and R, 5 x 30 x 30 intervals, spaced evenly in the logarithm) searches the same model
in the same run. The paper's nine rules of thumb (table 4) run on ten nodes beside what is planned, and those that keep
the constraint of the windowed stage are driven to the largest rate at which they do (figure 6(i)). Last, plans of three
nodes and plans for the paper's rates are simulated at the largest rate that each is said to bear.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import engine.planner.kernel
from engine.arrays import FloatArray
from engine.compiler import compiled, source_stamp
from engine.order_statistics import normal_maximum
from engine.planner.kernel import ANSWER_SIZE, StageModel, judge
from engine.planner.latency import LatencyOptions, stage_model
from engine.planner.plan import StageSettings
from engine.planner.search import SearchLimits, StageSearch
from engine.planner.sizing import size_stage
from lab.benchmarks.machine import machine
from lab.benchmarks.planner_model import (
    HARDWARE,
    WORKLOADS,
    SimulatedLatency,
    StageSample,
    metric_s,
    simulate_all,
    simulated_latency,
)

__all__ = ["main"]

_CONSTRAINTS_S = {"sessions": 0.5, "word count": 1.0, "windowed": 3.0}
_RATES = {"sessions": 8e6, "word count": 1e6, "windowed": 1e6}
_STATISTICS = ("mean", "q0.99")
_CEILING, _AIM = 0.85, 0.93
_LIMITS = SearchLimits()
_MAX_NODES = 40
_POINTS, _QUICK_POINTS = (5, 30, 30), (2, 3, 3)
_REPEATS = 5
_NEAR, _MAX_PLAN_S = 0.995, 0.2

_NODES, _RULE_NODES = 3, 10
_BUFFER_BYTES = 3.6e6
_RULES_S = tuple((b_sh_s, b_ch_s) for b_sh_s in (0.01, 0.1, 1.0) for b_ch_s in (0.01, 0.1, 1.0))
_RUNS = 4
#: Of the rules, those that keep the windowed stage's constraint at the paper's rate.
_SWEPT_S = ((0.01, 1.0), (0.1, 0.1), (0.1, 1.0), (1.0, 0.1))
_SWEEP, _SWEEP_STEPS = (0.5, 1.2), 6  # shares of the rate that the plan bears; of bisection, to 1.4 %


@dataclass(frozen=True, slots=True)
class PlanCase:
    """A question of a plan: workload, statistic, form of the model, ceiling and aim."""

    name: str
    statistic: str = "mean"
    variant: str = "improved"
    is_bound: bool = False
    ceiling: float = _CEILING
    aim: float = _AIM

    @property
    def constraint_s(self) -> float:
        return _CONSTRAINTS_S[self.name]

    @property
    def label(self) -> str:
        bound = ", bound" if self.is_bound else ""
        return f"{self.name}, {self.statistic}{bound}, {self.variant}"

    def options(self) -> LatencyOptions:
        return LatencyOptions.of_statistic(self.statistic, variant=self.variant, is_bound=self.is_bound)

    def model(self) -> StageModel:
        return stage_model(WORKLOADS[self.name], replace(HARDWARE, rho_max=self.ceiling), self.options())

    def search(self) -> StageSearch:
        hardware = replace(HARDWARE, rho_max=self.ceiling)
        return StageSearch(WORKLOADS[self.name], hardware, self.options(), _LIMITS, self.aim * self.constraint_s)


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="sluice lab planner-plans", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one plan against a coarse grid, not judged")
    options, _ = parser.parse_known_args(list(arguments))
    print(f"Machine: {machine()}")
    began_s = time.perf_counter()
    if options.quick:
        quality([PlanCase("word count")], _QUICK_POINTS, scan_grid.py_func)  # type: ignore[attr-defined]
        return 0
    met = [quality(_cases(), _POINTS, scan_grid), rules_of_thumb(), sustained_rates(), validated()]
    print(f"\nplanner-plans: {time.perf_counter() - began_s:.0f} s")
    return 0 if all(met) else 1


def _cases() -> list[PlanCase]:
    kinds = (("mean", "improved", False), ("q0.99", "improved", False), ("q0.99", "improved", True))
    kinds += (("mean", "paper", False), ("q0.99", "paper", False))
    return [PlanCase(name, statistic, variant, bound) for name in WORKLOADS for statistic, variant, bound in kinds]


# Against the grid


def quality(cases: Sequence[PlanCase], points: tuple[int, int, int], scan: Callable[..., float]) -> bool:
    """Largest rate, fewest nodes and time of each plan against the exhaustive grid."""
    grid = [np.geomspace(low, high, n) for low, high, n in zip(_LIMITS.b_lo, _LIMITS.b_hi, points, strict=True)]
    print(
        f"\nplans against a grid of {_LIMITS.max_m * _LIMITS.max_r} x {' x '.join(map(str, points))} points; "
        f"ceiling {_CEILING:g}, aim {_AIM:g} of the constraint; median of {_REPEATS}"
    )
    print(f"  {'':34} {'nodes: plan':>11} {'grid':>5} {'rate, of the grid':>18} {'plan, ms':>9} {'grid, ms':>9}")
    shares, times_s, agreed = [], [], 0
    _grid_rate(scan, cases[0].search(), cases[0].model(), 1, [points_s[:1] for points_s in grid])  # compiles
    for case in cases:
        search, rate = case.search(), _RATES[case.name]
        model = case.model()
        durations_s = []
        for _ in range(_REPEATS):
            sizing = size_stage(
                WORKLOADS[case.name],
                HARDWARE,
                rate=rate,
                max_nodes=_MAX_NODES,
                constraint_s=case.constraint_s,
                statistic=case.statistic,
                is_bound=case.is_bound,
                variant=case.variant,
                with_curves=False,
            )
            durations_s.append(sizing.plan_s)
        assert sizing.plan is not None, "the paper's rates are within reach of forty nodes"
        nodes = sizing.plan.nodes
        grid_rate, grid_s = _grid_rate(scan, search, model, nodes, grid)
        fewest = _grid_nodes(scan, search, model, rate, grid)
        agreed += fewest == nodes
        shares.append(search.largest(nodes)[0] / grid_rate if grid_rate > 0.0 else math.inf)
        times_s.append(statistics.median(durations_s))
        print(
            f"  {case.label:34} {nodes:11} {fewest:5} {shares[-1]:18.2%} {1e3 * times_s[-1]:9.1f} {1e3 * grid_s:9.0f}"
        )
    return all(
        [
            _verdict(f"rate at least {_NEAR:.1%} of the grid's", f"least {min(shares):.2%}", min(shares) >= _NEAR),
            _verdict(
                f"a plan in less than {_MAX_PLAN_S:g} s", f"at most {max(times_s):.3f} s", max(times_s) < _MAX_PLAN_S
            ),
            _verdict("fewest nodes as the grid's", f"{agreed} of {len(cases)}", agreed == len(cases)),
        ]
    )


def _verdict(target: str, measured: str, is_met: bool) -> bool:
    print(f"  {target}: {measured}: {'met' if is_met else 'MISSED'}")
    return is_met


def _grid_rate(
    scan: Callable[..., float], search: StageSearch, model: StageModel, nodes: int, grid: Sequence[FloatArray]
) -> tuple[float, float]:
    """Largest rate over the grid and the seconds it took."""
    largest = np.array([normal_maximum(nodes * mappers) for mappers in range(1, _LIMITS.max_m + 1)])
    upper = 1.01 * nodes * search.node_capacity
    began_s = time.perf_counter()
    rate = scan(model, nodes, _LIMITS.max_r, search.goal_s, upper, largest, *grid, np.zeros(ANSWER_SIZE))
    return rate, time.perf_counter() - began_s


def _grid_nodes(
    scan: Callable[..., float], search: StageSearch, model: StageModel, rate: float, grid: Sequence[FloatArray]
) -> int:
    """Fewest nodes for which some point of the grid bears `rate`."""
    nodes = search.first_nodes(rate)
    while _grid_rate(scan, search, model, nodes, grid)[0] < rate:
        nodes += 1
    return nodes


def _entry(stamp: int) -> Callable[..., float]:
    """The scan, compiled once for this state of the planner: numba's cache does not see that `judge` has changed."""

    @compiled
    def scan_grid(
        model: StageModel,
        nodes: int,
        max_r: int,
        goal_s: float,
        upper: float,
        largest: FloatArray,
        b_in_s: FloatArray,
        b_sh_s: FloatArray,
        b_ch_s: FloatArray,
        answer: FloatArray,
    ) -> float:
        """Largest rate within the goal: each point is tried at the best rate so far, and bisected if it bears that."""
        best = 1e-6 * upper if stamp else 0.0
        for m in range(1, len(largest) + 1):
            for r in range(1, max_r + 1):
                for i in b_in_s:
                    for sh in b_sh_s:
                        for ch in b_ch_s:
                            a, b = largest[m - 1, 0], largest[m - 1, 1]
                            low, high = best * (1.0 + 1e-5), upper
                            if judge(model, low, nodes, m, r, i, sh, ch, a, b, answer) > goal_s:
                                continue
                            while high - low > 1e-5 * high:
                                middle = (low + high) / 2.0
                                if judge(model, middle, nodes, m, r, i, sh, ch, a, b, answer) <= goal_s:
                                    low = middle
                                else:
                                    high = middle
                            best = low
        return best

    return scan_grid


scan_grid = _entry(source_stamp(Path(engine.planner.kernel.__file__).parent))


# Rules of thumb


def rules_of_thumb() -> bool:
    """Table 4: nine rules of thumb on ten nodes, and what is planned, simulated."""
    hardware = replace(HARDWARE, map_buf=_BUFFER_BYTES)
    rows = [
        (f"B_sh {b_sh_s:g} s, B_ch {b_ch_s:g} s", [StageSettings(_RULE_NODES, 4, 4, 0.005, b_sh_s, b_ch_s)] * 3)
        for b_sh_s, b_ch_s in _RULES_S
    ]
    sizings = [
        size_stage(profile, hardware, rate=_RATES[name], max_nodes=_MAX_NODES, constraint_s=_CONSTRAINTS_S[name],
                   with_curves=False)
        for name, profile in WORKLOADS.items()
    ]  # fmt: skip
    rows.append(("planned, fewest nodes", [sizing.plan.settings for sizing in sizings if sizing.plan]))
    rows.append(("as many, least latency", [sizing.ends.latency.settings for sizing in sizings if sizing.ends.latency]))
    samples = [
        StageSample(name, WORKLOADS[name], _RATES[name], settings, 1, hardware=hardware)
        for _, several in rows
        for name, settings in zip(WORKLOADS, several, strict=True)
    ]
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(_rule_latency, samples))
    print(
        f"\nrules of thumb: table 4 on {_RULE_NODES} nodes, M = R = 4, B_in 5 ms; simulated mean latency, s; "
        "* meets the constraint, - not stable"
    )
    print(f"  {'':26}" + "".join(f"{f'{name}, {_CONSTRAINTS_S[name]:g} s':>22}" for name in WORKLOADS))
    for place, (label, several) in enumerate(rows):
        row = outcomes[place * len(WORKLOADS) : (place + 1) * len(WORKLOADS)]
        cells = []
        for constraint_s, settings, outcome in zip(_CONSTRAINTS_S.values(), several, row, strict=True):
            word = (
                f"{outcome.mean_s:.2f}{'*' if holds(outcome, constraint_s) else ''}" if outcome.stable == 1.0 else "-"
            )
            cells.append(word if place < len(_RULES_S) else f"{word} on {settings.nodes}")
        print(f"  {label:26}" + "".join(f"{cell:>22}" for cell in cells))
    count = len(_RULES_S) * len(WORKLOADS)
    unstable = sum(outcome.stable < 1.0 for outcome in outcomes[:count])
    held = [holds(outcome, _CONSTRAINTS_S[sample.name]) for sample, outcome in zip(samples, outcomes, strict=True)]
    print(f"  of {count}, {unstable} are not stable and {count - unstable - sum(held[:count])} miss the constraint")
    return _verdict(
        "planned settings meet the constraint", f"{sum(held[count:])} of {len(held[count:])}", all(held[count:])
    )


def sustained_rates() -> bool:
    """Figure 6(i): the largest rates at which simulated means of the windowed stage keep the constraint.

    Plans with and without the margins that the product keeps; the paper's has none.
    """
    cases = {"planned": PlanCase("windowed", ceiling=1.0, aim=1.0), "planned with margins": PlanCase("windowed")}
    plans = {name: _plan(case, _RULE_NODES) for name, case in cases.items()}
    profile, constraint_s = WORKLOADS["windowed"], cases["planned"].constraint_s
    settings = {name: planned for name, (_, planned) in plans.items()} | {
        f"B_sh {b_sh_s:g} s, B_ch {b_ch_s:g} s": StageSettings(_RULE_NODES, 4, 4, 0.005, b_sh_s, b_ch_s)
        for b_sh_s, b_ch_s in _SWEPT_S
    }
    bears, _ = plans["planned"]
    samples = [StageSample("windowed", profile, bears, several, 1) for several in settings.values()]
    with ProcessPoolExecutor() as pool:
        rates = dict(zip(settings, pool.map(_sustained_rate, samples), strict=True))
    print(f"\nlargest rates: windowed on {_RULE_NODES} nodes, mean within {constraint_s:g} s, simulated, tuples/s")
    largest = rates["planned"]
    for name, rate in rates.items():
        said = f"said to bear {plans[name][0]:,.0f}" if name in plans else f"planned {largest / rate - 1.0:+.1%}"
        print(f"  {name:26} {rate:12,.0f}  {said}")
    gains = [largest / rate - 1.0 for name, rate in rates.items() if name not in plans]
    figures = f"{min(gains):+.1%} to {max(gains):+.1%} (the paper: +5.2% to +57%)"
    return _verdict("planned sustains more than each rule", figures, min(gains) > 0.0)


def _sustained_rate(sample: StageSample) -> float:
    """By bisection in the logarithm, from half the rate that the plan bears."""
    low, high = (math.log(share * sample.rate) for share in _SWEEP)
    for _ in range(_SWEEP_STEPS):
        middle = (low + high) / 2.0
        outcome = _rule_latency(replace(sample, rate=math.exp(middle)))
        low, high = (middle, high) if holds(outcome, _CONSTRAINTS_S[sample.name]) else (low, middle)
    return math.exp(low)


def _rule_latency(sample: StageSample) -> SimulatedLatency:
    """A short run first: small batches are many, and most of those settings are not stable."""
    first = simulated_latency(replace(sample, run_s=10.0, warm_up_s=5.0))
    if first.stable < 1.0 or sample.profile.window == 0.0:
        return first
    return simulated_latency(replace(sample, run_s=65.0, warm_up_s=25.0))  # ends of three windows


def holds(simulated: SimulatedLatency, constraint_s: float, statistic: str = "mean") -> bool:
    """Whether the constraint was kept, over all runs together, and all of them were stable."""
    value_s = simulated.mean_s if statistic == "mean" else simulated.quantile_s
    return simulated.stable == 1.0 and value_s <= constraint_s


# Plans in simulation


def validated() -> bool:
    """Plans of three nodes, and plans for the paper's rates, simulated at the largest rate they are said to bear."""
    rows: list[tuple[PlanCase, str, float, StageSample]] = []
    for name in WORKLOADS:
        for variant in ("paper", "improved"):
            case = PlanCase(name, variant=variant, ceiling=1.0, aim=1.0)
            rate, settings = _plan(case, _NODES)
            rows += [(case, f"{share:.0%}", rate, _sample(case, settings, share * rate)) for share in (0.8, 0.9, 1.0)]
    defaults = [PlanCase(name, statistic) for statistic in _STATISTICS for name in WORKLOADS]
    first = len(rows)
    for nodes in (_NODES, _RULE_NODES):
        for case in defaults:
            rate, settings = _plan(case, nodes)
            rows.append((case, "100%", rate, _sample(case, settings, rate)))
    outcomes = simulate_all([sample for *_, sample in rows])
    print(f"\nplans in simulation, {_RUNS} runs each: latency in s at a share of the rate that the plan bears")
    print(
        f"  {'':28} {'ceiling, aim':>12} {'nodes':>5} {'bears':>10} {'at':>5} {'modelled':>9} {'simulated':>9}  limit"
    )
    held = []
    for (case, share, rate, sample), outcome in zip(rows, outcomes, strict=True):
        kept = holds(outcome, case.constraint_s, case.statistic)
        held.append(kept)
        modelled_s = metric_s(sample, case.variant, "mean" if case.statistic == "mean" else "normal")
        value_s = outcome.mean_s if case.statistic == "mean" else outcome.quantile_s
        verdict = "kept" if kept else "not stable" if outcome.stable < 1.0 else "exceeded"
        print(
            f"  {case.label:28} {f'{case.ceiling:g}, {case.aim:g}':>12} {sample.settings.nodes:5} {rate:10,.0f} "
            f"{share:>5} {modelled_s:9.3f} {value_s:9.3f}  {case.constraint_s:g}: {verdict}"
        )
    counts = {
        statistic: [kept for (case, *_), kept in zip(rows[first:], held[first:], strict=True)
                    if case.statistic == statistic]
        for statistic in _STATISTICS
    }  # fmt: skip
    means, quantiles = counts.values()
    print(f"  with ceiling {_CEILING:g} and aim {_AIM:g}: q0.99 kept by {sum(quantiles)} of {len(quantiles)}")
    return _verdict("mean kept with ceiling and aim", f"{sum(means)} of {len(means)}", all(means))


def _plan(case: PlanCase, nodes: int) -> tuple[float, StageSettings]:
    rate, settings = case.search().largest(nodes)
    assert settings is not None, "the constraint is within reach"
    return rate, settings


def _sample(case: PlanCase, settings: StageSettings, rate: float) -> StageSample:
    profile = WORKLOADS[case.name]
    if profile.window > 0.0:
        return StageSample(case.name, profile, rate, settings, _RUNS, 4 * profile.window, warm_up_s=profile.window)
    return StageSample(case.name, profile, rate, settings, _RUNS)
