"""Chains of stateless operators: their cheapest order, and neighbours fused into one."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.document.elements import Operator
from engine.plans.answer import RewriteRefusal, RewriteStep
from engine.plans.rules import (
    Dataflow,
    filter_blocked,
    free,
    fuse_inputs,
    local_name,
    weakest_evidence,
)
from engine.records import Fact

__all__ = [
    "NAME_LENGTH",
    "Order",
    "chains_of",
    "find_cheapest_order",
    "fuse_operators",
    "must_follow",
    "parts_of",
    "reorder_chain",
]


_GAIN = 1e-9  # relative; below it an order counts as equally cheap, and the present one stays

NAME_LENGTH = 120


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


def find_cheapest_order(chain: Sequence[Operator], cap: int = 20_000) -> Order:
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
            is_cheaper = present * (1 - _GAIN) > spent
            return Order(tuple(chain[i] for i in order) if is_cheaper else tuple(chain), examined, False)
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
    """Lower bound of the remaining cost: each operator as if all others that let little through had run before."""
    left = [i for i in range(len(cost)) if not done >> i & 1]
    total = 0.0
    for i in left:
        kept = math.prod(min(1.0, share[k]) for k in left if k != i)
        total += rate * kept * cost[i]
    return total


def reorder_chain(flow: Dataflow, chain: Sequence[Operator], order: Sequence[Operator]) -> Dataflow:
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


def fuse_operators(
    flow: Dataflow, hop_cycles: float, refused: list[RewriteRefusal]
) -> tuple[Dataflow, list[RewriteStep]]:
    """Every pair of neighbours in a chain fused that may be; `hop_cycles` are saved for each event between them."""
    steps: list[RewriteStep] = []
    if not hop_cycles:
        if any(len(chain) > 1 for chain in chains_of(flow)):
            refused.append(RewriteRefusal("fuse", "", "", Fact("plans.queue_unstated")))
        return flow, steps
    for chain in chains_of(flow):
        done = chain[0]
        for following in chain[1:]:
            second = flow.by_id[following.id]
            if why := _blocked(done, second):
                refused.append(RewriteRefusal("fuse", local_name(second), local_name(done), why))
                done = second
                continue
            fused = _fuse_pair(done, second, hop_cycles)
            steps.append(RewriteStep("fuse", Fact("plans.fused", local_name(done), local_name(second))))
            flow = flow.changed(fused, *flow.reading(second.id, fused.id), without=(done.id, second.id))
            done = fused
    return flow, steps


def _blocked(first: Operator, second: Operator) -> Fact | None:
    if first.replicas and second.replicas and first.replicas != second.replicas:
        return Fact("plans.other_cores")
    return Fact("plans.long_name", count=NAME_LENGTH) if len(_id(first, second)) > NAME_LENGTH else None


def _id(first: Operator, second: Operator) -> str:
    return f"{first.id}+{local_name(second)}"


def _fuse_pair(first: Operator, second: Operator, hop_cycles: float) -> Operator:
    """An operator that does the work of both."""
    return replace(
        first,
        id=_id(first, second),
        kind="filter" if first.kind == second.kind == "filter" else "map",
        inputs=(fuse_inputs(first.inputs[0], second.inputs[0], hop_cycles),),
        bytes_per_event=second.bytes_per_event,
        tuple_values_out=second.tuple_values_out,
        evidence=weakest_evidence(first, second),
        reads=_union(first.reads, second.reads),
        writes=_union(_writes(first), _writes(second)),
        expression={"fused": [*_expressions(first), *_expressions(second)]},
    )


def _writes(operator: Operator) -> tuple[str, ...] | None:
    return () if operator.kind == "filter" and operator.writes is None else operator.writes


def _union(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if one is None or other is None else tuple(dict.fromkeys((*one, *other)))


def _expressions(operator: Operator) -> list[dict[str, Any]]:
    if parts_of(operator) is not None:
        return list(operator.expression["fused"])
    expressions = {} if operator.expression is None else {"expression": operator.expression}
    return [{"id": local_name(operator), **expressions}]


def parts_of(operator: Operator) -> Sequence[str] | None:
    """Names of the operators that were fused into this one, in the order of the data; None if it is a plain one."""
    expression = operator.expression
    if isinstance(expression, dict) and set(expression) == {"fused"}:
        return [part["id"] for part in expression["fused"]]
    return None
