"""Plan selection from small samples of stock trades, the experiment of section IX-A of the Mace paper."""

from __future__ import annotations

import argparse
import gc
import re
import time
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray, frozen_array
from engine.document.deployment import Deployment
from engine.document.elements import Input, Node, Operator, Source, Window
from engine.plans.answer import OneNode, Ranking
from engine.plans.ranking import QueryPlan, rank
from engine.workload import on_off_rate
from lab.benchmarks.machine import machine
from lab.plans.samples import Function, PlanRunner, sample, with_sample

__all__ = ["PLANS", "SOURCE", "Trade", "functions", "main", "operators_of", "trades"]


SOURCE = "trades"
RATE_EPS = 2.0  # trades/s of the market
WINDOW_S = 60.0
SIMILAR = 35  # shares
PASSES = 50  # percent of reviews
#: Where the select stands: at the source, in the middle, at the sink.
PLANS = {
    "source": ("select", "falling", "pairs"),
    "middle": ("falling", "select", "pairs"),
    "sink": ("falling", "pairs", "select"),
}
_WORDS = re.compile(r"[a-z]+")
_REVIEWS = 2000

SIZES = (100, 200, 500, 1000, 2000, 5000)
JUDGED = 500
LOAD = 0.8
CYCLES_PER_S = 1e9  # a cycle is a nanosecond
SUBINTERVALS = 1000
SLICES = 4


@dataclass(frozen=True, slots=True)
class Trade:
    """One trade; `at_s` is market time."""

    at_s: float
    price: float
    before: float
    volume: int
    review: str


def trades(count: int, seed: int) -> list[Trade]:
    """`count` trades with bursts of three times the low rate, ten minutes long on average."""
    rng = np.random.default_rng(seed)
    rate = on_off_rate(rng, RATE_EPS, 1.3 * count / RATE_EPS, 3.0, 1 / 3, 600.0, False)
    times = rate.draw_times(rng)[:count]
    steps = np.where(rng.random(count + 1) < 0.8, 1.0, -1.0) * rng.uniform(0.01, 0.1, count + 1)
    prices = 100.0 + np.cumsum(steps)
    volumes = np.clip(rng.uniform(0.0, 1200.0, count), 100.0, 1000.0).astype(int)
    reviews = _reviews(rng)
    chosen = rng.integers(0, len(reviews), count)
    return [
        Trade(float(times[i]), float(prices[i + 1]), float(prices[i]), int(volumes[i]), reviews[chosen[i]])
        for i in range(len(times))
    ]


def _reviews(rng: np.random.Generator) -> list[str]:
    words = ["".join(chr(97 + c) for c in rng.integers(0, 26, n)) for n in rng.integers(3, 9, 500)]
    return [" ".join(words[i] for i in rng.integers(0, len(words), n)) for n in rng.integers(60, 120, _REVIEWS)]


def review_score(review: str) -> bool:
    """The user-defined select: a score over the words of a review, some 50 microseconds of real work."""
    score = 0
    for word in _WORDS.findall(review):
        score = (score * 31 + zlib.crc32(word.encode())) % 1_000_003
    return score % 100 < PASSES


def functions() -> dict[str, Function]:
    """Fresh functions of the three operators; `pairs` holds the trades of the last minute."""
    recent: deque[Trade] = deque()

    def falling(trade: Trade, position: int) -> Iterable[Trade]:
        return (trade,) if trade.price < trade.before else ()

    def select(item: Trade | tuple[Trade, Trade], position: int) -> Iterable[Trade | tuple[Trade, Trade]]:
        parts = item if isinstance(item, tuple) else (item,)
        return (item,) if all(review_score(part.review) for part in parts) else ()

    def pairs(trade: Trade, position: int) -> Iterable[tuple[Trade, Trade]]:
        while recent and recent[0].at_s < trade.at_s - WINDOW_S:
            recent.popleft()
        matches = [(other, trade) for other in recent if abs(other.volume - trade.volume) <= SIMILAR]
        recent.append(trade)
        return matches

    return {"falling": falling, "select": select, "pairs": pairs}


