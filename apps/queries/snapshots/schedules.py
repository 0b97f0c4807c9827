"""Scheduling policies in force at the nodes of a cluster, part of every snapshot of it.

Agents say by which policy they run, and telemetry, which stands above, keeps what they said: it registers the function
that reads it. No consumer of snapshots asks for policies of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from apps.fleet.models import Cluster, Node
from engine.document.policies import loosest_policy

__all__ = ["AgentPolicy", "node_policies", "policy_reader"]


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """Policy of an agent: at the node it is registered at, or else at that of its name."""

    agent: str
    node_id: int | None
    policy: str


PolicyReader = Callable[[Cluster], Iterable[AgentPolicy]]
_reader: PolicyReader | None = None  # set once, as the apps are loaded


def policy_reader(function: PolicyReader) -> PolicyReader:
    """Register the function that returns the policies that agents of a cluster reported last."""
    global _reader
    _reader = function
    return function


def node_policies(cluster: Cluster, nodes: Sequence[Node]) -> dict[str, str]:
    """Policy in force at each node's agent, as it said last; nodes without an agent have none.

    Where a node has several agents, the loosest policy of theirs decides.
    """
    by_id, by_name = {node.pk: node for node in nodes}, {node.name: node for node in nodes}
    said: dict[str, list[str]] = {}
    for entry in () if _reader is None else _reader(cluster):
        node = by_id.get(entry.node_id or 0) or by_name.get(entry.agent)
        if node is not None:
            said.setdefault(node.name, []).append(entry.policy)
    return {name: loosest_policy(policies) for name, policies in said.items()}
