"""Stages of several rounds: input rates, the split of a latency constraint among them, and a plan for all.

A round's reducers feed the distributors of the rounds after it: a chain, or any graph without cycles.

Reference: Li, Diao, Shenoy (VLDB 2015), section 3.2, last paragraph, which leaves the split to its technical report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from engine.errors import DocumentError, Fault
from engine.planner.latency import LatencyOptions, StageLatency, evaluate_latency
from engine.planner.plan import StagePlan, StageSizing
from engine.planner.profile import NodeHardware, StageProfile, StageQuestion
from engine.planner.sizing import size_stage
from engine.records import Record
from engine.words import counted

__all__ = ["StageRound", "round_rates", "size_rounds", "split_constraint"]

MAX_PATHS = 10_000
_STEPS = 8  # of tightening, where the quantile of a path comes out above its constraint
_TIGHTER = 0.999


@dataclass(frozen=True, slots=True)
class StageRound:
    """A round: its stage, outputs its reducers emit per map output, and the rounds (by index) it reads from."""

    name: str
    profile: StageProfile
    emitted: float = 1.0
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class RoundSizing(Record):
    """A round with its input rate (tuples/s), its part of the constraint (s) and its plan."""

    name: str
    rate: float
    constraint_s: float
    sizing: StageSizing


@dataclass(frozen=True)
class RoundsSizing(Record):
    """Answer of `size_rounds`: whether all fit, the nodes of all (None where a round has no plan), and each round."""

    feasible: bool
    nodes: int | None
    rounds: tuple[RoundSizing, ...]


def split_constraint(
    total: float,
    means: Sequence[float],
    variances: Sequence[float] | None = None,
    z: float = 0.0,
    edges: Sequence[tuple[int, int]] | None = None,
) -> list[float]:
    """Each round's share of a constraint `total` (s) on the mean, or on the quantile mean + `z` deviations.

    Rounds are independent, so that variances add up: on a path of deviation sd a round needs mean + z variance / sd,
    and gets its share of what the path needs. `edges` (from, to) make a graph; without them the rounds are a chain.
    In a graph the longest path is split first; what it leaves goes to the next longest, until each round has a
    share. No path exceeds `total`, and each round lies on one that uses it up.

    Raises
    ------
    DocumentError
        A total that is not above 0, negative means or variances, nothing to go by, edges that make a cycle, more than
        10,000 paths.

    Examples
    --------
    >>> split_constraint(1.0, [1, 3])
    [0.25, 0.75]
    >>> [round(share, 3) for share in split_constraint(2.0, [0.2, 0.4], [0.01, 0.04], 2.0)]
    [0.553, 1.447]
    >>> split_constraint(6.0, [1, 1, 4, 1], edges=[(0, 1), (0, 2), (1, 3), (2, 3)])
    [1.0, 4.0, 4.0, 1.0]
    """
    variances = [0.0] * len(means) if variances is None else variances
    faults = list(_split_faults(total, means, variances, z))
    if faults:
        raise DocumentError(faults, "split")
    return [share for share, _ in _shares(total, _paths(len(means), edges), means, variances, z)]


def _shares(
    total: float, paths: Sequence[Sequence[int]], means: Sequence[float], variances: Sequence[float], z: float
) -> list[tuple[float, float]]:
    """Each round's share, and how often its need goes into it."""
    needs = []
    for path in paths:
        sd = math.sqrt(sum(variances[i] for i in path))
        needs.append({i: means[i] + (z * variances[i] / sd if sd > 0.0 else 0.0) for i in path})
    shares: dict[int, tuple[float, float]] = {}
    while len(shares) < len(means):
        ratio, tightest = math.inf, needs[0]
        for need in needs:
            needed = sum(value for i, value in need.items() if i not in shares)
            left = total - sum(shares[i][0] for i in need if i in shares)
            if needed > 0.0 and left / needed < ratio:
                ratio, tightest = left / needed, need
        if math.isinf(ratio):  # rounds that need nothing share no path with those that do
            return [shares.get(i, (0.0, 1.0)) for i in range(len(means))]
        shares |= {i: (ratio * value, ratio) for i, value in tightest.items() if i not in shares}
    return [shares[i] for i in range(len(means))]


def _split_faults(total: float, means: Sequence[float], variances: Sequence[float], z: float) -> Iterator[Fault]:
    if not total > 0.0:
        yield Fault("total", f"total is {total:g}; allowed: a number above 0")
    if not means:
        yield Fault("means", "there is no round; allowed: at least one")
    if len(variances) != len(means):
        yield Fault(
            "variances", f"variances has {counted(len(variances), 'item')}; allowed: {len(means)}, one per round"
        )
    for name, values in (("means", means), ("variances", variances)):
        for i, value in enumerate(values):
            if value < 0.0:
                yield Fault(f"{name}[{i}]", f"item {i} is {value:g}; allowed: at least 0")
    if means and sum(means) + z * math.sqrt(max(sum(variances), 0.0)) <= 0.0:
        yield Fault("means", "the rounds need nothing; allowed: a sum above 0")


