"""Hosts that may take an operator: what pins, forbidden nodes, nodes that take nothing new and company leave open.

One record for whoever proposes a place, so that none of them forgets a limit. What an operator has stays: a host that
it runs on already keeps it, whatever it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.document.deployment import Deployment
from engine.document.elements import Replica
from engine.records import Fact

__all__ = ["CLOSED", "OpenHosts"]

CLOSED = "placement.closed"  #: kind of the refusal of a node that takes nothing new


@dataclass(frozen=True, eq=False)
class OpenHosts:
    """Hosts of a deployment that may take its operators.

    Attributes
    ----------
    deployment : Deployment
        With its constraints; an operator that it does not have is limited by these as well.
    closed : collection of str
        Nodes that take nothing new: they are draining.
    """

    deployment: Deployment
    closed: Collection[str] = ()

    @cached_property
    def _closed(self) -> frozenset[str]:
        return frozenset(self.closed)

    def refusal(self, operator: str, node: str) -> Fact | None:
        """Why a node may not take an operator: pinned elsewhere, forbidden or closed; None where it may."""
        limits = self.deployment.constraints
        pin = limits.pin.get(operator, node)
        if pin != node:
            return Fact("placement.pinned", node=pin)
        if node in limits.forbid.get(operator, ()):
            return Fact("placement.forbidden", node=node)
        return Fact(CLOSED, node=node) if node in self._closed else None

    def refusals(self, operator: str) -> Mapping[str, Fact]:
        """Why nodes may not take an operator, of those that may not."""
        if not self.is_limited(operator):
            return self._closures
        found = ((node.id, self.refusal(operator, node.id)) for node in self.deployment.nodes)
        return {node: refusal for node, refusal in found if refusal is not None}

    @cached_property
    def _closures(self) -> Mapping[str, Fact]:
        return {node.id: Fact(CLOSED, node=node.id) for node in self.deployment.nodes if node.id in self._closed}

    def is_limited(self, operator: str) -> bool:
        """Whether an operator has limits of its own."""
        limits = self.deployment.constraints
        return operator in limits.pin or operator in limits.forbid

    @cached_property
    def table(self) -> NDArray[np.bool_]:
        """Whether each node may take each operator, shape (operators, nodes)."""
        operators, nodes = self.deployment.operator_index, self.deployment.node_index
        table = np.ones((len(operators), len(nodes)), dtype=bool)
        table[:, [nodes[name] for name in self._closed if name in nodes]] = False
        limits = self.deployment.constraints
        for name in {*limits.pin, *limits.forbid} & operators.keys():
            table[operators[name]] = [self.refusal(name, node) is None for node in nodes]
        return table

    def company(self, operator: str) -> frozenset[str]:
        """Nodes that hold an operator from which this one stays apart."""
        return frozenset(node for name in self.others(operator) for node in self._homes.get(name, ()))

    def others(self, operator: str) -> frozenset[str]:
        """Operators from which one stays apart."""
        groups = (group for group in self.deployment.constraints.apart if operator in group)
        return frozenset(name for group in groups for name in group) - {operator}

    @cached_property
    def _homes(self) -> Mapping[str, frozenset[str]]:
        return {op.id: frozenset(part.node for part in op.replicas) for op in self.deployment.operators}

    def takes(self, operator: str, node: str) -> bool:
        """Whether a node may take an operator, or more of one, with everything else where it is."""
        return self.refusal(operator, node) is None and node not in self.company(operator)

    def take(self, operator: str, replicas: Iterable[Replica]) -> bool:
        """Whether an operator may be in some places: on nodes that have it already, or that may take it."""
        held = self._homes.get(operator, frozenset())
        return all(node in held or self.takes(operator, node) for node in {part.node for part in replicas})
