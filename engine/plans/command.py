"""``plans`` of the command line: the plans of a deployment document, ranked query by query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.deployment import Deployment
from engine.errors import OptionError
from engine.plans.comparison import compare
from engine.plans.dataflow import Operators
from engine.plans.ranking import OneNode

__all__ = ["command"]


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Rank what runs of each query against its plans in `plans` and what the rules find.

    Options: `query` (one only), `capacity_cps` (judge on one node of this capacity), `hop_cycles`, `places`,
    `mace_every`. A query without `plans` is compared with what the rules find.
    """
    deployment = Deployment.parse(document)
    queries = list(dict.fromkeys((*deployment.queries, *deployment.plans)))
    if (wanted := options.get("query")) is not None:
        if wanted not in queries:
            raise OptionError(f"query is {wanted!r}; allowed: {', '.join(queries) or 'none, no operator names one'}")
        queries = [wanted]
    return {query: _compared(deployment, query, options) for query in queries}


def _compared(deployment: Deployment, query: str, options: Mapping[str, Any]) -> dict[str, Any]:
    entered: dict[str, Operators] = {}
    runs = query in deployment.queries
    if runs:
        entered["running"] = tuple(deployment.operators[i] for i in deployment.operators_of(query))
    entered |= {f"plan{i}": plan for i, plan in enumerate(deployment.plans.get(query, ()), 1)}
    capacity = options.get("capacity_cps")
    return compare(
        deployment,
        query,
        entered,
        running="running" if runs else None,
        node=OneNode(capacity) if capacity else None,
        hop_cycles=options.get("hop_cycles", 0.0),
        places=options.get("places", "keep"),
        mace_every=options.get("mace_every", 1),
    )
