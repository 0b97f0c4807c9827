"""Lower bounds that prove a pool too small, and operators that must be split to keep objectives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray, statistic_or_worst
from engine.document.deployment import Deployment
from engine.estimation.mace import drain_times
from engine.estimation.overload import lasting_penalty_s
from engine.latency_state import ENDLESS_S
from engine.placement.problem import excess_of
from engine.placement.splits import MAX_PARTS
from engine.provisioning.answers.pools import Refutation
from engine.provisioning.pool.judge import Judge
from engine.provisioning.pool.problem import Placement, PoolProblem, pool_problem
from engine.words import counted, size_words

__all__ = [
    "FusedBound",
    "LateOperator",
    "alone_s",
    "fused_s",
    "late_alone",
    "of_operator",
    "parts_needed",
    "refute_memory",
    "remaining",
    "remaining_of",
    "split_problem",
    "splits_of",
]

_NAMED = 6  # operators in a list, the last of a longer one being the number of those left out
_ROOM = 0.5  # of the bound a part may take alone, so that it need not have a core to itself


@dataclass(frozen=True)
class LateOperator:
    """An item that by itself takes a query over its bound on the best core it may have."""

    item: int
    query: int
    least_s: float
    over: float


def fused_s(load: FloatArray, budget: FloatArray, width_s: float) -> float:
    """Largest Mace of a load (d,) on one server with the budgets of all cores, (cores, d) or (cores, 1), together."""
    if not len(budget):
        return np.inf if load.any() else 0.0
    together = budget.sum(axis=0, keepdims=True)
    excess = excess_of(np.ascontiguousarray(load[None, :]), together)
    seconds = drain_times(np.ascontiguousarray(excess.T), np.ascontiguousarray(together.T) / width_s, width_s)
    return float(np.where(excess.T > 0.0, seconds, 0.0).max(initial=0.0))


def refute_memory(problem: PoolProblem, nodes: Sequence[int], lose: int = 0) -> Refutation | None:
    """A proof that state has no room on some of the nodes with any `lose` (0 or 1) of them lost, if there is one.

    An operator's state must fit a node that it may use, and all state the memory of all nodes together; with one lost,
    that is the node with the most memory.
    """
    if not problem.is_limited or not len(nodes):
        return None
    chosen = np.array(nodes, dtype=np.int64)
    best = _best_rooms(problem, chosen, lose)
    short = np.flatnonzero((problem.need > 0.0) & (problem.need > best))
    if not len(short):
        return _refute_total(problem, problem.rooms[chosen], lose)
    item = int(short[problem.need[short].argmax()])
    operator = problem.deployment.operators[problem.operator[item]]
    part = "a part of the state" if (problem.operator == problem.operator[item]).sum() > 1 else "the state"
    of_query = f" of query {operator.query}" if operator.query else ""
    room_words = f"no node that it may use has more than {size_words(best[item])} of memory"
    if best[item] < 0.0:
        room_words = "there is no other node that it may use" if lose else "there is no node that it may use"
    lost = " with one lost" if lose else ""
    words = f"{part} of operator {operator.id}{of_query} takes {size_words(problem.need[item])}, and {room_words}{lost}"
    if problem.need[item] > _best_rooms(problem, np.arange(len(problem.room)), lose)[item]:
        words += ": no number of such nodes helps"
    return Refutation("memory", operator.query or "", operator.id, 0.0, math.inf, lose=lose, memory=words)


def _best_rooms(problem: PoolProblem, nodes: IntArray, lose: int) -> FloatArray:
    """Most memory of a node, among some, that each item may use, once the best `lose` of them are lost; -1 for none."""
    open_nodes = np.zeros((len(problem.room), len(problem.need)), dtype=bool)
    np.logical_or.at(open_nodes, problem.node, problem.allowed.T)
    rooms = np.sort(np.where(open_nodes[nodes].T, problem.rooms[nodes], -1.0), axis=1)
    return np.asarray(rooms[:, -1 - lose]) if rooms.shape[1] > lose else np.full(len(rooms), -1.0)


def _refute_total(problem: PoolProblem, room: FloatArray, lose: int) -> Refutation | None:
    """The proof that nodes with so much memory each have too little for all state together."""
    total, together = float(problem.need.sum()), float(np.sort(room)[: max(0, len(room) - lose)].sum())
    if total <= together:
        return None
    lost = " with the largest memory lost" if lose else ""
    words = f"all state takes {size_words(total)}, and the memory of {counted(len(room), 'node')}{lost} is "
    return Refutation("memory", "", None, 0.0, math.inf, lose=lose, memory=words + size_words(together))


def remaining(problem: PoolProblem, cores: int, lose: int) -> FloatArray:
    """Budgets of the first cores, without those of the largest node if one is to be lost."""
    return remaining_of(problem.budget[:cores], problem.node[:cores], lose)


def remaining_of(budget: FloatArray, node: IntArray, lose: int) -> FloatArray:
    """Budgets of cores on some nodes, without those of the largest node if one is to be lost."""
    if lose and len(budget):
        size = np.bincount(node, budget.mean(axis=1))
        return budget[node != int(size.argmax())]
    return budget


def of_operator(problem: PoolProblem, judge: Judge, late: LateOperator) -> Refutation:
    """The proof that one item is."""
    operator = problem.deployment.operators[problem.operator[late.item]]
    parts = int((problem.operator == problem.operator[late.item]).sum())
    bound_s = float(judge.bounds[late.query])
    whole = problem.whole(operator)
    name = judge.queries[late.query]
    return Refutation("largest operator", name, operator.id, bound_s, late.least_s, parts, whole)


def late_alone(problem: PoolProblem, judge: Judge, cores: int) -> list[LateOperator]:
    """Items that no placement on the first `cores` cores can keep in time, the worst of all first."""
    operators = []
    best_s = alone_s(problem, cores)
    for i, query in enumerate(judge.queries):
        limit = float(judge.bounds[i])
        late = np.flatnonzero(judge.members[i] & (best_s > limit))
        for item in late[np.argsort(-best_s[late], kind="stable")]:
            least_s = float(best_s[item])
            if judge.statistics[i] != "worst" and least_s < ENDLESS_S:
                least_s = statistic_or_worst(
                    _series(problem, int(item), cores), judge.weights[query], judge.statistics[i]
                )
            if least_s > limit:
                operators.append(LateOperator(int(item), i, least_s, least_s / limit))
    return sorted(operators, key=lambda late: -late.over)


def _series(problem: PoolProblem, item: int, cores: int) -> FloatArray:
    """Mace over time of an item alone on the fastest core it may have (by mean capacity), shape (d,)."""
    open_ = np.flatnonzero(problem.allowed[item, :cores])
    best = int(open_[problem.budget[open_].mean(axis=1).argmax()])
    w = problem.deployment.subinterval_s
    excess = excess_of(problem.load[[item]], problem.budget[[best]])
    series = drain_times(np.ascontiguousarray(excess.T), np.ascontiguousarray(problem.budget[[best]].T) / w, w)[:, 0]
    return np.asarray(np.where(excess[0] > 0.0, series, 0.0))


def alone_s(problem: PoolProblem, cores: int, scale: FloatArray | None = None) -> FloatArray:
    """Least Mace of every item alone on a core it may have, (items,); infinite where it may have none.

    One that never catches up even there has the penalty for it on top. With `scale` (items,) of each item only that
    share of its load; items with a share of 0 are passed over.
    """
    budgets, kind = np.unique(problem.budget[:cores], axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    share = np.ones(len(problem.load)) if scale is None else scale
    seconds = np.full(len(problem.load), np.inf)
    for k in range(len(budgets)):
        open_ = problem.allowed[:, :cores][:, kind == k].any(axis=1)
        for item in np.flatnonzero(open_ & (share > 0.0)):
            if seconds[item] > 0.0:
                alone = fused_s(problem.load[item] * share[item], budgets[[k]], problem.deployment.subinterval_s)
                if alone > 0.0:
                    load = np.ascontiguousarray(problem.load[[item]] * share[item])
                    alone += float(lasting_penalty_s(load, budgets[[k]], excess_of(load, budgets[[k]]))[0])
                seconds[item] = min(seconds[item], alone)
    return seconds


class FusedBound:
    """Queries with bounds up to b, together on all cores: their largest Mace is at least that of the fused server."""

    def __init__(self, problem: PoolProblem, judge: Judge) -> None:
        self._judge, self._width_s = judge, problem.deployment.subinterval_s
        worst = [i for i, name in enumerate(judge.statistics) if name == "worst" and np.isfinite(judge.bounds[i])]
        worst.sort(key=lambda i: float(judge.bounds[i]))
        self.bounds = sorted({float(judge.bounds[i]) for i in worst})
        self._queries = worst
        self._loads: list[FloatArray] = []
        load, seen = np.zeros(problem.load.shape[1]), np.zeros(len(problem.load), dtype=bool)
        for bound in self.bounds:
            chosen = [i for i in worst if judge.bounds[i] == bound]
            new = judge.members[chosen].any(axis=0) & ~seen
            load, seen = load + problem.load[new].sum(axis=0), seen | new
            self._loads.append(load)

    def refute(self, budget: FloatArray, lose: int) -> Refutation | None:
        """A proof against cores with these budgets, (cores, d) or (cores, 1); `lose` are those already taken away."""
        together = budget.sum(axis=0, keepdims=True) if len(budget) else budget
        for bound, load in zip(self.bounds, self._loads, strict=True):
            least_s = fused_s(load, together, self._width_s)
            if least_s > bound:
                names = [self._judge.queries[i] for i in self._queries if self._judge.bounds[i] <= bound]
                said = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
                return Refutation("fused", said, None, bound, least_s, lose=lose)
        return None


def parts_needed(problem: PoolProblem, judge: Judge, cores: int) -> dict[str, int]:
    """Parts for the operators that alone break an objective on the first cores: the fewest that leave room, or 8."""
    operators = problem.deployment.operators
    limits: dict[int, float] = {}
    for late in late_alone(problem, judge, cores):
        if not problem.whole(operators[problem.operator[late.item]]):
            bound_s = float(judge.bounds[late.query])
            limits[late.item] = min(limits.get(late.item, np.inf), bound_s)
    parts: dict[str, int] = {}
    for item, bound_s in limits.items():
        name = operators[problem.operator[item]].id
        parts[name] = max(parts.get(name, 1), _parts(problem, cores, item, _ROOM * bound_s))
    return parts


def _parts(problem: PoolProblem, cores: int, item: int, limit_s: float) -> int:
    for parts in range(2, MAX_PARTS):
        scale = np.zeros(len(problem.load))
        scale[item] = 1.0 / parts
        if alone_s(problem, cores, scale)[item] <= limit_s:
            return parts
    return MAX_PARTS


def split_problem(problem: PoolProblem, weights: Any, closed: Any, cores: int) -> tuple[PoolProblem, dict[str, int]]:
    """The problem with what alone breaks an objective on its first cores cut into parts, and those parts."""
    problem = replace(problem, split=True)
    parts = parts_needed(problem, Judge(problem), cores)
    return (replace(pool_problem(problem.deployment, weights, closed, parts), split=True) if parts else problem), parts


def splits_of(deployment: Deployment, placement: Placement) -> dict[str, int]:
    """Operators that a placement has in more parts than they are in now, and how many."""
    now = {operator.id: max(1, len(operator.replicas)) for operator in deployment.operators}
    return {name: len(held) for name, held in placement.items() if len(held) > now[name]}
