"""By which policy the nodes of a live cluster are scheduled, as their agents say."""

from __future__ import annotations

from dataclasses import replace

from apps.fleet.models import Cluster
from apps.measurements.places import places_of
from apps.telemetry.selectors import policy_in_force
from engine.deployment import Deployment
from engine.scheduling import STIMULUS_TIME

__all__ = ["as_scheduled"]


def as_scheduled(deployment: Deployment, cluster: Cluster) -> Deployment:
    """The deployment with the policy in force at each node's agent; nodes without an agent keep their own.

    Where a node has several agents, one that is not scheduled by stimulus time decides: it is what loosens the bound.
    """
    told = policy_in_force(cluster)
    if not told:
        return deployment
    nodes = {node.id: node for node in deployment.nodes}
    changed = {}
    for agent, node in places_of(cluster).nodes.items():
        policy = told.get(agent)
        known = changed.get(node.name)
        if policy and node.name in nodes and (known is None or known.scheduling == STIMULUS_TIME):
            changed[node.name] = replace(nodes[node.name], scheduling=policy)
    return deployment.with_nodes(replaced=changed)
