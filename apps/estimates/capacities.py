"""Capacities of a cluster and its queries, computed with an estimate and kept with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from apps.estimates.bases import base_changes
from apps.estimates.selectors import run_latest
from apps.fleet.models import Cluster
from engine.capacity.answer import ClusterCapacity, QueryCapacity

if TYPE_CHECKING:
    from engine.estimation.base import EstimateBase

__all__ = ["ClusterCapacities", "capacities_of", "queries_tried"]

#: Of queries whose objectives are tried in one run: at most so many, and so many operators of the cluster in all. A try
#: takes longer the larger the cluster is; those with the least headroom come first, and those left in later runs.
MAX_TRIED, MAX_TRIED_OPERATORS = 12, 1000
MAX_TRIED_BY_TELEMETRY, MAX_TRIED_OPERATORS_BY_TELEMETRY = 3, 150
_MAX_S = 10.0  # and no further one is begun after so long: of overloaded clusters each takes seconds


@dataclass(frozen=True)
class ClusterCapacities:
    """Capacity of a cluster, and of its queries by name; None where it could not be computed."""

    cluster: ClusterCapacity | None = None
    queries: Mapping[str, QueryCapacity] = field(default_factory=dict)


def capacities_of(
    cluster: Cluster, base: EstimateBase, *, by_telemetry: bool, report: Callable[[float, str], None]
) -> ClusterCapacities:
    """Capacities by the base of a cluster's estimate; of queries with the figures of before, as they were kept."""
    from engine.capacity.saturation import ClusterSaturation  # numba with it, which only workers load

    deployment = base.estimate.deployment
    if not deployment.operators:
        return ClusterCapacities()
    report(1.0, "Capacity")
    saturation, kept = ClusterSaturation(deployment), _kept(cluster, base)
    queries = {query: kept.get(query) or saturation.of_query(query) for query in deployment.queries}
    most = queries_tried(len(deployment.operators), by_telemetry=by_telemetry)
    return ClusterCapacities(saturation.of_cluster(), _with_objectives(base, queries, most))


def queries_tried(operators: int, *, by_telemetry: bool) -> int:
    """Queries whose objectives are tried in one run of a cluster of so many operators.

    Examples
    --------
    >>> [queries_tried(operators, by_telemetry=False) for operators in (10, 400, 5000)]
    [12, 2, 0]
    >>> [queries_tried(operators, by_telemetry=True) for operators in (10, 100, 400)]
    [3, 1, 0]
    """
    if by_telemetry:
        return min(MAX_TRIED_BY_TELEMETRY, MAX_TRIED_OPERATORS_BY_TELEMETRY // max(1, operators))
    return min(MAX_TRIED, MAX_TRIED_OPERATORS // max(1, operators))


def _kept(cluster: Cluster, base: EstimateBase) -> Mapping[str, QueryCapacity]:
    """Capacities in the newest run of queries whose figures are the same since."""
    newest = run_latest(cluster)
    change = None if newest is None else base_changes(cluster, base, (newest.base or {}).get("digest", ""))
    if newest is None or change is None:
        return {}
    rows = newest.queries.order_by().values_list("query__name", "result__capacity")
    return {name: QueryCapacity.parse(capacity) for name, capacity in rows if capacity and name not in change.queries}


def _with_objectives(
    base: EstimateBase, queries: Mapping[str, QueryCapacity], most: int
) -> Mapping[str, QueryCapacity]:
    """Capacities with the rates at which objectives break, of so many queries that lack them."""
    from engine.capacity.objectives import with_objectives

    if not base.estimate.deployment.objectives:
        return queries
    done, until = dict(queries), time.monotonic() + _MAX_S
    known = {
        query: capacity.factor
        for query, capacity in queries.items()
        if capacity.factor is not None and not capacity.objectives_known
    }
    for query in sorted(known, key=lambda query: known[query])[:most]:
        if time.monotonic() > until:
            break
        done[query] = with_objectives(base, query, queries[query])
    return done
