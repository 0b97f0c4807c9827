"""Demand of queries, as quotas count it: mean cores, events read, and cores of each pool, over the horizon."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from engine.document.deployment import Deployment
from engine.policies.quotas import CORES, POOL, QUERIES, RATE, TeamDemand

__all__ = ["demands_by_team", "query_demand"]


def query_demand(deployment: Deployment, query: str, pools: Mapping[str, str]) -> TeamDemand:
    """Mean load that a placed query keeps busy on average over the horizon; `pools` is the pool of each node.

    Cores are sum over its operators o and their replicas r of mean load (cycles/s) of o times the part of r by the
    capacity of a core of its node. With a cost that nobody knows there is more than that.
    """
    return _demand(deployment, [query], pools)


def demands_by_team(
    deployment: Deployment, teams: Mapping[str, str], wanted: Collection[str], pools: Mapping[str, str]
) -> dict[str, TeamDemand]:
    """Demand of the running queries of each of the `wanted` teams; `teams` is the team of each query."""
    queries: dict[str, list[str]] = {team: [] for team in wanted}
    for query in deployment.queries:
        if (team := teams.get(query, "")) in queries:
            queries[team].append(query)
    return {team: _demand(deployment, own, pools) for team, own in queries.items()}


def _demand(deployment: Deployment, queries: Collection[str], pools: Mapping[str, str]) -> TeamDemand:
    from engine.estimation.loads import loads_of  # numba with it

    own = np.array(sorted(i for query in queries for i in deployment.operators_of(query)), dtype=np.int64)
    if not len(own):
        return TeamDemand({QUERIES: 0.0, CORES: 0.0, RATE: 0.0})
    means = loads_of(deployment).operator(own).load.mean(axis=1) / deployment.subinterval_s
    amounts: dict[str, float] = {QUERIES: float(len(queries)), CORES: 0.0, RATE: 0.0}
    is_unknown, read = False, dict[tuple[str | None, str], float]()
    for i, mean in zip(own.tolist(), means.tolist(), strict=True):
        operator = deployment.operators[i]
        is_unknown |= operator.is_cost_unknown
        for replica in operator.replicas:
            node = deployment.nodes[deployment.node_index[replica.node]]
            cores = mean * replica.fraction / node.capacity_cps
            amounts[CORES] += cores
            pool = f"{POOL}{pools.get(replica.node, '')}"
            amounts[pool] = amounts.get(pool, 0.0) + cores
        for entry in operator.inputs:
            if entry.source in deployment.source_index:
                arrivals = deployment.sources[deployment.source_index[entry.source]].arrivals
                read[operator.query, entry.source] = float(arrivals.mean()) / deployment.subinterval_s
    amounts[RATE] = sum(read.values())
    # of an unknown cost it takes more cores than are counted, wherever it runs
    more = {CORES, *(name for name in amounts if name.startswith(POOL))} if is_unknown else set[str]()
    return TeamDemand(amounts, frozenset(more))
