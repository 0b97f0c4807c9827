"""What no placement can beat: lower bounds on Mace, by which a pool is proven too small.

The whole load on one server as large as all cores together ("fused"), and one operator alone on the best core it may
have ("largest operator"). Both hold for any placement, so an objective they break cannot be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.elements import FloatArray
from engine.mace import drain_times
from engine.provisioning.board import Board
from engine.provisioning.judge import Judge, excess_of
from engine.quantiles import statistic_of

__all__ = ["Refutation", "fused_s", "refuted"]


@dataclass(frozen=True)
class Refutation:
    """Why no placement on a pool keeps every objective."""

    kind: str  # "fused" or "largest operator"
    query: str
    bound_s: float
    least_s: float
    operator: str | None = None
    lose: int = 0

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "query": self.query,
            "operator": self.operator,
            "bound_s": self.bound_s,
            "least_s": self.least_s,
            "message": self.message,
        }

    @property
    def message(self) -> str:
        if self.operator is not None:
            return (
                f"operator {self.operator} alone on the best core it may have takes query {self.query} to "
                f"{self.least_s:.3g} s, over its {self.bound_s:g} s: no number of such nodes helps"
            )
        lost = " with its largest node lost" if self.lose else ""
        return (
            f"all that may wait {self.bound_s:g} s at most, on one server as large as the whole pool{lost}, takes "
            f"{self.least_s:.3g} s: some query among {self.query} is late wherever the operators are"
        )


def fused_s(load: FloatArray, budget: FloatArray, width_s: float) -> float:
    """Largest Mace of a load (d,) on one server with the budgets of all cores, (cores, d) or (cores, 1), together."""
    if not len(budget):
        return np.inf if load.any() else 0.0
    together = budget.sum(axis=0, keepdims=True)
    excess = excess_of(np.ascontiguousarray(load[None, :]), together)
    seconds = drain_times(np.ascontiguousarray(excess.T), np.ascontiguousarray(together.T) / width_s, width_s)
    return float(np.where(excess.T > 0.0, seconds, 0.0).max(initial=0.0))


def refuted(board: Board, judge: Judge, nodes: int, *, lose: int = 0) -> Refutation | None:
    """A proof that the first `nodes` nodes cannot keep every objective with any `lose` of them lost, if there is one.

    Parameters
    ----------
    lose : int
        0 or 1. The largest node is taken away for the fused bound.
    """
    cores = board.cores_of(nodes)
    return _largest_operator(board, judge, cores) or _fused(board, judge, nodes, lose)


def _largest_operator(board: Board, judge: Judge, cores: int) -> Refutation | None:
    w = board.deployment.subinterval_s
    worst: Refutation | None = None
    alone_s = _alone_s(board, cores)
    for i, query in enumerate(judge.queries):
        limit = judge.bounds[i]
        late = np.flatnonzero(judge.members[i] & (alone_s > limit))
        for item in late[np.argsort(-alone_s[late])][:8]:
            least_s = float(alone_s[item])
            if judge.statistics[i] != "worst":
                best = _best_core(board, int(item), cores)
                excess = excess_of(board.load[[item]], board.budget[[best]])
                rates = np.ascontiguousarray(board.budget[[best]].T) / w
                series = drain_times(np.ascontiguousarray(excess.T), rates, w)[:, 0]
                series = np.where(excess[0] > 0.0, series, 0.0)
                least_s = statistic_of(series, judge.weights[query], judge.statistics[i])
            if least_s > limit and (worst is None or least_s / limit > worst.least_s / worst.bound_s):
                name = board.deployment.operators[board.operator[item]].id
                worst = Refutation("largest operator", query, float(limit), least_s, name)
    return worst


def _best_core(board: Board, item: int, cores: int) -> int:
    """The fastest core an item may have (by mean capacity)."""
    open_ = np.flatnonzero(board.allowed[item, :cores])
    return int(open_[board.budget[open_].mean(axis=1).argmax()]) if len(open_) else 0


def _alone_s(board: Board, cores: int) -> FloatArray:
    """Least Mace of every item alone on a core it may have, (items,); infinite where it may have none."""
    budgets, kind = np.unique(board.budget[:cores], axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    found = np.full(len(board.load), np.inf)
    for k in range(len(budgets)):
        open_ = board.allowed[:, :cores][:, kind == k].any(axis=1)
        for item in np.flatnonzero(open_):
            if found[item] > 0.0:
                alone = fused_s(board.load[item], budgets[[k]], board.deployment.subinterval_s)
                found[item] = min(found[item], alone)
    return found


def _fused(board: Board, judge: Judge, nodes: int, lose: int) -> Refutation | None:
    """Queries with bounds up to b, together on all cores: their largest Mace is at least that of the fused server."""
    cores = board.cores_of(nodes)
    budget, node = board.budget[:cores], board.node[:cores]
    if lose and cores:
        size = np.bincount(node, budget.mean(axis=1))
        budget = budget[node != int(size.argmax())]
    worst_only = [i for i, name in enumerate(judge.statistics) if name == "worst" and np.isfinite(judge.bounds[i])]
    for bound in sorted({float(judge.bounds[i]) for i in worst_only}):
        chosen = [i for i in worst_only if judge.bounds[i] <= bound]
        members = judge.members[chosen].any(axis=0)
        least_s = fused_s(board.load[members].sum(axis=0), budget, board.deployment.subinterval_s)
        if least_s > bound:
            names = ", ".join(judge.queries[i] for i in chosen[:5]) + (" ..." if len(chosen) > 5 else "")
            return Refutation("fused", names, bound, least_s, None, lose)
    return None
