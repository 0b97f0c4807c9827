"""Chains of stateless filters and maps, and their cheapest order.

A chain runs from a barrier (a source, a join, anything with state, a fork) to the next. Its cost for one event is
sum w_i prod s_j over what comes before, so after a set of operators has run, neither the rate that is left nor the cost
of the rest depends on the order within the set: dynamic programming over sets. It is walked best first with a lower
bound for what is left (branch and bound), so the first complete order is the cheapest. For filters alone this is the
order by rank (1 - s) / w.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.elements import Operator
from engine.plans.dataflow import Dataflow
from engine.plans.meaning import filter_blocked, free

__all__ = ["Order", "chains_of", "cheapest_order", "must_follow", "reordered"]

_GAIN = 1e-9  # relative; below it an order counts as equally cheap, and the present one stays


@dataclass(frozen=True)
class Order:
    """The cheapest order found of a chain, the sets looked at, and whether the cap ended the search before it was
    proven."""

    operators: tuple[Operator, ...]
    examined: int
    capped: bool


def chains_of(flow: Dataflow) -> list[tuple[Operator, ...]]:
    """The chains of a plan in topological order, each from its first operator to its last."""
    chains: list[list[Operator]] = []
    of: dict[str, list[Operator]] = {}
    for operator in flow.operators:
        if not free(operator):
            continue
        above = flow.upstream(operator)
        chain = of.get(above.id) if above and flow.only_reader(above) is operator else None
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(operator)
        of[operator.id] = chain
    return [tuple(chain) for chain in chains]


def must_follow(chain: Sequence[Operator]) -> list[set[int]]:
    """For each place of a chain the earlier places that must stay before it."""
    return [{i for i in range(j) if not _commute(chain[i], chain[j])} for j in range(len(chain))]


def _commute(first: Operator, second: Operator) -> bool:
    if second.kind == "filter":
        return not filter_blocked(second, first)
    return first.kind == "filter" and not filter_blocked(first, second)


def cheapest_order(chain: Sequence[Operator], cap: int = 20_000) -> Order:
    """The order of least cost that keeps the meaning; the present one if none is cheaper."""
    cost = [op.inputs[0].cycles_per_event for op in chain]
    share = [op.inputs[0].selectivity for op in chain]
    after = must_follow(chain)
    present = _cost(cost, share, range(len(chain)))
    everything = (1 << len(chain)) - 1
    heap: list[tuple[float, int, float, float, tuple[int, ...]]] = [(0.0, 0, 0.0, 1.0, ())]
    best: dict[int, float] = {0: 0.0}
    examined = 0
    while heap:
        _, done, spent, rate, order = heapq.heappop(heap)
        if done == everything:
            found = present * (1 - _GAIN) > spent
            return Order(tuple(chain[i] for i in order) if found else tuple(chain), examined, False)
        if spent > best.get(done, math.inf):
            continue
        examined += 1
        if examined > cap:
            break
        for i in range(len(chain)):
            if done >> i & 1 or any(not done >> k & 1 for k in after[i]):
                continue
            reached, total = done | 1 << i, spent + rate * cost[i]
            if total < best.get(reached, math.inf):
                best[reached] = total
                left = _least(cost, share, reached, rate * share[i])
                if total + left <= present:
                    heapq.heappush(heap, (total + left, reached, total, rate * share[i], (*order, i)))
    return Order(tuple(chain), examined, examined > cap)


def _cost(cost: Sequence[float], share: Sequence[float], order: Sequence[int]) -> float:
    rate, total = 1.0, 0.0
    for i in order:
        total += rate * cost[i]
        rate *= share[i]
    return total


def _least(cost: Sequence[float], share: Sequence[float], done: int, rate: float) -> float:
    """Lower bound of what is left: each operator as if every other one that lets little through had run before."""
    left = [i for i in range(len(cost)) if not done >> i & 1]
    total = 0.0
    for i in left:
        kept = math.prod(min(1.0, share[k]) for k in left if k != i)
        total += rate * kept * cost[i]
    return total


def reordered(flow: Dataflow, chain: Sequence[Operator], order: Sequence[Operator]) -> Dataflow:
    """The plan with the operators of a chain in another order; each keeps its statistics."""
    if tuple(op.id for op in chain) == tuple(op.id for op in order):
        return flow
    source, changed = chain[0].inputs[0].source, []
    for operator in order:
        changed.append(replace(operator, inputs=(replace(operator.inputs[0], source=source),)))
        source = operator.id
    below = flow.reading(chain[-1].id, source) if source != chain[-1].id else []
    inside = {operator.id for operator in chain}
    return flow.changed(*changed, *(op for op in below if op.id not in inside))
