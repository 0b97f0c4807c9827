"""Klink against its targets: ``./sluice lab klink [--parts solver,policies,...] [--quick] [--queries 42,80]``."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc

from engine.klink.policies import QueryView, make_policy
from engine.klink.settings import POLICIES
from engine.klink.watermarks import MEAN_VARIANCE, deviations, empirical_interval, moments
from lab.benchmarks.klink_policies import backlogs, limits, memory, met_words, nodes, policies, published
from lab.benchmarks.klink_real import real
from lab.benchmarks.klink_replay import replays
from lab.benchmarks.machine import machine
from lab.klink.loads import DELAYS, delays_ms
from lab.klink.slack_arrays import slacks_ms

__all__ = ["intervals", "main", "overhead", "solver"]


Array = NDArray[np.float64]
_QUERIES, _CYCLE_MS = 10_000, 120.0
_MIN_RATIO = 50.0
_HISTORY, _PERIOD_MS, _SAMPLES = 400, 3_000.0, 25
_PAPER = {("uniform", 0.95): "98 %", ("uniform", 0.90): "95 %", ("zipf", 0.95): "95 %", ("zipf", 0.90): "85 %"}
_SHARE_OF_CYCLE = 0.005


def solver(blocks: int) -> bool:
    """Slack of 10,000 queries in one call, and by Algorithm 1's loop over bins, both vectorised; False where missed."""
    draw = np.random.default_rng(1)
    mean, deviation = draw.uniform(0.0, 4_000.0, _QUERIES), draw.uniform(50.0, 1_500.0, _QUERIES)
    cost = draw.uniform(0.0, 500.0, _QUERIES)
    closed_s, looped_s, ratios = [], [], []
    for _ in range(blocks):
        seconds = _timed(lambda: slacks_ms(0.0, cost, mean[:, None], deviation[:, None]))
        loop = _timed(lambda: _algorithm_1(0.0, cost, mean, deviation))
        closed_s.append(seconds)
        looped_s.append(loop)
        ratios.append(loop / seconds)
    ratio = statistics.median(ratios)
    exact = slacks_ms(0.0, cost, mean[:, None], deviation[:, None])
    off = _algorithm_1(0.0, cost, mean, deviation) - exact
    print(
        f"\nsolver: slack of {_QUERIES:,} queries at once: one call {1e3 * statistics.median(closed_s):.2f} ms, "
        f"Algorithm 1's loop over bins of {_CYCLE_MS:g} ms {1e3 * statistics.median(looped_s):.1f} ms\n"
        f"  {ratio:.0f} times faster ({min(ratios):.0f} to {max(ratios):.0f} over {blocks} blocks): "
        f"{met_words(ratio >= _MIN_RATIO)} {_MIN_RATIO:g}\n"
        f"  the loop is off by {off.mean():+.0f} ms on average ({off.min():+.0f} to {off.max():+.0f})"
    )
    return ratio >= _MIN_RATIO


def _timed(solve: Callable[[], object]) -> float:
    before_s = time.perf_counter()
    solve()
    return time.perf_counter() - before_s


def _algorithm_1(now_ms: float, cost: Array, mean: Array, deviation: Array) -> Array:
    """The loop over bins, of all queries at once; two deviations on either side, as printed."""
    begin, most = np.maximum(now_ms, mean - 2 * deviation), mean + 2 * deviation
    certain, slack, x = _above(now_ms, mean, deviation), np.zeros(len(mean)), np.maximum(now_ms, mean - 2 * deviation)
    for _ in range(int(np.ceil(((most - begin) / _CYCLE_MS).max())) + 1):
        share = (_above(x, mean, deviation) - _above(x + _CYCLE_MS, mean, deviation)) / certain
        slack += np.where(x <= most, share * (x + _CYCLE_MS - now_ms - cost), 0.0)
        x = x + _CYCLE_MS
    return slack


def _above(time_ms: Array | float, mean: Array, deviation: Array) -> Array:
    return np.asarray(erfc((time_ms - mean) / deviation * np.sqrt(0.5)) / 2)


def intervals(windows: int) -> bool:
    """Print the share of watermarks that lie within their interval, made in several ways; False where Sluice's
    misses.
    """
    print(f"\nintervals: share of {windows:,} watermarks within, mean width; history of {_HISTORY} windows")
    reached = []
    for kind in DELAYS:
        for confidence in (0.95, 0.90):
            hits = _coverage(kind, confidence, windows)
            said = "  ".join(f"{name} {100 * hit:.1f} % ({width:.0f} ms)" for name, (hit, width) in hits.items())
            print(f"  {kind:7} f = {confidence:.2f} (paper {_PAPER[kind, confidence]}): {said}")
            reached.append(hits["quantiles"][0] >= confidence - 0.02)
    print(f"  quantiles of the history hold within two points of f: {met_words(all(reached))} that")
    return all(reached)


