"""By which policy the nodes of a live cluster are scheduled, as their agents say."""

from __future__ import annotations

from dataclasses import replace

from apps.fleet.models import Cluster
from apps.measurements.places import places_of
from apps.telemetry.selectors import policy_in_force
from engine.deployment import Deployment
from engine.scheduling import STIMULUS_TIME

__all__ = ["as_scheduled", "node_policies"]


def node_policies(cluster: Cluster) -> dict[str, str]:
    """The policy in force at each node's agent, as it said last.

    Where a node has several agents, one that is not scheduled by stimulus time decides: it is what loosens the bound.
    """
    told = policy_in_force(cluster)
    if not told:
        return {}
    found: dict[str, str] = {}
    for agent, node in places_of(cluster).nodes.items():
        policy = told.get(agent)
        if policy and found.get(node.name, STIMULUS_TIME) == STIMULUS_TIME:
            found[node.name] = policy
    return found


def as_scheduled(deployment: Deployment, cluster: Cluster) -> Deployment:
    """The deployment with the policies of its nodes; nodes without an agent keep their own."""
    policies = node_policies(cluster)
    known = {node.id: node for node in deployment.nodes if node.id in policies}
    changed = {name: replace(node, scheduling=policies[name]) for name, node in known.items()}
    return deployment.with_nodes(replaced=changed) if changed else deployment
