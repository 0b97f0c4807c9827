"""Realised latencies against those of single events: errors, coverage of intervals and false claims.

Random systems (single queues by Lindley's recursion, networks by the simulator) and, with --data, real traces are
estimated in one run by the walk (new) and by Flow at a quarter of the slices with its jackknife interval (old), from
the same documents. Statistics are exact (counted on the very events, the variation of costs given) or of the first 8 %
of events in 8 batches, from which the variation of costs is derived too. Counts of 5 min are judged as a class of
their own. Errors, bias and half widths are relative to the realised value.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.arrays import statistic_of
from engine.document.deployment import Deployment
from engine.errors import EngineError
from engine.estimation.flow import flow
from engine.estimation.loads import sink_events
from engine.estimation.noise.realisation import realise
from engine.plans.ranking import Z, jackknife, standard_error
from lab.benchmarks.honesty_systems import (
    CLASSES,
    GRIDS,
    MINUTES,
    QUERY,
    STATISTICS,
    KnownSystem,
    build,
    single,
    traces,
)
from lab.benchmarks.machine import machine

__all__ = ["LATENCIES", "Claim", "Figures", "Result", "Row", "figures_of", "main", "measure", "missed", "old_claims"]

LATENCIES = ("worst", "q0.99", "mean")
_OLD_SLICES = 4
_QUICK = 12
_JUDGED_FROM = 60  # results
_COVERAGE = (0.88, 0.93)
_MEDIAN_ERROR = {"worst": 0.10, "mean": 0.15}
_STEADY, _STEADY_ERROR = "M/D/1", 0.05
_BIAS, _FALSE, _COST = -0.05, 0.01, 3.0
_QUEUES = {"M/M/1": 1.0, "M/D/1": 0.0}
_QUEUE_LOADS, _QUEUE_RATE = (0.3, 0.5, 0.7, 0.8, 0.9), 40.0


@dataclass(frozen=True, slots=True)
class Claim:
    """An estimate's words on one latency; `under_s` is None where it says no "under"."""

    estimate_s: float
    low_s: float
    high_s: float
    under_s: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """Relative errors (median, 90 % quantile, median with its sign), coverage, half width; false and all "under"."""

    error: float
    error_p90: float
    bias: float
    coverage: float
    half_width: float
    false_under: int
    under: int

    def __str__(self) -> str:
        errors = f"{100 * self.error:.0f}/{100 * self.error_p90:.0f} {100 * self.bias:+.0f}"
        return f"{errors} {100 * self.coverage:.0f} {100 * self.half_width:.0f}"