def _coverage(kind: str, confidence: float, windows: int) -> dict[str, tuple[float, float]]:
    """Hits and width by normal form, by the printed variance, by quantiles and by regression on the window's number."""
    random = np.random.default_rng(2)
    count = _HISTORY + windows
    shown = delays_ms(kind, count * _SAMPLES, random).reshape(count, _SAMPLES)
    delays, mu, chi = delays_ms(kind, count, random), shown.mean(axis=1), (shown**2).mean(axis=1)
    sigmas, hits = deviations(confidence), {"normal": [], "eq. 6": [], "quantiles": [], "regression": []}  # type: ignore[var-annotated]
    for n in range(_HISTORY, count):
        past = slice(n - _HISTORY, n)
        for name, mode in (("normal", "predictive"), ("eq. 6", MEAN_VARIANCE)):
            mean, variance = moments(mu[past].tolist(), chi[past].tolist(), mode)
            half = sigmas * variance**0.5
            hits[name].append((abs(delays[n] - mean) <= half, 2 * half))
        bounds = empirical_interval(np.sort(delays[past]).tolist(), confidence)
        assert bounds is not None
        hits["quantiles"].append((bounds[0] <= delays[n] <= bounds[1], bounds[1] - bounds[0]))
        least, most = _regression(delays[past])
        hits["regression"].append((least <= delays[n] <= most, most - least))
    return {name: (float(np.mean([hit for hit, _ in rows])), float(np.mean([width for _, width in rows])))
            for name, rows in hits.items()}  # fmt: skip


def _regression(past: Array) -> tuple[float, float]:
    """A line through the delays, one root mean squared error on either side of where it goes next."""
    number = np.arange(len(past))
    slope, start = np.polyfit(number, past, 1)
    error = float(np.sqrt(np.mean((past - start - slope * number) ** 2)))
    ahead = float(start + slope * len(past))
    return ahead - error, ahead + error


def overhead(repeats: int) -> bool:
    """CPU time of one pick by the policies that agents run, of a cycle; False where Sluice's takes more than 0.5 %."""
    print(f"\noverhead: CPU time of one pick in plain Python, and its share of a cycle of {_CYCLE_MS:g} ms")
    reached = True
    for count in (5, 20, 80):
        views = _views(count)
        said = []
        for name in POLICIES:
            picking = make_policy(name)
            taken_s = min(
                _pick_s(picking.pick, views, saturated) for _ in range(repeats) for saturated in (False, True)
            )
            share = 1e3 * taken_s / _CYCLE_MS
            reached = reached and (name != "klink" or count > 20 or share <= _SHARE_OF_CYCLE)
            said.append(f"{name} {1e6 * taken_s:.0f} us ({100 * share:.3f} %)")
        print(f"  {count:2} queries: {', '.join(said)}")
    print(f"  klink of 20 queries takes at most {100 * _SHARE_OF_CYCLE:g} % of a cycle: {met_words(reached)} that")
    return reached


def _pick_s(pick: Callable[..., int | None], views: list[QueryView], saturated: bool) -> float:
    before_s = time.process_time()
    for step in range(200):
        pick(views, 1_000.0 + step, saturated)
    return (time.process_time() - before_s) / 200


def _views(count: int) -> list[QueryView]:
    draw = np.random.default_rng(3)
    return [
        QueryView(
            f"q{index:02}", [float(draw.integers(1, 1_000))], [0.01], [0.5], float(draw.uniform(1, 50)),
            arrived_ms=float(draw.uniform(0, 900)), stimulus_ms=float(draw.uniform(0, 900)),
            deadline_ms=float(draw.uniform(0, 1_000)), pending_ms=900.0 if index % 2 else None,
            pending_work_ms=float(draw.uniform(1, 50)), slack_ms=float(draw.uniform(-100, 1_000)), ideal_ms=0.01,
        )
        for index in range(count)
    ]  # fmt: skip


def main(arguments: Sequence[str] = ()) -> int:
    """Run the parts that were asked for; 1 when one misses a target."""
    parser = argparse.ArgumentParser(
        prog="sluice lab klink", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"some of {','.join(_PARTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="few loads, seeds and windows: that everything runs")
    parser.add_argument("--queries", type=_counts, help="policies: numbers of queries, as 42,80, with two seeds")
    asked = parser.parse_args(list(arguments))
    if unknown := [part for part in asked.parts.split(",") if part not in _PARTS]:
        parser.error(f"--parts has {', '.join(unknown)}; allowed: {', '.join(_PARTS)}")
    print(machine())
    parts = dict(_PARTS)
    if asked.queries:
        parts["policies"] = lambda _: policies(2, asked.queries, DELAYS)
    met = [parts[part](asked.quick) for part in asked.parts.split(",")]
    return 0 if all(met) else 1


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(count) for count in text.split(","))


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


def _replays(quick: bool) -> bool:
    return replays(1, 60) if quick else replays(5, 300)


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
    "replay": _replays,
    "real": _real,
}
