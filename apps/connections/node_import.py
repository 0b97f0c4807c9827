"""Places of an engine as nodes of its connection's pool: new, larger, smaller, gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.connections.import_outcome import ImportOutcome
from apps.connections.models import Connection
from apps.fleet.choices import CycleUnit, NodeState
from apps.fleet.models import Cluster, Node, NodePool
from apps.fleet.services import (
    node_activate,
    node_create,
    node_delete,
    node_take_offline,
    node_update,
    pool_create,
)
from engine.connectors.document import SERVER_CPS, ImportedNode

__all__ = ["NodeImport"]

KEEP_LOST_NODES = timedelta(days=1)


@dataclass(frozen=True)
class NodeImport:
    """Nodes of one look being stored; the cluster is locked."""

    connection: Connection
    cluster: Cluster
    outcome: ImportOutcome
    now: datetime

    def names(self) -> dict[str, str]:
        """Names of nodes by the id of the place that each is."""
        rows = self.cluster.nodes.filter(pool__name=self.connection.pool_name).order_by("pk")
        return {labels["place"]: name for name, labels in rows.values_list("name", "labels") if "place" in labels}

    def taken(self) -> set[str]:
        """Names of nodes that are no places of this engine; another engine may call its own alike."""
        rows = self.cluster.nodes.exclude(pool__name=self.connection.pool_name)
        return set(rows.values_list("name", flat=True))

    def store(self, plan: ImportedNode) -> Node:
        """The node that a place is, made or brought back where it is not there; never smaller than before."""
        row = self.cluster.nodes.select_related("pool", "cluster").filter(name=plan.name).first()
        if row is None:
            row = node_create(
                pool=self._pool(plan),
                name=plan.name,
                capacity_cps=SERVER_CPS,
                cores=plan.cores,
                memory_bytes=_memory(plan),
                labels=dict(plan.labels),
            )
            self.outcome.created.append(f"node {plan.name}")
            return row
        row.cluster = self.cluster
        if row.state == NodeState.OFFLINE:
            row = node_activate(node=row)
        changed = {"cores": plan.cores} if plan.cores > row.cores else {}
        memory = _memory(plan)
        if memory is not None and memory != row.memory_bytes:
            changed["memory_bytes"] = memory
        if changed:
            row = node_update(node=row, **changed)
            self.outcome.updated.append(f"node {plan.name}")
        return row

    def _pool(self, plan: ImportedNode) -> NodePool:
        name = self.connection.pool_name
        pool = self.cluster.pools.filter(name=name).first()
        if pool is None:
            fields = {"cores": plan.cores, "memory_bytes": _memory(plan), "cycle_unit": CycleUnit.CPU_NS}
            pool = pool_create(cluster=self.cluster, name=name, capacity_cps=SERVER_CPS, **fields)
            self.outcome.created.append(f"pool {name}")
        pool.cluster = self.cluster
        return pool

    def shrink(self, plans: Sequence[ImportedNode]) -> None:
        """Fewer slots than before, once nothing is placed beyond them."""
        for plan in plans:
            row = self.cluster.nodes.select_related("pool", "cluster").get(name=plan.name)
            if plan.cores < row.cores:
                self.outcome.attempt(
                    lambda row=row, plan=plan: node_update(node=row, cores=plan.cores), "node_cores", plan.name
                )

    def lose(self, present: set[int]) -> None:
        """Places that are gone: their nodes are offline as soon as nothing is placed there, and deleted a day later.

        Processes with names by chance, as in Kubernetes, would otherwise leave more nodes with every redeploy.
        """
        rows = self.cluster.nodes.select_related("pool", "cluster").filter(pool__name=self.connection.pool_name)
        for row in rows.filter(state=NodeState.OFFLINE, updated_at__lt=self.now - KEEP_LOST_NODES):
            self.outcome.attempt(lambda row=row: node_delete(node=row), "node_in_use", row.name)
        for row in rows.exclude(pk__in=present).filter(state__in=(NodeState.ACTIVE, NodeState.DRAINING)):
            self.outcome.attempt(lambda row=row: node_take_offline(node=row), "node_in_use", row.name)
            self.outcome.find("warning", "place_gone", row.name, f"{row.name} is not listed by the engine any more.")


def _memory(plan: ImportedNode) -> int | None:
    """Whole bytes that state may take on a place; None where the engine does not tell."""
    return None if plan.memory_bytes is None else max(1, round(plan.memory_bytes))