@dataclass(frozen=True, slots=True)
class Result:
    """Realised latencies of one system, both ways' claims about them, and seconds that Flow and the walk took."""

    realised_s: dict[str, float]
    new: dict[str, Claim]
    old: dict[str, Claim]
    flow_s: float
    walk_s: float
    for_a_person: bool


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one class; systems that an estimate refused are counted alone."""

    results: list[Result] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, result: Result | str) -> None:
        """Add a result, or the words of a refusal."""
        if isinstance(result, str):
            self.refused.append(result)
        else:
            self.results.append(result)

    def figures(self, way: str) -> dict[str, Figures]:
        """Of one way, ``new`` or ``old``, by latency."""
        return {
            name: figures_of(
                [result.realised_s[name] for result in self.results],
                [(result.new if way == "new" else result.old)[name] for result in self.results],
            )
            for name in LATENCIES
        }

    @property
    def cost(self) -> float:
        """Time of Flow with the walk over that of Flow."""
        return 1.0 + sum(r.walk_s for r in self.results) / sum(r.flow_s for r in self.results)


def main(arguments: Sequence[str] = ()) -> int:
    """Print the tables; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="sluice lab honesty", description=__doc__)
    parser.add_argument("--systems", type=int, default=200, help="systems of each class (200: some 10 minutes)")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK} systems of each class")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, help="folder of real traces")
    options, _ = parser.parse_known_args(list(arguments))
    systems = _QUICK if options.quick else options.systems
    if systems < 1:
        parser.error(f"--systems is {systems}; allowed: a whole number of at least 1")
    begun = time.perf_counter()
    print(f"Machine: {machine()}")
    print(f"{systems} systems of each class, seed {options.seed}")
    print("Cells: |error| median/p90, bias, coverage, half width, in % of what was realised; new | old")
    for number, kind in itertools.product(range(len(GRIDS)), STATISTICS):
        measure(build(CLASSES[-1], number, options.seed), kind)  # compiles
    classes: dict[str, Row] = {f"{name}, {kind}": Row() for name in (*CLASSES, MINUTES.name) for kind in STATISTICS}
    grids: dict[str, Row] = {f"{grid.name}, {kind}": Row() for grid in GRIDS for kind in STATISTICS}
    for number in range(systems):
        for name in CLASSES:
            system = build(name, number, options.seed)
            for kind in STATISTICS:
                result = measure(system, kind)
                classes[f"{MINUTES.name if system.grid is MINUTES else name}, {kind}"].add(result)
                grids[f"{system.grid.name}, {kind}"].add(result)
    faults = _table("class, statistics", classes)
    judged = any(len(row.results) >= _JUDGED_FROM for row in classes.values())
    if not judged:
        print(f"fewer than {_JUDGED_FROM} results in every class: too few to judge")
    _table("arrivals known, statistics", grids)
    _pollaczek_khinchine(min(20, 1 + systems // 8), options.seed)
    if options.data:
        real: dict[str, Row] = {}
        for system in traces(options.data, options.seed):
            for kind in STATISTICS:
                real.setdefault(f"{system.name}, {system.grid.name}, {kind}", Row()).add(measure(system, kind))
        faults += _table("trace, arrivals known, statistics", real)
    print(f"\nTook {time.perf_counter() - begun:.0f} s. Targets missed: {len(faults) if judged else 'not judged'}")
    for fault in faults:
        print(f"- {fault}")
    return 1 if faults else 0


def measure(system: KnownSystem, kind: str) -> Result | str:
    """Claims of both ways about a system with one kind of statistics; the words of a refusal."""
    deployment = system.deployments[kind]
    try:
        start = time.process_time()
        flowed = flow(deployment, by_input=True)
        between = time.process_time()
        realised = realise(deployment, flowed)[QUERY]
        end = time.process_time()
        old = old_claims(deployment)
    except EngineError as error:
        return str(error)
    statistics = realised.statistics
    return Result(
        realised_s=system.realised_s,
        new={name: Claim(s.estimate_s, s.low_s, s.high_s, realised.under_s) for name, s in statistics.items()},
        old=old,
        flow_s=between - start,
        walk_s=end - between,
        for_a_person=bool(realised.assumed_sources),
    )


def old_claims(deployment: Deployment) -> dict[str, Claim]:
    """Claims of Flow at a quarter of the slices, with the interval of its jackknife: the baseline.

    The interval is the estimate and three standard errors with the width of a slice on either side. It is said to be
    "under" the width of Flow's slices where it is.
    """
    flowed = flow(deployment, slices=_OLD_SLICES, by_input=True)
    runs = jackknife(deployment, slices=_OLD_SLICES)
    weights = np.repeat(sink_events(deployment)[QUERY], _OLD_SLICES) / _OLD_SLICES
    resolution_s = deployment.subinterval_s / _OLD_SLICES
    claims = {}
    for name in LATENCIES:
        estimate_s = statistic_of(flowed.by_query[QUERY], weights, name)
        assert estimate_s is not None, "every benchmark's query puts out events"
        replicates = [statistic_of(run.by_query[QUERY], weights, name) for run in runs]
        half_s = Z * float(standard_error(replicates)) + deployment.subinterval_s
        under_s = resolution_s if estimate_s < resolution_s else None
        claims[name] = Claim(estimate_s, max(0.0, estimate_s - half_s), estimate_s + half_s, under_s)
    return claims


def figures_of(realised_s: Sequence[float], claims: Sequence[Claim]) -> Figures:
    """Figures of claims about as many realised latencies."""
    true = np.asarray(realised_s)
    estimate, low, high = (np.array([getattr(c, key) for c in claims]) for key in ("estimate_s", "low_s", "high_s"))
    signed = estimate / true - 1.0
    under = [
        (value, claim.under_s) for value, claim in zip(realised_s, claims, strict=True) if claim.under_s is not None
    ]
    return Figures(
        error=float(np.median(np.abs(signed))),
        error_p90=float(np.quantile(np.abs(signed), 0.9)),
        bias=float(np.median(signed)),
        coverage=float(((low <= true) & (true <= high)).mean()),
        half_width=float(np.median((high - low) / 2.0 / true)),
        false_under=sum(value > limit for value, limit in under),
        under=len(under),
    )


def missed(row: Row, steady: bool) -> list[str]:
    """Targets that a row misses, in words; none of a row with too few results to judge."""
    if len(row.results) < _JUDGED_FROM:
        return []
    figures, faults = row.figures("new"), []
    limits = _MEDIAN_ERROR | ({"worst": _STEADY_ERROR} if steady else {})
    for name, figure in figures.items():
        if not _COVERAGE[0] <= figure.coverage <= _COVERAGE[1]:
            faults.append(f"coverage of {name} {100 * figure.coverage:.1f} %")
        if figure.error > limits.get(name, np.inf):
            faults.append(f"median error of {name} {100 * figure.error:.1f} % over {100 * limits[name]:.0f} %")
        if figure.bias < _BIAS:
            faults.append(f"bias of {name} {100 * figure.bias:.1f} %")
    false, under = (sum(getattr(figure, key) for figure in figures.values()) for key in ("false_under", "under"))
    if false > _FALSE * under:
        faults.append(f'false "under" {false} of {under}')
    if row.cost > _COST:
        faults.append(f"cost {row.cost:.1f} x Flow")
    return faults


def _table(title: str, rows: dict[str, Row]) -> list[str]:
    """Print rows that have results; returns the targets missed."""
    print(f"\n| {title} | n | worst | q0.99 | mean | false under | person | refused | x Flow |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    faults = []
    for name, row in rows.items():
        count = len(row.results)
        if not count:
            continue
        new, old = row.figures("new"), row.figures("old")
        cells = [f"{new[key]} \\| {old[key]}" for key in LATENCIES]
        false = f"{_under(new)} \\| {_under(old)}"
        person = sum(result.for_a_person for result in row.results)
        tail = [false, str(person), str(len(row.refused)), f"{row.cost:.1f}"]
        print(f"| {' | '.join([name, str(count), *cells, *tail])} |", flush=True)
        faults += [f"{name}: {fault}" for fault in missed(row, name.startswith(_STEADY))]
    return faults


def _under(figures: dict[str, Figures]) -> str:
    """False claims of the worst latency and of all, of how many."""
    worst = figures["worst"]
    false, under = (sum(getattr(figure, key) for figure in figures.values()) for key in ("false_under", "under"))
    return f"{worst.false_under}/{worst.under}, {false}/{under}"


def _pollaczek_khinchine(seeds: int, seed: int) -> None:
    """Print the mean latency of many horizons over that of Pollaczek and Khinchine, of estimates and of events."""
    print(f"\nMean over Pollaczek-Khinchine, {seeds} seeds, 1 s counts: walk | events")
    grid = GRIDS[2]
    for name, cv2 in _QUEUES.items():
        cells = []
        for load in _QUEUE_LOADS:
            service_s = load / _QUEUE_RATE
            exact_s = service_s + load * service_s * (1.0 + cv2) / (2.0 * (1.0 - load))
            means = []
            for number in range(seeds):
                rng = np.random.default_rng([seed, number])
                times = np.sort(rng.uniform(0.0, grid.horizon_s, rng.poisson(_QUEUE_RATE * grid.horizon_s)))
                costs = service_s * (rng.standard_exponential(len(times)) if cv2 else np.ones(len(times)))
                system = single(name, grid, times, costs, cv2)
                deployment = system.deployments["exact"]
                walk = realise(deployment, flow(deployment, by_input=True))[QUERY].statistics["mean"]
                means.append((walk.estimate_s, system.realised_s["mean"]))
            walked, served = np.mean(means, axis=0) / exact_s
            cells.append(f"{load:.0%}: {walked:.2f} | {served:.2f}")
        print(f"{name}: {'; '.join(cells)}", flush=True)
