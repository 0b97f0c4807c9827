"""Whether predictions hold: realised latencies of random queues against the estimate with randomness and without.

Queues of one and of two nodes, at 30 to 110 % load for 10 min, are served event by event (Lindley's recursion, exact);
arrivals are then known as time stamps, or as counts per 0.25 s, 1 s or 5 min, costs exactly or by a sample of 160
events. Of each statistic (worst case, 99th percentile, mean): median and 90 % quantile of |ln(estimate/true)|, bias
(median of the signed error), share of true values within the 90 % interval, and its median half width in ln; beside it
the same of Flow with its own interval (sampled costs alone have one). Last, the share of wrong "under X".
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.machine import machine
from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate

__all__ = ["CLASSES", "HonestyRow", "judge_class", "main"]

HORIZON_S, RATE_EPS = 600.0, 40.0
KNOWN_S = {"stamps": 0.05, "0.25 s": 0.25, "1 s": 1.0, "5 min": 300.0}
STATISTICS = ("worst", "q0.99", "mean")
SAMPLE, BATCHES = 160, 8  # events behind sampled costs
_MIN_LATENCY_S = 1e-3  # shorter latencies count as this long: nobody tells them apart
_COVERAGE, _ERRORS, _BIAS, _FALSE = (0.88, 0.93), {"worst": 0.10, "mean": 0.15}, -0.05, 0.01

Draw = Callable[[np.random.Generator, int], FloatArray]


def _poisson(rng: np.random.Generator) -> FloatArray:
    return np.sort(rng.uniform(0.0, HORIZON_S, rng.poisson(RATE_EPS * HORIZON_S)))


def _on_off(rng: np.random.Generator) -> FloatArray:
    """Bursts of 2 s at four times the mean rate, and of silence of 6 s, both exponential."""
    times, at, is_on = [], 0.0, True
    while at < HORIZON_S:
        end = at + rng.exponential(2.0 if is_on else 6.0)
        if is_on:
            times.append(rng.uniform(at, end, rng.poisson(4.0 * RATE_EPS * (end - at))))
        at, is_on = end, not is_on
    events = np.sort(np.concatenate(times))
    return events[events < HORIZON_S]


def _lognormal(rng: np.random.Generator, count: int) -> FloatArray:
    return rng.lognormal(-0.5 * np.log(5.0), np.sqrt(np.log(5.0)), count)


@dataclass(frozen=True)
class QueueClass:
    """Arrivals, costs of an event (mean 1) with their squared coefficient of variation, and nodes in a row."""

    arrivals: Callable[[np.random.Generator], FloatArray]
    costs: Draw
    cv2: float
    nodes: int = 1


CLASSES = {
    "M/M/1": QueueClass(_poisson, lambda rng, n: rng.exponential(1.0, n), 1.0),
    "M/D/1": QueueClass(_poisson, lambda rng, n: np.ones(n), 0.0),
    "heavy tail": QueueClass(_poisson, _lognormal, 4.0),
    "on-off": QueueClass(_on_off, lambda rng, n: rng.exponential(1.0, n), 1.0),
    "chain": QueueClass(_poisson, lambda rng, n: rng.exponential(1.0, n), 1.0, nodes=2),
}


@dataclass(frozen=True)
class HonestyRow:
    """Figures of one class, one way of knowing arrivals, and exact or sampled costs.

    `errors` is of shape (2, 3, k): with and without randomness, by statistic, ln(estimate/true) of k systems; `held`
    and `halves` likewise, NaN where there is no interval; `wrong_under` of shape (2, k).
    """

    errors: FloatArray
    held: FloatArray
    halves: FloatArray
    wrong_under: FloatArray

    def lines(self) -> list[str]:
        """A line per way and statistic."""
        lines = []
        for way, name in enumerate(("with randomness", "Flow alone")):
            for i, statistic in enumerate(STATISTICS):
                error, held = self.errors[way, i], self.held[way, i]
                sizes, has_interval = np.abs(error), not np.isnan(held).all()
                text = f"{np.median(sizes):5.2f}/{np.quantile(sizes, 0.9):5.2f} {np.median(error):+6.2f}"
                told = f"{100 * np.nanmean(held):5.0f} % {self.half(way, i):5.2f}" if has_interval else "   none"
                lines.append(f"    {name:16} {statistic:6} {text}  {told}")
            lines.append(f"    {name:16} wrong 'under': {100 * self.wrong_under[way].mean():.1f} %")
        return lines

    def half(self, way: int, statistic: int) -> float:
        """Median half width of the intervals in ln."""
        return float(np.nanmedian(self.halves[way, statistic]))

    def misses(self) -> list[str]:
        """Targets that the estimate with randomness misses."""
        missed = []
        for i, statistic in enumerate(STATISTICS):
            coverage = float(np.nanmean(self.held[0, i]))
            if not _COVERAGE[0] <= coverage <= _COVERAGE[1]:
                missed.append(f"{statistic}: coverage {100 * coverage:.0f} %")
            error = float(np.median(np.abs(self.errors[0, i])))
            if error > _ERRORS.get(statistic, np.inf):
                missed.append(f"{statistic}: error {error:.2f}")
            if np.median(self.errors[0, i]) < _BIAS:
                missed.append(f"{statistic}: bias {np.median(self.errors[0, i]):+.2f}")
        if self.wrong_under[0].mean() > _FALSE:
            missed.append(f"wrong 'under' {100 * self.wrong_under[0].mean():.1f} %")
        return missed


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures of every class; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks honesty", description=__doc__)
    parser.add_argument("--systems", type=int, default=200, help="systems per class, spread over what is known (200)")
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args(list(arguments))
    begun_s, missed = time.monotonic(), []
    print(f"Machine: {machine()}")
    print("error Q50/Q90, bias, share within the 90 % interval, half width; errors and widths in ln")
    for name in CLASSES:
        for known in KNOWN_S:
            for sampled in (False, True):
                count = max(2, options.systems // (2 * len(KNOWN_S)))
                row = judge_class(name, known, sampled=sampled, count=count, seed=options.seed)
                print(f"{name}, arrivals as {known}, costs {'sampled' if sampled else 'exact'}, {count} systems")
                print("\n".join(row.lines()), flush=True)
                where = f"{name}, {known}, {'sampled' if sampled else 'exact'}"
                missed += [f"{where}: {miss}" for miss in row.misses()]
    print(f"{time.monotonic() - begun_s:.0f} s. Targets missed: {len(missed)}")
    print("\n".join(f"  {miss}" for miss in missed))
    return 1 if missed else 0


def judge_class(name: str, known: str, *, sampled: bool, count: int, seed: int) -> HonestyRow:
    """Figures of `count` systems of a class."""
    shape = (2, len(STATISTICS), count)
    errors, held, halves = np.zeros(shape), np.full(shape, np.nan), np.full(shape, np.nan)
    wrong_under = np.zeros((2, count))
    for k in range(count):
        rng = np.random.default_rng([seed, list(CLASSES).index(name), list(KNOWN_S).index(known), sampled, k])
        load = 0.3 + 0.8 * (k + rng.random()) / count
        document, true = _system(CLASSES[name], known, sampled, load, rng)
        report = estimate(Deployment.parse(document)).queries["q"]
        assert report.noise is not None
        plain = {"worst": report.worst_s, "q0.99": report.quantiles["0.99"], "mean": report.mean_s}
        for i, statistic in enumerate(STATISTICS):
            figures, value = report.noise.statistics[statistic], max(true[statistic], _MIN_LATENCY_S)
            errors[:, i, k] = np.log(np.maximum([figures.estimate_s, plain[statistic]], _MIN_LATENCY_S) / value)
            held[0, i, k] = figures.low_s <= true[statistic] <= figures.high_s
            halves[0, i, k] = 0.5 * np.log(max(figures.high_s, _MIN_LATENCY_S) / max(figures.low_s, _MIN_LATENCY_S))
        if report.low_s is not None and report.high_s is not None:
            held[1, 0, k] = report.low_s <= true["worst"] <= report.high_s
            halves[1, 0, k] = 0.5 * np.log(max(report.high_s, _MIN_LATENCY_S) / max(report.low_s, _MIN_LATENCY_S))
        wrong_under[0, k] = true["worst"] > report.noise.under_s
        wrong_under[1, k] = report.under_resolution and true["worst"] > report.resolution_s
    return HonestyRow(errors, held, halves, wrong_under)


def _system(
    queue: QueueClass, known: str, sampled: bool, load: float, rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, float]]:
    """A document, and the latencies that its events really had."""
    arrivals = queue.arrivals(rng)
    mean_s, left = load / RATE_EPS, arrivals
    for _ in range(queue.nodes):
        left = _served(left, mean_s * queue.costs(rng, len(arrivals)))
    latency = left - arrivals
    true = {"worst": float(latency.max()), "q0.99": float(np.quantile(latency, 0.99)), "mean": float(latency.mean())}
    step_s = KNOWN_S[known]
    width_s = min(step_s, 0.25)
    counts = np.histogram(arrivals, np.arange(0.0, HORIZON_S + step_s / 2, step_s))[0].astype(float)
    per_step = round(step_s / width_s)
    source = {"id": "s", "arrivals": np.repeat(counts / per_step, per_step).tolist()}
    if per_step > 1:
        source["arrivals_step_s"] = step_s
    operators = []
    for i in range(queue.nodes):
        entry = {"from": f"o{i - 1}" if i else "s", "selectivity": 1.0, **_cost(queue, mean_s, sampled, rng)}
        operators.append({"id": f"o{i}", "query": "q", "node": f"n{i}", "inputs": [entry]})
    nodes = [{"id": f"n{i}", "capacity_cps": 1.0} for i in range(queue.nodes)]
    return {"subinterval_s": width_s, "sources": [source], "nodes": nodes, "operators": operators}, true


def _cost(queue: QueueClass, mean_s: float, sampled: bool, rng: np.random.Generator) -> dict[str, Any]:
    if not sampled:
        return {"cycles_per_event": mean_s, "cost_cv2": queue.cv2}
    events = SAMPLE // BATCHES
    cycles = [float(mean_s * queue.costs(rng, events).sum()) for _ in range(BATCHES)]
    batches = [{"events": events, "outputs": events, "cycles": total} for total in cycles]
    return {"cycles_per_event": sum(cycles) / SAMPLE, "batches": batches}


def _served(arrivals: FloatArray, services: FloatArray) -> FloatArray:
    """When each event leaves a first-come server: Lindley's recursion by its running maximum."""
    done = np.cumsum(services)
    left: FloatArray = done + np.maximum.accumulate(arrivals - (done - services))
    return left