def operators_of(plan: str) -> tuple[Operator, ...]:
    """The operators of a plan in a row, without statistics."""
    above, operators = SOURCE, []
    for name in PLANS[plan]:
        window = Window("time", "sliding", WINDOW_S, 1.0) if name == "pairs" else None
        operators.append(Operator(name, (), (Input(above),), query="trades", kind="other", window=window))
        above = name
    return tuple(operators)


@dataclass(frozen=True)
class SelectionOutcome:
    """One seed: measured worst latency of each plan, and the ranking by each sample size."""

    measured_s: dict[str, float]
    rankings: dict[int, Ranking]
    pairs: int
    sampling_s: float

    @property
    def best(self) -> str:
        return min(self.measured_s, key=lambda name: self.measured_s[name])

    def mace_s(self, size: int) -> dict[str, float]:
        return {plan.key: plan.mace_worst_s for plan in self.rankings[size].plans}

    def picked(self, size: int) -> str:
        estimates = self.mace_s(size)
        return min(estimates, key=lambda name: estimates[name])


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; returns 1 if a sample of 500 events picks another plan than the best for any seed."""
    parser = argparse.ArgumentParser(prog="sluice lab plans", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds (5)")
    parser.add_argument("--trades", type=int, default=75_000, help="how many trades (75000)")
    parser.add_argument("--quick", action="store_true", help="2 seeds of 20,000 trades")
    options = parser.parse_args(list(arguments))
    count, seeds = (20_000, 2) if options.quick else (max(SIZES[-1] + 1, options.trades), max(1, options.seeds))
    print(f"Machine: {machine()}")
    print(f"{count} trades, seeds 1 to {seeds}; worst latencies in s")
    outcomes = [_outcome(count, seed) for seed in range(1, seeds + 1)]
    _print_seeds(outcomes)
    _print_sizes(outcomes)
    right = sum(outcome.picked(JUDGED) == outcome.best for outcome in outcomes)
    met = right == len(outcomes)
    print(f"\n{JUDGED} events pick the best plan for {right} of {len(outcomes)} seeds: {'met' if met else 'MISSED'}")
    return 0 if met else 1


def _outcome(count: int, seed: int) -> SelectionOutcome:
    stream = trades(count, seed)
    pace = _pace(stream)
    measured, results = {}, {}
    for name in PLANS:
        measured[name], results[name] = _executed(name, stream, pace)
    if len(set(map(frozenset, (found.items() for found in results.values())))) != 1:
        raise AssertionError("the plans do not give the same pairs")
    arrivals = _arrivals(stream, pace)
    begin = time.thread_time()
    rankings = {size: _ranking(stream, size, arrivals) for size in SIZES}
    spent = (time.thread_time() - begin) / len(SIZES)
    return SelectionOutcome(measured, rankings, sum(results["middle"].values()), spent)


def _pace(stream: Sequence[Trade]) -> float:
    """Seconds of market time per second of replay."""
    part = stream[: len(stream) // 4]
    _, spent = _latencies("middle", part, 0.0)
    return LOAD * (part[-1].at_s - part[0].at_s) / spent


def _executed(name: str, stream: Sequence[Trade], pace: float) -> tuple[float, Counter[tuple[Trade, Trade]]]:
    """Measured worst latency of a plan, and the pairs it found."""
    results: Counter[tuple[Trade, Trade]] = Counter()
    worst, _ = _latencies(name, stream, pace, results)
    return worst, results


def _latencies(
    name: str, stream: Sequence[Trade], pace: float, results: Counter[tuple[Trade, Trade]] | None = None
) -> tuple[float, float]:
    """Largest time from arrival to the last result of an event, and the CPU time of all; pace 0 only measures."""
    runner = PlanRunner(operators_of(name), functions())
    done_s = worst_s = total_s = 0.0
    gc.collect()
    gc.disable()
    try:
        for trade in stream:
            begin = time.thread_time_ns()
            found = runner.push(SOURCE, trade)
            spent_s = (time.thread_time_ns() - begin) / 1e9
            arrival_s = trade.at_s / pace if pace else 0.0
            done_s = max(done_s, arrival_s) + spent_s
            total_s += spent_s
            if found:
                worst_s = max(worst_s, done_s - arrival_s)
            if results is not None:
                results.update(pair for _, pair in found)
    finally:
        gc.enable()
    return worst_s, total_s


def _arrivals(stream: Sequence[Trade], pace: float) -> tuple[FloatArray, float]:
    """Events in every slice of the replay, and the width of a slice."""
    times = np.array([trade.at_s for trade in stream]) / pace
    edges = np.linspace(0.0, times[-1] * (1 + 1e-9), SUBINTERVALS * SLICES + 1)
    return frozen_array(np.histogram(times, edges)[0]), float(edges[1])


def _ranking(stream: Sequence[Trade], size: int, arrivals: tuple[FloatArray, float]) -> Ranking:
    counts, slice_s = arrivals
    node = (Node("node", capacity_cps=CYCLES_PER_S),)
    deployment = Deployment(slice_s, len(counts), sources=(Source(SOURCE, counts),), nodes=node)
    plans = [QueryPlan(name, _sampled(name, stream, size)) for name in PLANS]
    return rank(deployment, "trades", plans, node=OneNode(CYCLES_PER_S), mace_every=SLICES)


def _sampled(name: str, stream: Sequence[Trade], size: int) -> tuple:
    events = ((SOURCE, trade) for trade in stream[:size])
    plan_sample = sample(operators_of(name), functions(), events, most=size, cycles_per_s=CYCLES_PER_S, scheduling=True)
    return with_sample(operators_of(name), plan_sample)


def _print_seeds(outcomes: Sequence[SelectionOutcome]) -> None:
    print(f"\nmeasured, and Mace_WC by a sample of {JUDGED} events")
    print(f"  {'seed':>4}  " + "  ".join(f"{name:>8} {'Mace':>8}" for name in PLANS) + "  best    picked  pairs")
    for seed, outcome in enumerate(outcomes, 1):
        mace_s = outcome.mace_s(JUDGED)
        figures = "  ".join(f"{outcome.measured_s[name]:8.3f} {mace_s[name]:8.3f}" for name in PLANS)
        print(f"  {seed:4}  {figures}  {outcome.best:6}  {outcome.picked(JUDGED):6}  {outcome.pairs}")
    ratios = {name: [o.measured_s[name] / o.measured_s[o.best] for o in outcomes] for name in PLANS}
    print("  measured over the best: " + ", ".join(f"{name} x{np.median(found):.1f}" for name, found in ratios.items()))


def _print_sizes(outcomes: Sequence[SelectionOutcome]) -> None:
    print(
        "\nby sample size: Mace_WC (median), its error against the measured (median), seeds with the best plan picked,"
    )
    print("seeds in which Flow's intervals tell the two best apart")
    print(f"  {'events':>6}  " + "  ".join(f"{name:>8}" for name in PLANS) + "   error  picked  told apart")
    for size in SIZES:
        medians = "  ".join(f"{np.median([o.mace_s(size)[name] for o in outcomes]):8.3f}" for name in PLANS)
        errors = [abs(o.mace_s(size)[name] / o.measured_s[name] - 1) for o in outcomes for name in PLANS]
        picked = sum(o.picked(size) == o.best for o in outcomes)
        apart = sum(next(iter(o.rankings[size].against_best.values())).told_apart for o in outcomes)
        print(f"  {size:6}  {medians}  {100 * np.median(errors):5.0f} %  {picked:6}  {apart:10}")
    spent = np.median([outcome.sampling_s for outcome in outcomes])
    print(f"Sampling and ranking the three plans once: {spent:.2f} s of CPU.")
