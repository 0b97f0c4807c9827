"""Lasting overload and catching up: servers that get more than their capacity for good, and when what waits is through.

A horizon that ends soon hides an overload: half as much again as the capacity is only 25 s on average within 100 s. A
burst near the end of a horizon is none: in the long run less comes than is processed. See docs/models/mace.md, "What
never catches up".

A query has caught up when its latencies are those that it would have with nothing waiting; from there on they stay so.
On one server that is when it first runs empty: backlog / (capacity - load) where both are constant.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.estimation.flow import Flow
from engine.estimation.mace import Mace
from engine.latency_state import (
    ENDLESS_S,
    KNOWN,
    LATER,
    NEVER,
    NEVER_CATCHES_UP,
    WITHIN,
    CatchUp,
    LatencyStanding,
)
from engine.records import Fact

__all__ = [
    "CLOSING",
    "ROUNDING",
    "LastingOverload",
    "catch_up_of",
    "hold_budget",
    "hold_load",
    "lasting_growth",
    "lasting_overloads",
    "lasting_penalty_s",
    "standing_within",
    "still_growing",
]

#: Of the horizon: the stretch over which a load must be above capacity without a pause.
CLOSING = 1 / 3
_ENDING = 1 / 10  # of the horizon: the stretch whose growth counts where nothing may grow any more
#: Share of a capacity that is none.
ROUNDING = 1e-9
_MAX_GROWTH = 1e6  # of a server without capacity
_HELD_ON = 1e6  # subintervals after the horizon, in a search that counts what comes then


@dataclass(frozen=True, slots=True)
class LastingOverload:
    """A server that never catches up: its load over the closing stretch, and the seconds it falls behind per second."""

    server: str
    load: float
    growth: float


def lasting_growth(load: FloatArray, budget: FloatArray, excess: FloatArray, begin: int = 0) -> FloatArray:
    """Seconds by which each server falls behind every second, for good; 0 where it catches up. Shape (n,).

    Parameters
    ----------
    load : array, shape (n, d)
        What comes in each subinterval.
    budget : array, shape (n, d) or (n, 1)
        What can be processed in each.
    excess : array, shape (n, d)
        What is left at the end of each.
    begin : int
        First subinterval (from 0) that counts: what a change itself left empty says nothing of what comes after.

    Notes
    -----
    With c the closing third of the subintervals that count, a server never catches up if something is left at the end,
    more comes than is processed over c, and that holds over all that counts or something is left all through c::

        growth = sum_c load / sum_c budget - 1

    Examples
    --------
    >>> half_as_much_again = np.full((1, 9), 15.0)
    >>> lasting_growth(half_as_much_again, np.array([[10.0]]), half_as_much_again.cumsum(axis=1) / 3).tolist()
    [0.5]
    """
    part = load[:, begin:]
    n, d = part.shape
    if not n or not d:
        return np.zeros(n)
    room = budget[:, begin:] if budget.shape[1] > 1 else np.broadcast_to(budget, (n, d))
    closing = max(1, math.ceil(d * CLOSING))
    came, could = part[:, -closing:].sum(axis=1), room[:, -closing:].sum(axis=1)
    growth = np.divide(came, could, out=np.full(n, np.inf), where=could > 0.0) - 1.0
    is_left = excess[:, -1] > ROUNDING * room.mean(axis=1)
    is_steady = excess[:, -closing:].min(axis=1) > 0.0
    is_more = part.sum(axis=1) > room.sum(axis=1) * (1.0 + ROUNDING)
    lasts = is_left & (growth > ROUNDING) & (is_more | is_steady) & (came > 0.0)
    return np.where(lasts, np.minimum(growth, _MAX_GROWTH), 0.0)


def lasting_penalty_s(load: FloatArray, budget: FloatArray, excess: FloatArray) -> FloatArray:
    """Seconds that stand for "never catches up" in a search, in which less overload is better; 0 elsewhere, (n,)."""
    growth = lasting_growth(load, budget, excess)
    return np.asarray(np.where(growth > 0.0, (1.0 + growth) * ENDLESS_S, 0.0))


def hold_load(load: FloatArray) -> FloatArray:
    """Loads, (n, d), with what would come after the horizon, (n, 2 d + 2): see `hold_budget`."""
    return np.hstack([load, np.zeros(load.shape), _HELD_ON * _closing_mean(load), np.zeros((len(load), 1))])


def hold_budget(budget: FloatArray, subintervals: int) -> FloatArray:
    """Budgets, (n, d) or (n, 1), with those after the horizon, (n, 2 d + 2).

    After d subintervals in which nothing comes, so that what is left is processed as it would be, one is added in which
    a million times the mean of the closing third comes and can be processed, and a last one in which nothing comes. A
    server that gets 1 + g times its capacity then needs a million g subintervals more, and one that catches up none:
    Mace of such series is less for the placement that catches up.
    """
    whole = np.broadcast_to(budget, (len(budget), subintervals))
    last = whole[:, -1:]
    return np.hstack([whole, np.broadcast_to(last, whole.shape), _HELD_ON * _closing_mean(whole), last])


def _closing_mean(series: FloatArray) -> FloatArray:
    closing = max(1, math.ceil(series.shape[1] * CLOSING))
    return np.asarray(series[:, -closing:].mean(axis=1, keepdims=True))


def lasting_overloads(result: Mace, begin: int = 0) -> dict[int, LastingOverload]:
    """Servers of a Mace that never catch up, by their number; of the subintervals from `begin` (from 0) on."""
    deployment = result.deployment
    budget = deployment.capacities.T * deployment.subinterval_s
    growth = lasting_growth(result.load, budget, result.ce, begin)
    return {
        i: LastingOverload(deployment.servers[i].name, 1.0 + float(growth[i]), float(growth[i]))
        for i in np.flatnonzero(growth > 0.0).tolist()
    }


def still_growing(result: Mace, begin: int = 0) -> IntArray:
    """Servers whose backlog still grows at the end of the horizon, be it by a burst: more comes over its last tenth
    than is processed, and something is left."""
    deployment = result.deployment
    load = result.load[:, begin:]
    if not load.size:
        return np.zeros(0, dtype=np.int64)
    ending = max(1, round(load.shape[1] * _ENDING))
    budget = np.broadcast_to(deployment.capacities.T * deployment.subinterval_s, result.load.shape)
    came, could = load[:, -ending:].sum(axis=1), budget[:, -ending:].sum(axis=1)
    is_left = result.ce[:, -1] > ROUNDING * budget.mean(axis=1)
    return np.flatnonzero(is_left & (came > could * (1.0 + ROUNDING)))


def _standing_of(
    overload: LastingOverload,
    statistic: str,
    bound_s: float | None,
    latency_s: FloatArray,
    weights: FloatArray,
    width_s: float,
) -> LatencyStanding:
    """Standing of a query with a server that never catches up.

    Parameters
    ----------
    latency_s, weights : array, shape (n,)
        The query's latency in each of n slices of `width_s`, and the events at its sinks.
    """
    after_s, fact = None, Fact("latency.endless", **asdict(overload))
    if bound_s is not None:
        after_s = _broken_after_s(statistic, bound_s, latency_s, weights, width_s, overload.growth)
        passed = {"statistic": statistic, "bound_s": bound_s, "after_s": after_s}
        fact = Fact("latency.endless_bound", **asdict(overload), **passed)
    return LatencyStanding(NEVER_CATCHES_UP, fact, overload.server, overload.load, overload.growth, after_s)


def _broken_after_s(
    statistic: str, bound_s: float, latency_s: FloatArray, weights: FloatArray, width_s: float, growth: float
) -> float:
    """Seconds from the start until the statistic, of all so far, passes the bound; behind the end it grows on.

    Behind the end, at D with the latency L, the latency is L + g (t - D). It passes the bound b at D + (b - L) / g, the
    quantile q of all at that over q, and the mean at the root of M D + L (t - D) + g (t - D)^2 / 2 = b t.
    """
    n = len(latency_s)
    end_s, last = n * width_s, float(latency_s[np.flatnonzero(weights)[-1]]) if weights.any() else 0.0
    reached = np.flatnonzero(latency_s > bound_s)
    if statistic == "mean":
        count = np.cumsum(weights)
        means = np.divide(np.cumsum(latency_s * weights), count, out=np.zeros(n), where=count > 0.0)
        over = np.flatnonzero(means > bound_s)
        if len(over):
            return float((over[0] + 1) * width_s)
        # g/2 x^2 + (L - b) x - (b - M) D = 0, with x = t - D
        half, slope, rest = growth / 2.0, last - bound_s, (bound_s - float(means[-1])) * end_s
        return end_s + (-slope + math.sqrt(slope * slope + 4.0 * half * rest)) / (2.0 * half)
    level = float(statistic[1:]) if statistic.startswith("q") else 1.0
    passed_s = float(reached[0]) * width_s if len(reached) else end_s + max(0.0, bound_s - last) / growth
    return passed_s / level


def standing_within(
    overloads: dict[int, LastingOverload],
    servers: IntArray,
    statistic: str,
    bound_s: float | None,
    latency_s: FloatArray,
    weights: FloatArray,
    width_s: float,
) -> LatencyStanding:
    """Standing of a query on some servers: that of the one that falls behind fastest, or known."""
    mine = [overloads[i] for i in servers.tolist() if i in overloads]
    if not mine:
        return KNOWN
    fastest = max(mine, key=lambda overload: overload.growth)
    return _standing_of(fastest, statistic, bound_s, latency_s, weights, width_s)


_SAME = 0.02  # share of a slice by which latencies may differ and still be the same
_FULL = 1.0 - 1e-9


def catch_up_of(query: str, flowed: Flow, unburdened: Flow, mace: Mace, servers: IntArray) -> CatchUp | None:
    """When `query` has caught up; None where nothing that waits holds it up.

    Parameters
    ----------
    flowed, unburdened : Flow
        Flow with what waits, and without.
    mace : Mace
        Of the same deployment, with what waits.
    servers : array
        Servers that the query's events pass.
    """
    deployment = mace.deployment
    horizon_s = deployment.subintervals * deployment.subinterval_s
    with_it, without = flowed.by_query[query], unburdened.by_query[query]
    width_s = horizon_s / len(with_it)
    late_s = np.maximum(with_it - without, 0.0)
    held = np.flatnonzero(late_s > _SAME * width_s)
    waits = flowed.lead_of_query(query)
    if not len(held) and not waits.any():
        return None
    if len(held) and held[-1] >= len(with_it) - 1:
        return _beyond(mace, servers, horizon_s)
    at_s = _end_of(late_s, held, width_s, float(mace.start_s[servers].max(initial=0.0)))
    if waits.any() and flowed.lead is not None:
        # Waiting events alone, where none comes behind them: when the last of them is through.
        at_s = max(at_s, float((waits - flowed.lead.ages_s).max()) if not len(held) else 0.0)
    if at_s >= horizon_s:
        return _beyond(mace, servers, horizon_s)
    return CatchUp(WITHIN, at_s, None, None, horizon_s)


def _end_of(late_s: FloatArray, held: IntArray, width_s: float, start_s: float) -> float:
    """Instant at which what a slice is late by has gone to 0, as fast as it went in the slice before.

    `start_s` is what the horizon begins with.
    """
    if not len(held):
        return 0.0
    last = int(held[-1])
    end_s, rest_s = (last + 1) * width_s, float(late_s[last])
    before_s = float(late_s[last - 1]) if last else start_s
    fall_s = before_s - rest_s
    return end_s + (min(1.0, rest_s / fall_s) * width_s if fall_s > 0.0 else 0.0)


def _beyond(mace: Mace, servers: IntArray, horizon_s: float) -> CatchUp:
    """Later or never, by the servers that are still behind at the end and their mean load."""
    behind = [i for i in servers.tolist() if mace.ce[i, -1] > 0.0]
    offered = mace.deployment.capacities.T
    at_s = horizon_s
    for i in behind:
        per_s = float(offered[i].mean())
        free_per_s = per_s - float(mace.load[i].sum()) / horizon_s
        if free_per_s <= (1.0 - _FULL) * per_s:
            return CatchUp(NEVER, None, None, None, horizon_s)
        at_s = max(at_s, horizon_s + float(mace.ce[i, -1]) / free_per_s)
    return CatchUp(LATER, at_s if behind else None, None, None, horizon_s)
