"""Nodes that come, go and change size, and pools of any number of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from engine.arrays import frozen_array
from engine.document.cycles import common_unit
from engine.document.deployment import Constraints, Deployment, Node, Operator, Replica, with_node_like
from engine.errors import DocumentError, Fault, suggestion

__all__ = [
    "PoolRange",
    "add_nodes",
    "cost_per_hour",
    "grow_nodes",
    "lose_nodes",
    "new_names",
    "pool_of",
    "resize_node",
    "resize_pool",
]


def add_nodes(
    deployment: Deployment, count: int, like: str | None = None, *, capacity_cps: float | None = None, **given: Any
) -> Deployment:
    """New nodes like an existing one, or bare ones with a capacity alone; each is named ``new-1``, ``new-2`` ..."""
    bare = Node("", cycle_unit=common_unit(deployment.nodes))
    model = bare if like is None else deployment.nodes[deployment.node_index[like]]
    if capacity_cps is not None:
        model = replace(model, capacity_cps=capacity_cps, capacity_series_cps=None)
    return grow_nodes(deployment, replace(model, labels={}, **given), count, like)


def grow_nodes(deployment: Deployment, model: Node, count: int, like: str | None) -> Deployment:
    """`count` more nodes as `model` is, connected as `like` is."""
    for name in itertools.islice(new_names(deployment), count):
        node = replace(model, id=name)
        if like is None:
            deployment = replace(deployment, nodes=(*deployment.nodes, node))
        else:
            deployment = with_node_like(deployment, node, like)
    return deployment


def new_names(deployment: Deployment) -> Iterator[str]:
    """Names that no node has."""
    taken = {node.id for node in deployment.nodes}
    return (name for k in itertools.count(1) if (name := f"new-{k}") not in taken)


def lose_nodes(deployment: Deployment, names: Collection[str]) -> Deployment:
    """The deployment without some nodes: what was on them has no place.

    An operator of which a part is left elsewhere is carried by that part. Pins to a lost node stay, so that a placement
    says what they make impossible.
    """
    gone = set(names)
    limits = deployment.constraints
    forbid = {name: tuple(node for node in nodes if node not in gone) for name, nodes in limits.forbid.items()}
    return replace(
        deployment,
        nodes=tuple(node for node in deployment.nodes if node.id not in gone),
        links=tuple(link for link in deployment.links if link.source not in gone and link.target not in gone),
        operators=tuple(_without_nodes(operator, gone) for operator in deployment.operators),
        constraints=_with_forbid(limits, forbid),
    )


def _with_forbid(limits: Constraints, forbid: dict[str, tuple[str, ...]]) -> Constraints:
    return replace(limits, forbid={name: nodes for name, nodes in forbid.items() if nodes})


def _without_nodes(operator: Operator, gone: set[str]) -> Operator:
    left = [replica for replica in operator.replicas if replica.node not in gone]
    if len(left) == len(operator.replicas):
        return operator
    total = sum(replica.fraction for replica in left)
    return replace(operator, replicas=tuple(Replica(r.node, r.core, r.fraction / total) for r in left))


def resize_node(deployment: Deployment, name: str, by: float | None, capacity_cps: float | None) -> Deployment:
    """Another capacity for a node, as a multiple of its own or in cycles/s."""
    nodes = list(deployment.nodes)
    i = deployment.node_index[name]
    if by is not None:
        nodes[i] = _scaled(nodes[i], by)
    else:
        nodes[i] = replace(nodes[i], capacity_cps=capacity_cps, capacity_series_cps=None)
    return replace(deployment, nodes=tuple(nodes))


def _scaled(node: Node, by: float) -> Node:
    if node.capacity_series_cps is not None:
        return replace(node, capacity_series_cps=frozen_array(node.capacity_series_cps * by))
    return replace(node, capacity_cps=(node.capacity_cps or 0.0) * by)


def resize_pool(deployment: Deployment, pool: str, count: int) -> Deployment:
    """A pool of `count` nodes: the last of its list go, or more come like the last one."""
    members = [node for node in deployment.nodes if node.pool == pool]
    if count <= len(members):
        return lose_nodes(deployment, {node.id for node in members[count:]})
    return grow_nodes(deployment, replace(members[-1], labels={}), count - len(members), members[-1].id)


def cost_per_hour(nodes: Collection[Node]) -> float | None:
    """Price of some nodes together; None where one has no price."""
    prices = [node.price_per_hour for node in nodes]
    return None if None in prices else float(sum(price or 0.0 for price in prices))


@dataclass(frozen=True, eq=False)
class PoolRange:
    """Pools of 0 to `most` nodes: `deployment` has all of them, in order.

    `present` nodes are there already; `model` is what more of them are like.
    """

    deployment: Deployment
    present: int
    model: Node

    @property
    def most(self) -> int:
        return len(self.deployment.nodes)


def pool_of(deployment: Deployment, most: int, like: str | Node | None = None) -> PoolRange:
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
    return PoolRange(grow_nodes(ordered, replace(model, labels={}), more, name), len(nodes), model)


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
        raise DocumentError(
            [Fault("like", f"like names {like!r}, which is no node{suggestion(like, known)}")], "question"
        )
    return like, deployment.nodes[deployment.node_index[like]]
