"""Judge of a pool's placements: Mace of every query against its objective.

What never catches up has `lasting_penalty_s` on top of its Mace, which is a rank and no latency: it is later than all
that does, whatever the horizon.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from engine.arrays import FloatArray, IntArray, statistic_or_worst
from engine.document.deployment import Deployment
from engine.estimation.mace import drain_times
from engine.estimation.overload import lasting_penalty_s
from engine.latency_state import ENDLESS_S
from engine.placement.problem import BoolArray, excess_of
from engine.provisioning.pool.kernels import loads_on_cores, peaks
from engine.provisioning.pool.problem import PoolProblem

__all__ = ["Judge", "operator_weights", "queries_above"]


def queries_above(deployment: Deployment) -> BoolArray:
    """Operators that a query's latency can depend on, shape (queries, operators): its own and all they read."""
    graph, base = deployment.graph, len(deployment.sources)
    member = np.zeros((len(deployment.queries), len(deployment.operators)), dtype=bool)
    own = np.flatnonzero(graph.query >= 0)
    member[graph.query[own], own] = True
    for j in graph.order[::-1]:
        above = graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]] - base
        above = above[above >= 0]
        member[:, above] |= member[:, [j]]
    return member


def operator_weights(deployment: Deployment, stand_in: Mapping[str, float] | None = None) -> FloatArray:
    """Weight of a second at an operator: the tightest bound over that of its query, shape (operators,).

    An operator that several queries depend on has the largest; one without an objective counts as the loosest of all,
    or as one with the bound that `stand_in` has for its query.
    """
    bounds = {objective.query: objective.bound_s for objective in deployment.objectives}
    ones = np.ones(len(deployment.operators))
    if not bounds:
        return ones
    tightest, loosest = min(bounds.values()), max(bounds.values())
    weights = ones * (tightest / loosest)
    for query, member in zip(deployment.queries, queries_above(deployment), strict=True):
        share = tightest / bounds.get(query, max(loosest, (stand_in or {}).get(query, 0.0)))
        weights[member] = np.maximum(weights[member], share)
    return weights


