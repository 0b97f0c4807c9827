"""Isolation of a query, each of its operators alone on the best core it may have: no number of nodes betters it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from engine.document.deployment import Constraints, Deployment, Node, Replica
from engine.estimation.query_flow import flow_queries
from engine.placement.splits import MAX_PARTS
from engine.provisioning.answers.objectives import RealisedObjective
from engine.provisioning.objectives import realised_objectives
from engine.provisioning.pool.judge import Judge
from engine.provisioning.pool.problem import PoolProblem

__all__ = ["alone_objective", "split_further"]

_BUSY = 0.6  # share of the best core that an operator alone takes in the mean, from which on randomness may need parts


def split_further(fine: Deployment, problem: PoolProblem, judge: Judge, parts: Mapping[str, int]) -> dict[str, int]:
    """More parts, twice as many, for operators of queries that alone do not hold; empty where that would not help.

    Looked at are operators that may be split and are in parts already, or fill a core.

    Parameters
    ----------
    parts : mapping
        Parts that `problem` has them in.
    """
    more: dict[str, int] = {}
    best = np.where(problem.allowed, problem.budget.mean(axis=1)[None, :], 0.0).max(axis=1, initial=0.0)
    share = np.divide(problem.load.mean(axis=1), best, out=np.zeros(len(best)), where=best > 0.0)
    operators = problem.deployment.operators
    for i, query in enumerate(judge.queries):
        names = {
            operators[problem.operator[item]].id
            for item in np.flatnonzero(judge.members[i])
            if not problem.whole(operators[problem.operator[item]])
            and (operators[problem.operator[item]].id in parts or share[item] >= _BUSY)
        }
        open_ = {name for name in names if parts.get(name, 1) < MAX_PARTS}
        if open_ and np.isfinite(judge.bounds[i]):
            alone = alone_objective(fine, problem, judge, query)
            if alone is not None and alone.state != "holds":
                more |= {name: min(MAX_PARTS, 2 * parts.get(name, 1)) for name in open_}
    return more


def alone_objective(fine: Deployment, problem: PoolProblem, judge: Judge, query: str) -> RealisedObjective | None:
    """Realised figures of a query whose items have a core each, without links; None if one may have no core.

    Parameters
    ----------
    fine : Deployment
        At full resolution, with the operators of `problem`.
    """
    items = np.flatnonzero(judge.members[judge.queries.index(query)])
    nodes: list[Node] = []
    replicas: dict[str, list[Replica]] = {}
    for item in items.tolist():
        open_ = np.flatnonzero(problem.allowed[item])
        if not len(open_):
            return None
        best = int(problem.node[open_[problem.budget[open_].mean(axis=1).argmax()]])
        name = problem.deployment.nodes[best].id
        node = replace(fine.nodes[fine.node_index[name]], id=f"alone-{item}", cores=1)
        nodes.append(node)
        operator = fine.operators[problem.operator[item]].id
        replicas.setdefault(operator, []).append(Replica(node.id, 0, float(problem.fraction[item])))
    whole = replace(
        fine,
        nodes=tuple(nodes),
        links=(),
        operators=tuple(
            replace(operator, replicas=tuple(replicas[operator.id]))
            for operator in fine.operators
            if operator.id in replicas
        ),
        objectives=tuple(entry for entry in fine.objectives if entry.query == query),
        constraints=Constraints(),
        priorities={},
        plans={},
    )
    return realised_objectives(flow_queries(whole)).get(query)
