"""Sentences of what-ifs: what a change changes."""

from __future__ import annotations

from engine.provisioning.changes import (
    AddedNodes,
    AddedQuery,
    AppliedChange,
    NodeWithdrawal,
    OtherArrivals,
    OtherCapacity,
    OtherObjective,
    RemovedQuery,
    ResizedPool,
    ScaledQuery,
    ScaledSource,
)
from engine.words import counted

__all__ = ["change_words"]


def change_words(applied: AppliedChange) -> str:
    """A change as a phrase."""
    match applied.change:
        case ScaledSource(source, by):
            return f"{'every source' if source == '*' else f'source {source}'} at {by:g} times its load"
        case ScaledQuery(query, by):
            return f"query {query} at {by:g} times its load"
        case OtherArrivals(source):
            return f"source {source} with other arrivals"
        case AddedNodes(count, like):
            return f"{counted(count, 'node')} added{f' like {like}' if like else ''}"
        case NodeWithdrawal(node):
            return f"node {node} lost"
        case OtherCapacity(node, by, capacity_cps):
            capacity = f"{capacity_cps:g} cycles/s a core" if by is None else f"{by:g} times its capacity"
            return f"node {node} at {capacity}"
        case ResizedPool(pool, count):
            return f"pool {pool} from {applied.was} to {counted(count, 'node')}"
        case OtherObjective(query, bound_s=bound_s):
            return f"objective of {query}: {applied.was} at most {bound_s:g} s"
        case AddedQuery():
            return f"query {applied.was} added"
        case RemovedQuery(query):
            return f"query {query} removed"
    raise ValueError(f"{applied.change} has no sentence")