class Judge:
    """Mace of cores, links and queries for placements on one problem."""

    def __init__(self, problem: PoolProblem) -> None:
        self.problem = problem
        deployment = problem.deployment
        self.queries = deployment.queries
        self.members = queries_above(deployment)[:, problem.operator]
        counts = self.members.sum(axis=1)
        self._filled = counts > 0
        self._member_items = np.nonzero(self.members)[1]
        self._member_start = np.concatenate([[0], np.cumsum(counts[self._filled])[:-1]]).astype(np.int64)
        self.bounds = np.full(len(self.queries), np.inf)
        self.statistics = ["worst"] * len(self.queries)
        for i, query in enumerate(self.queries):
            objective = deployment.objective_of(query)
            if objective is not None:
                self.bounds[i], self.statistics[i] = objective.bound_s, objective.statistic
        self._edges()

    @cached_property
    def weights(self) -> dict[str, FloatArray]:
        """Events at the sinks of each query, per subinterval."""
        graph, output = self.problem.deployment.graph, self.problem.output
        return {
            query: np.asarray(output[graph.query_sink & (graph.query == i)].sum(axis=0))
            for i, query in enumerate(self.queries)
        }

    def _edges(self) -> None:
        """Pairs of items that exchange events, and the links with a bandwidth."""
        deployment, problem = self.problem.deployment, self.problem
        index, nodes = deployment.operator_index, deployment.node_index
        parts: dict[int, list[int]] = {}
        for i, j in enumerate(problem.operator.tolist()):
            parts.setdefault(j, []).append(i)
        limited = [link for link in deployment.links if link.bandwidth_bytes_s is not None]
        pairs = [
            (a, b)
            for j, operator in enumerate(deployment.operators if limited else ())
            for entry in operator.inputs
            if entry.source in index and deployment.operators[index[entry.source]].bytes_per_event > 0.0
            for a in parts[index[entry.source]]
            for b in parts[j]
        ]
        self.edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        size = np.array([operator.bytes_per_event for operator in deployment.operators])
        above = problem.operator[self.edges[:, 0]]
        self.edge_bytes = size[above] * problem.fraction[self.edges[:, 0]] * problem.fraction[self.edges[:, 1]]
        self.link = np.full((len(nodes), len(nodes)), -1, dtype=np.int64)
        for k, link in enumerate(limited):
            self.link[nodes[link.source], nodes[link.target]] = k
        self.bandwidth = np.array([link.bandwidth_bytes_s or np.inf for link in limited])

    def core_s(self, assignment: IntArray, cores: int) -> FloatArray:
        """Largest Mace of every core, seconds, with the penalty of those that never catch up."""
        worst_s = self.mace_s(assignment, cores)
        return worst_s + self.lasting_s(assignment, worst_s)

    def lasting_s(self, assignment: IntArray, worst_s: FloatArray) -> FloatArray:
        """Penalty of every core that never catches up, shape (cores,); `worst_s` is the Mace of each."""
        penalty = np.zeros(len(worst_s))
        late = np.flatnonzero(worst_s > 0.0)  # the others have nothing left at any time
        if len(late):
            row = np.full(len(worst_s) + 1, -1, dtype=np.int64)  # the last stands for items without a place
            row[late] = np.arange(len(late))
            held = row[assignment] >= 0
            total = loads_on_cores(self.problem.load[held], row[assignment[held]], len(late))
            budget = np.ascontiguousarray(self.problem.budget[late])
            penalty[late] = lasting_penalty_s(total, budget, excess_of(total, budget))
        return penalty

    def mace_s(self, assignment: IntArray, cores: int) -> FloatArray:
        """Largest Mace of every core, seconds."""
        total, budget = loads_on_cores(self.problem.load, assignment, cores), self.problem.budget[:cores]
        if self.problem.budget.shape[1] == 1:
            worst_s = np.asarray(peaks(total, budget, self.problem.seconds[:cores]))
        else:
            worst_s = np.asarray(self.core_series(assignment, cores).max(axis=1, initial=0.0))
        return worst_s

    def core_series(self, assignment: IntArray, cores: int) -> FloatArray:
        """Mace of every core over time, shape (cores, d)."""
        total = loads_on_cores(self.problem.load, assignment, cores)
        excess = excess_of(total, self.problem.budget[:cores])
        w = self.problem.deployment.subinterval_s
        rates = np.ascontiguousarray(self.problem.budget[:cores].T) / w
        seconds = drain_times(np.ascontiguousarray(excess.T), rates, w)
        return np.asarray(np.where(excess > 0.0, seconds.T, 0.0))

    def edge_s(self, assignment: IntArray) -> FloatArray:
        """Largest Mace of the link that each pair of items uses, as `core_s`; 0 where it uses none."""
        if not len(self.edges):
            return np.zeros(0)
        ends = self.problem.node[assignment[self.edges]]
        used = self.link[ends[:, 0], ends[:, 1]]
        seconds = np.zeros(len(used))
        w = self.problem.deployment.subinterval_s
        for k in np.unique(used[used >= 0]):
            mine = used == k
            above = self.problem.operator[self.edges[mine, 0]]
            total = (self.edge_bytes[mine] @ self.problem.output[above])[None, :]
            budget = np.array([[self.bandwidth[k] * w]])
            worst_s = float(peaks(total, budget, 1.0 / np.array([self.bandwidth[k]]))[0])
            seconds[mine] = worst_s + (
                lasting_penalty_s(total, budget, excess_of(total, budget))[0] if worst_s else 0.0
            )
        return seconds

    def worst_by_query(self, assignment: IntArray, core_s: FloatArray, edge_s: FloatArray) -> FloatArray:
        """Largest Mace among the servers of each query, shape (queries,)."""
        item_s = core_s[assignment]
        if len(edge_s):
            item_s = item_s.copy()
            np.maximum.at(item_s, self.edges[:, 1], edge_s)
        worst = np.zeros(len(self.queries))
        if len(self._member_items):
            worst[self._filled] = np.maximum.reduceat(item_s[self._member_items], self._member_start)
        return worst

    def by_query(self, assignment: IntArray, worst_s: FloatArray, cores: int) -> FloatArray:
        """The statistic of each query's objective, shape (queries,): exact for cores, and no less than that for links.

        The worst case stands in where it is no later than the bound already, since no statistic exceeds it, and where
        the query never catches up.
        """
        latency = worst_s.copy()
        open_ = [
            i for i, name in enumerate(self.statistics) if name != "worst" and self.bounds[i] < worst_s[i] < ENDLESS_S
        ]
        if open_ and not len(self.edges):
            series = self.core_series(assignment, cores)
            for i in open_:
                mine = series[np.unique(assignment[self.members[i]])].max(axis=0, initial=0.0)
                latency[i] = statistic_or_worst(mine, self.weights[self.queries[i]], self.statistics[i])
        return latency

    def endless(self, values: FloatArray) -> tuple[str, ...]:
        """Queries that never catch up, by their values, shape (queries,)."""
        return tuple(self.queries[i] for i in np.flatnonzero((values >= ENDLESS_S) & np.isfinite(values)))
