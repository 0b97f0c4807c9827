"""Pools of any size: the nodes of a deployment in an order such that the first n of them are the pool of n."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from engine.deployment import Deployment, Node
from engine.errors import DocumentError, Fault
from engine.provisioning.nodes import grow
from engine.wording import suggest

__all__ = ["Pool", "pool_of"]


@dataclass(frozen=True, eq=False)
class Pool:
    """Pools of 0 to `most` nodes: `deployment` has all of them, in order.

    `present` nodes are there already; `model` is what more of them are like.
    """

    deployment: Deployment
    present: int
    model: Node

    @property
    def most(self) -> int:
        return len(self.deployment.nodes)


def pool_of(deployment: Deployment, most: int, like: str | Node | None = None) -> Pool:
    """Pools of up to `most` nodes.

    Nodes that an operator is pinned to come first, then those of other pools, then the pool of `like` (the largest one
    unless given), then new nodes like it. Links of new nodes are those of `like`.

    Raises
    ------
    DocumentError
        If `like` names no node, or there is no node to be like.
    """
    name, model = _model(deployment, like)
    pinned = set(deployment.constraints.pin.values())
    own = model.pool

    def rank(node: Node) -> int:
        if node.id in pinned:
            return 0
        same = node.id == name if own is None and name else node.pool == own
        return 2 if same else 1

    nodes = tuple(sorted(deployment.nodes, key=rank))
    ordered = replace(deployment, nodes=nodes)
    more = max(0, most - len(nodes))
    return Pool(grow(ordered, replace(model, labels={}), more, name), len(nodes), model)


def _model(deployment: Deployment, like: str | Node | None) -> tuple[str | None, Node]:
    if isinstance(like, Node):
        return None, like
    if like is None:
        if not deployment.nodes:
            raise DocumentError([Fault("like", "like is missing; without nodes there is none to be like")], "question")
        sizes = Counter(node.pool for node in deployment.nodes)
        like = max(deployment.nodes, key=lambda node: sizes[node.pool]).id
    if like not in deployment.node_index:
        known = list(deployment.node_index)
        raise DocumentError([Fault("like", f"like names {like!r}, which is no node{suggest(like, known)}")], "question")
    return like, deployment.nodes[deployment.node_index[like]]