def _paths(count: int, edges: Sequence[tuple[int, int]] | None) -> list[list[int]]:
    """Every way from a round without inputs to one without outputs."""
    if edges is None:
        return [list(range(count))]
    faults = [
        Fault(
            f"edges[{number}]",
            f"item {number} is {begin} to {end}; allowed: two different rounds from 0 to {count - 1}",
        )
        for number, (begin, end) in enumerate(edges)
        if begin == end or not (0 <= begin < count and 0 <= end < count)
    ]
    if faults:
        raise DocumentError(faults, "split")
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    for begin, end in dict.fromkeys(edges):
        after[begin].append(end)
        before[end].append(begin)
    try:
        order = list(TopologicalSorter({i: before[i] for i in range(count)}).static_order())
    except CycleError:
        raise DocumentError(
            [Fault("edges", "the edges make a cycle; allowed: rounds that lead forward")], "split"
        ) from None
    ways = [0] * count
    for i in order:
        ways[i] = sum(ways[j] for j in before[i]) if before[i] else 1
    if (paths := sum(ways[i] for i in range(count) if not after[i])) > MAX_PATHS:
        raise DocumentError([Fault("edges", f"the edges make {paths:,} paths; allowed: {MAX_PATHS:,}")], "split")
    found: list[list[int]] = []
    open_paths = [[i] for i in range(count) if not before[i]]
    while open_paths:
        path = open_paths.pop()
        if not after[path[-1]]:
            found.append(path)
        open_paths.extend([*path, i] for i in after[path[-1]])
    return found


def round_rates(rate: float, rounds: Sequence[StageRound]) -> list[float]:
    """Input rate (tuples/s) of each round: `rate` for those that read the source, else what the rounds before emit.

    Examples
    --------
    >>> first = StageRound("count", StageProfile(alpha=8), emitted=0.01)
    >>> round_rates(1000.0, [first, StageRound("rank", StageProfile(), after=(0,))])
    [1000.0, 80.0]
    """
    rates = [0.0] * len(rounds)
    for i in TopologicalSorter({i: item.after for i, item in enumerate(rounds)}).static_order():
        inputs = [rates[j] * rounds[j].profile.alpha * rounds[j].emitted for j in rounds[i].after]
        rates[i] = sum(inputs) if inputs else rate
    return rates


def size_rounds(
    rounds: Sequence[StageRound],
    hardware: NodeHardware,
    *,
    rate: float,
    max_nodes: int,
    constraint_s: float,
    **more: Any,
) -> RoundsSizing:
    """A plan for each round, on nodes of its own, such that every path keeps the constraint.

    The constraint is split by what each round needs at least: its latency at its rate on the fewest nodes that bear it
    at all. For a quantile each round's own quantile is bounded; as those of independent rounds do not add up, the
    bounds may sum to more than the constraint, and are tightened until the quantile of every path fits.

    Takes the fields of `StageQuestion`, as `size_stage` does; `max_nodes` bounds all rounds together.

    Raises
    ------
    DocumentError
        Faults of the question, rounds that make a cycle, a rate of 0 into a round.
    """
    question = StageQuestion.parse({"rate": rate, "max_nodes": max_nodes, "constraint_s": constraint_s} | more)
    paths = _paths(len(rounds), [(j, i) for i, item in enumerate(rounds) for j in item.after])
    rates = round_rates(rate, rounds)

    def sized(constraints_s: Sequence[float]) -> list[StageSizing]:
        return [
            size_stage(item.profile, hardware, **more, rate=r, max_nodes=max_nodes, constraint_s=c, with_curves=False)
            for item, r, c in zip(rounds, rates, constraints_s, strict=True)
        ]

    def latencies(plans: Sequence[StagePlan | None]) -> list[StageLatency]:
        """Of the rounds that have a plan, under it."""
        options = LatencyOptions.of_statistic(question.statistic, variant=question.variant, is_bound=question.is_bound)
        parts = zip(rounds, rates, plans, strict=True)
        return [evaluate_latency(item.profile, hardware, r, p.settings, options) for item, r, p in parts if p]

    constraints_s = [constraint_s] * len(rounds)
    sizings = sized(constraints_s)
    fastest = latencies([sizing.ends.latency for sizing in sizings])
    if len(fastest) == len(rounds):
        width = LatencyOptions.of_statistic(question.statistic, is_bound=question.is_bound).width
        moments = [latency.mean or 0.0 for latency in fastest], [latency.var or 0.0 for latency in fastest]
        ratios = [ratio for _, ratio in _shares(constraint_s, paths, *moments, width)]
        constraints_s = [
            min(ratio * (latency.metric or 0.0), constraint_s) for ratio, latency in zip(ratios, fastest, strict=True)
        ]
        for _ in range(_STEPS):
            sizings = sized(constraints_s)
            plans = latencies([sizing.plan for sizing in sizings])
            if len(plans) < len(rounds):
                break
            excess = dict.fromkeys(range(len(rounds)), 1.0)
            for path in paths:
                for i in path:
                    excess[i] = max(excess[i], _path_s([plans[i] for i in path], width) / constraint_s)
            if max(excess.values()) <= 1.0:
                break
            constraints_s = [
                c / excess[i] * (_TIGHTER if excess[i] > 1.0 else 1.0) for i, c in enumerate(constraints_s)
            ]
    planned = [sizing.plan.nodes for sizing in sizings if sizing.plan is not None]
    nodes = sum(planned) if len(planned) == len(rounds) else None
    parts = zip((item.name for item in rounds), rates, constraints_s, sizings, strict=True)
    return RoundsSizing(nodes is not None and nodes <= max_nodes, nodes, tuple(RoundSizing(*part) for part in parts))


def _path_s(latencies: Sequence[StageLatency], width: float) -> float:
    """Mean, or quantile, of the latency along a path of independent rounds."""
    return sum(latency.mean or 0.0 for latency in latencies) + width * math.sqrt(
        sum(latency.var or 0.0 for latency in latencies)
    )
