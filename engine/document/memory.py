"""Memory of nodes against the state of the operators on them: what is held, what fits, and what nobody knows.

Everything that places operators takes needs and rooms from here, so that all of them mean the same by "it fits". State
that a document says is kept on disk takes no memory; an operator that keeps none needs none. Where an operator does not
state its bytes, or a node its memory, nothing is assumed: what is known still has to fit, and the rest is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import is_
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import computed_field

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.document.elements import Node, Operator
from engine.records import Fact, Record, Sentence

__all__ = [
    "MEMORY_SLACK",
    "FleetMemory",
    "NodeMemory",
    "fleet_memory",
    "is_memory_known",
    "memory_by_node",
    "memory_findings",
    "memory_with_more",
    "needs_of",
    "rooms_of",
    "state_need_bytes",
    "unknown_memory",
    "unstated_memory",
]

#: Share of a node's memory by which sums of state may be above it: their rounding.
MEMORY_SLACK = 1e-9

_STATELESS = ("source", "filter", "map", "sink")


def state_need_bytes(operator: Operator) -> float | None:
    """Bytes of memory that the state of all replicas of an operator takes together; None where nobody knows."""
    if operator.state_on_disk:
        return 0.0
    if operator.state_bytes is not None:
        return operator.state_bytes
    is_stateless = operator.kind in _STATELESS if operator.stateless is None else operator.stateless
    return 0.0 if is_stateless else None


def needs_of(operators: Iterable[Operator]) -> FloatArray:
    """Bytes of memory of every operator as far as they are known, shape (operators,)."""
    return np.array([state_need_bytes(operator) or 0.0 for operator in operators], dtype=np.float64)


def rooms_of(nodes: Iterable[Node]) -> FloatArray:
    """Bytes that every node has for state, shape (nodes,); infinite where nobody knows."""
    return np.array([np.inf if node.memory_bytes is None else node.memory_bytes for node in nodes], dtype=np.float64)


@dataclass(frozen=True)
class NodeMemory(Record):
    """Memory of one node.

    `held_bytes` is the known state of the operators on it, by their fractions; `unknown` are the operators on it that
    do not state theirs. `memory_bytes` is None where the node does not state it.
    """

    node: str
    memory_bytes: float | None
    held_bytes: float
    unknown: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def free_bytes(self) -> float | None:
        """Bytes that the known state leaves; None where the memory is unknown."""
        return None if self.memory_bytes is None else max(0.0, self.memory_bytes - self.held_bytes)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def over_bytes(self) -> float:
        """Bytes by which the known state is above the memory; 0 where it is not, or the memory is unknown."""
        if self.memory_bytes is None or self.held_bytes <= self.memory_bytes * (1.0 + MEMORY_SLACK):
            return 0.0
        return self.held_bytes - self.memory_bytes

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> str:
        """over, unknown, or fits."""
        if self.over_bytes > 0.0:
            return "over"
        is_unknown = bool(self.unknown) or (self.memory_bytes is None and self.held_bytes > 0.0)
        return "unknown" if is_unknown else "fits"

    @property
    def held(self) -> Fact:
        """Clause on the node's state against its memory, which it states."""
        return Fact("document.memory_held", subject=self.node, value=self.held_bytes, bound=self.memory_bytes)


@dataclass(frozen=True)
class FleetMemory(Record):
    """Memory of every node, and findings in sentences."""

    nodes: tuple[NodeMemory, ...]
    findings: tuple[Sentence, ...]


_known: WeakKeyDictionary[Deployment, dict[str, NodeMemory]] = WeakKeyDictionary()  # a deployment stays as it is


def memory_by_node(deployment: Deployment) -> Mapping[str, NodeMemory]:
    """Memory of every node, in the order of the fleet; operators without a place count nowhere."""
    if deployment not in _known:
        _known[deployment] = _memory_by_node(deployment)
    return _known[deployment]


def memory_with_more(
    known: Mapping[str, NodeMemory], running: Deployment, deployment: Deployment
) -> Mapping[str, NodeMemory]:
    """As `memory_by_node`, where `known` is that of what runs, in its places, before more joined."""
    count = len(running.operators)
    is_more = running.nodes is deployment.nodes and all(map(is_, running.operators, deployment.operators))
    if not is_more or len(deployment.operators) < count:
        return memory_by_node(deployment)
    found = dict(known)
    for operator in deployment.operators[count:]:
        need = state_need_bytes(operator)
        for replica in operator.replicas:
            entry = found[replica.node]
            if need is None:
                unknown = tuple(dict.fromkeys((*entry.unknown, operator.id)))
                found[replica.node] = replace(entry, unknown=unknown)
            else:
                found[replica.node] = replace(entry, held_bytes=entry.held_bytes + need * replica.fraction)
    return found


def _memory_by_node(deployment: Deployment) -> dict[str, NodeMemory]:
    held = {node.id: 0.0 for node in deployment.nodes}
    unknown: dict[str, dict[str, None]] = {node.id: {} for node in deployment.nodes}
    for operator in deployment.operators:
        need = state_need_bytes(operator)
        for replica in operator.replicas:
            if need is None:
                unknown[replica.node][operator.id] = None
            else:
                held[replica.node] += need * replica.fraction
    return {
        node.id: NodeMemory(node.id, node.memory_bytes, held[node.id], tuple(unknown[node.id]))
        for node in deployment.nodes
    }


def memory_findings(deployment: Deployment) -> list[Fact]:
    """Nodes whose known state is above their memory, and what nobody knows."""
    over = [entry for entry in memory_by_node(deployment).values() if entry.over_bytes > 0.0]
    unstated = unstated_memory(deployment)
    unknown = [Fact("document.memory_unknown", unstated=unstated)] if unstated else []
    return [*(Fact("document.memory_over", held=entry.held) for entry in over), *unknown]


def fleet_memory(deployment: Deployment) -> FleetMemory:
    """Memory of every node, and what there is to say of it."""
    return FleetMemory(tuple(memory_by_node(deployment).values()), tuple(memory_findings(deployment)))


def is_memory_known(deployment: Deployment) -> bool:
    """Whether both numbers are known anywhere: only then can a placement be wrong by memory."""
    return bool(needs_of(deployment.operators).any()) and bool(np.isfinite(rooms_of(deployment.nodes)).any())


def unknown_memory(
    deployment: Deployment, operators: Collection[str] | None = None, *, everywhere: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Operators that do not state their state, and nodes with state on them that do not state their memory.

    With `operators` only those, and the nodes that they are on; with `everywhere` any node may get state.
    """
    chosen = [op for op in deployment.operators if operators is None or op.id in operators]
    needs = [(operator, state_need_bytes(operator)) for operator in chosen]
    without = tuple(operator.id for operator, need in needs if need is None)
    holding = [operator for operator, need in needs if need != 0.0]
    used = {replica.node for operator in holding for replica in operator.replicas}
    if everywhere and holding:
        used = {node.id for node in deployment.nodes}
    nodes = tuple(node.id for node in deployment.nodes if node.id in used and node.memory_bytes is None)
    return without, nodes


def unstated_memory(
    deployment: Deployment, operators: Collection[str] | None = None, *, everywhere: bool = False
) -> Fact | None:
    """Clause that names what is not stated, so that nobody knows whether state fits; None where all is known."""
    without, nodes = unknown_memory(deployment, operators, everywhere=everywhere)
    return Fact("document.unstated", operators=without, nodes=nodes) if without or nodes else None
