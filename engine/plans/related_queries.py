"""Queries that share servers or streams, directly or through others: a plan is ranked among these alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from engine.admission.scenario import party_of
from engine.document.deployment import Constraints, Deployment

__all__ = ["related_queries", "restrict_to_queries"]


def related_queries(after: Deployment, before: Deployment, touched: Collection[str]) -> tuple[str, ...]:
    """Queries whose estimate can differ: those tied to `touched` through servers or streams, before or after.

    Operators without a query tie everything together that they touch, as a query would.
    """
    groups = _Groups()
    for deployment in (after, before):
        for link in deployment.links:
            # Two queries on a link share nodes at both its ends unless they only pass it; tie its ends together.
            if link.bandwidth_bytes_s is not None:
                groups.join(("node", link.source), ("node", link.target))
        for operator in deployment.operators:
            own = ("query", party_of(operator))
            for replica in operator.replicas:
                groups.join(own, ("node", replica.node))
            for entry in operator.inputs:
                i = deployment.operator_index.get(entry.source)
                if i is not None:
                    groups.join(own, ("query", party_of(deployment.operators[i])))
    roots = {groups.root(("query", query)) for query in touched}
    return tuple(query for query in after.queries if groups.root(("query", query)) in roots)


def restrict_to_queries(deployment: Deployment, queries: Collection[str]) -> Deployment:
    """Only the operators of some queries, which must be tied to no others; operators without a query stay."""
    if set(queries) >= set(deployment.queries):
        return deployment
    kept = set(queries)
    return replace(
        deployment,
        operators=tuple(op for op in deployment.operators if op.query is None or op.query in kept),
        objectives=tuple(objective for objective in deployment.objectives if objective.query in kept),
        priorities={},
        constraints=Constraints(),
        plans={},
    )


class _Groups:
    """Disjoint sets of names."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def root(self, name: Any) -> Any:
        while (above := self._above.setdefault(name, name)) != name:
            self._above[name] = self._above[above]
            name = above
        return name

    def join(self, a: Any, b: Any) -> None:
        self._above[self.root(a)] = self.root(b)
