"""All that runs, as more that joins it sees it: load, memory and tightest objective of every place.

With it a placement of some operators looks at these, at those they exchange events with, and at the nodes that have the
most room for them, whatever else runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.document.deployment import Deployment
from engine.document.elements import Operator, Server
from engine.document.memory import MEMORY_SLACK, memory_by_node, state_need_bytes
from engine.estimation.backlog import burdened_series
from engine.estimation.mace import Mace
from engine.placement.problem import loaded_peaks

__all__ = ["RunningGround"]

_FEW_NODES = 64  # up to so many all are looked at
_NODES_EACH = 24  # with the most room for an operator
_SERIES = 8  # operators, those with the most work first, for which every server is looked at


@dataclass(frozen=True, eq=False)
class RunningGround:
    """All that runs, for placements of more.

    Attributes
    ----------
    deployment : Deployment
        What runs; every operator has a place.
    mace : Mace
        Its Mace. Loads are sums there: `deployment.combine` is.
    """

    deployment: Deployment
    mace: Mace

    @cached_property
    def _row(self) -> dict[str, int]:
        return {server.name: i for i, server in enumerate(self.mace.deployment.servers)}

    def load(self, servers: Sequence[Server]) -> FloatArray:
        """Load of servers, (n, d); what waits where the horizon begins is work of its beginning. 0 on a new one."""
        load = np.zeros((len(servers), self.mace.load.shape[1]))
        known = [(i, self._row[server.name]) for i, server in enumerate(servers) if server.name in self._row]
        here, there = ([pair[side] for pair in known] for side in (0, 1))
        load[here] = self.mace.load[there]
        load[here, 0] += self.mace.start[there]
        return load

    @cached_property
    def free_bytes(self) -> Mapping[str, float | None]:
        """Bytes of memory that are left on every node; None where nobody knows."""
        return {name: entry.free_bytes for name, entry in memory_by_node(self.deployment).items()}

    @cached_property
    def least_bound_s(self) -> float | None:
        """The least bound of an objective; None without any."""
        return min((objective.bound_s for objective in self.deployment.objectives), default=None)

    @cached_property
    def tightness(self) -> Mapping[tuple[str, int], float]:
        """1 over the least bound of a query on every core that is used."""
        bounds = {objective.query: objective.bound_s for objective in reversed(self.deployment.objectives)}
        tightness: dict[tuple[str, int], float] = {}
        for operator in self.deployment.operators:
            bound_s = bounds.get(operator.query or "")
            for part in operator.replicas:
                core = part.node, part.core
                tightness[core] = max(tightness.get(core, 0.0), 1.0 / bound_s if bound_s else 0.0)
        return tightness

    def is_under(self, deployment: Deployment) -> bool:
        """Whether a deployment is what runs, in its places, with more that has a query of its own."""
        running = self.deployment.operators
        if self.deployment.combine.kind != "sum" or len(running) >= len(deployment.operators):
            return False
        joins = {operator.query for operator in deployment.operators[len(running) :]}
        if None in joins or not joins.isdisjoint(self.deployment.query_index):
            return False
        return all(map(is_, running, deployment.operators))

    def joining(self, deployment: Deployment) -> list[Operator]:
        """Operators that are not of what runs."""
        return [operator for operator in deployment.operators if operator.id not in self.deployment.operator_index]

    def near(self, deployment: Deployment, closed: Collection[str]) -> Deployment:
        """The operators that join, those they exchange events with, and the nodes that have the most room for them.

        Parameters
        ----------
        deployment : Deployment
            What runs, with more.
        closed : collection of str
            Nodes that take nothing new.
        """
        joining = deployment.operators[len(self.deployment.operators) :]
        limits, own = deployment.constraints, {operator.id for operator in joining}
        company = {name for group in limits.apart if not own.isdisjoint(group) for name in group}
        read = (entry.source for operator in joining for entry in operator.inputs)
        kept = own | {operator.id for operator in self.deployment.with_above([*read, *company])[1]}
        constraints = replace(
            limits,
            pin={name: node for name, node in limits.pin.items() if name in own},
            forbid={name: nodes for name, nodes in limits.forbid.items() if name in own},
            apart=tuple(group for group in limits.apart if not own.isdisjoint(group)),
        )
        nodes = [node.id for node in deployment.nodes]
        if len(nodes) > _FEW_NODES:
            pinned = {node for name, node in limits.pin.items() if name in own}
            nodes = [*pinned, *self._roomy(deployment, kept, joining, closed)]
        return replace(
            deployment.restricted(kept, with_sources=False, nodes=nodes),
            constraints=constraints,
            objectives=tuple(
                found for found in deployment.objectives if found.query not in self.deployment.query_index
            ),
        )

    def _roomy(
        self, deployment: Deployment, kept: Collection[str], joining: Sequence[Operator], closed: Collection[str]
    ) -> list[str]:
        """Nodes with a core of the least excess and the least peak once an operator is on it, for every operator."""
        coarse, (owner, budget) = self.mace.deployment, self._cores
        load = self.mace.load[: len(owner)]
        found = dict.fromkeys(node.id for node in deployment.nodes if node.id not in self.deployment.node_index)
        for series, operator in self._largest(deployment, kept, joining):
            need = state_need_bytes(operator) or 0.0
            is_out = np.array([not self._takes(node.id, need, closed) for node in coarse.nodes])
            excess, share = loaded_peaks(load, series, budget)
            # Whatever differs by rounding alone is alike: the share decides then.
            order = np.lexsort((share, np.round(excess, 9), is_out[owner]))
            nodes = dict.fromkeys(owner[order].tolist())
            found.update(dict.fromkeys(coarse.nodes[i].id for i in list(nodes)[:_NODES_EACH]))
        return list(found)

    @cached_property
    def _cores(self) -> tuple[IntArray, FloatArray]:
        """Node of every core, and its cycles in a subinterval; servers begin with the cores."""
        coarse = self.mace.deployment
        owner = np.array([server.node for server in coarse.servers if server.node is not None], dtype=np.int64)
        return owner, np.ascontiguousarray(coarse.capacities.T[: len(owner)] * coarse.subinterval_s)

    def _takes(self, node: str, need: float, closed: Collection[str]) -> bool:
        free = self.free_bytes.get(node)
        return node not in closed and (free is None or need <= free * (1.0 + MEMORY_SLACK))

    def _largest(
        self, deployment: Deployment, kept: Collection[str], joining: Sequence[Operator]
    ) -> list[tuple[FloatArray, Operator]]:
        """Loads of some operators without a place, the largest first, and one of nothing for all others."""
        part = deployment.restricted(kept, with_sources=False, nodes=[deployment.nodes[0].id])
        anywhere = next(iter(part.nodes)).id
        every = round(self.mace.deployment.subinterval_s / deployment.subinterval_s)
        coarse = part.placed_at(anywhere).coarsened(every)
        series, index = burdened_series(coarse).load, coarse.operator_index
        missing = [operator for operator in joining if not operator.replicas]
        missing.sort(key=lambda operator: -float(series[index[operator.id]].max()))
        return [(np.ascontiguousarray(series[index[operator.id]]), operator) for operator in missing[:_SERIES]]
