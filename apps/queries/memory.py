"""Memory of a cluster's nodes against the state of the operators that run on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.fleet.choices import ABSENT
from apps.fleet.models import Cluster
from apps.queries.models import Placement, Query
from engine.document.elements import Operator
from engine.document.memory import NodeMemory, state_need_bytes

__all__ = ["cluster_memory", "row_need_bytes"]

_FIELDS = (
    "node_id",
    "fraction",
    "operator__name",
    "operator__version__query__name",
    "operator__kind",
    "operator__stateless",
    "operator__extra",
)


def row_need_bytes(kind: str, stateless: bool | None, extra: Mapping[str, Any]) -> float | None:
    """Bytes of memory that a stored operator's state takes; None where nobody knows."""
    state = {key: extra.get(key) for key in ("state_bytes", "state_on_disk")}
    return state_need_bytes(Operator("", (), (), kind=kind, stateless=stateless, **state))


def cluster_memory(cluster: Cluster, *, without: Query | None = None) -> dict[str, NodeMemory]:
    """Memory of every node that takes operators, by its name; the operators of one query can be left out."""
    nodes = {node.pk: node for node in cluster.nodes.exclude(state__in=ABSENT).select_related("pool")}
    held = dict.fromkeys(nodes, 0.0)
    unknown: dict[int, dict[str, None]] = {pk: {} for pk in nodes}
    placements = Placement.objects.filter(node__in=nodes)
    if without is not None:
        placements = placements.exclude(operator__version__query=without)
    for pk, fraction, name, query, kind, stateless, extra in placements.values_list(*_FIELDS):
        need = row_need_bytes(kind, stateless, extra)
        if need is None:
            unknown[pk][f"{query}/{name}"] = None
        else:
            held[pk] += need * fraction
    return {
        node.name: NodeMemory(
            node.name,
            None if node.memory_for_state is None else float(node.memory_for_state),
            held[pk],
            tuple(unknown[pk]),
        )
        for pk, node in nodes.items()
    }
