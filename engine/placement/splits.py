"""Operators that bound the latency all by themselves, and into how many parts they would have to be split.

Reference: paper, section X (load splitting: replicas are placed as operators; those that meet again are merged).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled
from engine.document.deployment import Operator
from engine.placement.answer import AloneOperator
from engine.placement.goal import Goal
from engine.placement.items import Items
from engine.placement.limits import PlacementLimits
from engine.placement.network_kernels import worst_of
from engine.placement.problem import BoolArray

__all__ = ["MAX_PARTS", "BottleneckOperator", "alone_in", "parts_for"]

MAX_PARTS = 8
_TIE = 1e-6


@dataclass(frozen=True)
class BottleneckOperator:
    """An operator (or part of one) that even alone on its best core costs as much as the whole placement.

    `own_s` is its Mace there, `share` its mean load as a share of that core's capacity.
    """

    operator: Operator
    own_s: float
    share: float
    may_split: bool

    def answer(self, parts: int | None = None, split_value: float | None = None) -> AloneOperator:
        """The operator by name; `parts` and `split_value` say what splitting would gain, if it was tried."""
        operator = self.operator
        return AloneOperator(
            operator.id,
            operator.query,
            self.own_s,
            self.share,
            operator.stateless,
            self.may_split,
            parts,
            split_value,
            keyed=operator.keyed,
        )


def alone_in(items: Items, limits: PlacementLimits, goal: Goal, value: float) -> list[BottleneckOperator]:
    """Operators that alone cost `value`, the largest first; none where the value is 0."""
    if value <= 0.0 or not len(items.load):
        return []
    kinds, kind_of = _core_kinds(items)
    own_s = _own_s(items.load, kinds, _usable(items, limits, kind_of), items.coarse.subinterval_s)
    cost = own_s * goal.weight[goal.party[items.operator]]
    bottlenecks: dict[int, BottleneckOperator] = {}
    for item in np.argsort(-cost, kind="stable"):
        j = int(items.operator[item])
        if cost[item] < value * (1.0 - _TIE) or j in bottlenecks:
            continue
        operator = items.coarse.operators[j]
        share = float(items.load[item].mean() / kinds[_usable(items, limits, kind_of)[item]].mean(axis=1).max())
        bottlenecks[j] = BottleneckOperator(operator, float(own_s[item]), share, operator.id in limits.may_split)
    return list(bottlenecks.values())


def parts_for(
    items: Items, limits: PlacementLimits, goal: Goal, blocking: list[BottleneckOperator], now: Mapping[str, int]
) -> dict[str, int]:
    """Parts with which the blocking operators would hold nobody up more than the rest of the load does.

    Cores of different sizes get twice as many parts: several may meet, and are merged, on a large one.
    """
    kinds, kind_of = _core_kinds(items)
    usable = _usable(items, limits, kind_of)
    names = {bottleneck.operator.id for bottleneck in blocking}
    blocked = np.array([items.coarse.operators[j].id in names for j in items.operator], dtype=bool)
    weight = goal.weight[goal.party[items.operator]]
    own = _own_s(items.load, kinds, usable, items.coarse.subinterval_s) * weight
    cores = items.budget[: len(items.cores)]
    together = worst_of(items.load.sum(axis=0), cores.sum(axis=0), items.coarse.subinterval_s)
    target = max(float(own[~blocked].max(initial=0.0)), together * float(weight.min()))
    counts = {}
    for bottleneck in blocking:
        mine = np.flatnonzero(blocked & (items.operator == items.coarse.operator_index[bottleneck.operator.id]))
        places = int(np.isin(kind_of, np.flatnonzero(usable[mine].any(axis=0))).sum())
        most = min(MAX_PARTS, places) if len(kinds) == 1 or places == 1 else MAX_PARTS
        before = now.get(bottleneck.operator.id, 1)
        if most <= before:
            continue
        largest = items.load[mine[int(own[mine].argmax())]]
        where, heavy = usable[mine[:1]], weight[mine[0]]
        costs = ((k, heavy * _part_cost(largest / k, items, kinds, where)) for k in range(2, most))
        parts = next((k for k, cost in costs if cost <= target), most)
        counts[bottleneck.operator.id] = min(most, before * parts * (1 if len(kinds) == 1 else 2))
    return counts


def _part_cost(load: FloatArray, items: Items, kinds: FloatArray, usable: BoolArray) -> float:
    return float(_own_s(load[None, :], kinds, usable, items.coarse.subinterval_s)[0])


def _core_kinds(items: Items) -> tuple[FloatArray, IntArray]:
    """Distinct budgets of cores, and which of them each core has."""
    kinds, kind_of = np.unique(items.budget[: len(items.cores)], axis=0, return_inverse=True)
    return np.ascontiguousarray(kinds), np.asarray(kind_of, dtype=np.int64).reshape(-1)


def _usable(items: Items, limits: PlacementLimits, kind_of: IntArray) -> BoolArray:
    """Kinds of core that each item may use, (items, kinds)."""
    allowed = items.allowed(limits)
    usable = np.zeros((len(allowed), int(kind_of.max()) + 1), dtype=bool)
    for kind in range(usable.shape[1]):
        usable[:, kind] = allowed[:, kind_of == kind].any(axis=1)
    return usable


@compiled
def _own_s(load: FloatArray, kinds: FloatArray, usable: BoolArray, width_s: float) -> FloatArray:
    """Mace of every item alone on its best core, in seconds."""
    best = np.full(len(load), np.inf)
    for i in range(len(load)):
        for k in range(len(kinds)):
            if usable[i, k]:
                best[i] = min(best[i], worst_of(load[i], kinds[k], width_s))
    return best
