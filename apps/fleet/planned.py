"""Nodes that are wanted or ordered, and not there yet."""

from __future__ import annotations

import itertools
import re

from django.db import transaction

from apps.core.errors import Malformed
from apps.fleet.choices import NodeState
from apps.fleet.models import Node, NodePool
from apps.fleet.services import cluster_locked, node_create

__all__ = ["MOST_PLANNED", "nodes_plan"]

MOST_PLANNED = 1000  # at once
_NUMBERED = re.compile(r"(.*?)(\d+)")


@transaction.atomic
def nodes_plan(*, pool: NodePool, count: int) -> list[Node]:
    """Note nodes that are wanted or ordered: they take names that follow those of the pool, and no part in estimates
    until they are activated."""
    if isinstance(count, bool) or not 1 <= count <= MOST_PLANNED:
        raise Malformed(
            f"count is {count}; allowed: 1 to {MOST_PLANNED}.", [("count", f"allowed: 1 to {MOST_PLANNED}")]
        )
    cluster_locked(pool.cluster).get()
    names = _names_after(pool, count)
    return [node_create(pool=pool, name=name, state=NodeState.PLANNED) for name in names]


def _names_after(pool: NodePool, count: int) -> list[str]:
    """Free names that go on where the pool's numbered ones end: n12 after n11; compute-1 where none has a number."""
    taken = set(pool.cluster.nodes.values_list("name", flat=True))
    numbered = [found for name in pool.nodes.values_list("name", flat=True) if (found := _NUMBERED.fullmatch(name))]
    last = max(numbered, key=lambda found: int(found[2]), default=None)
    stem, width, number = (last[1], len(last[2]), int(last[2])) if last else (f"{pool.name}-", 1, 0)
    free = (f"{stem}{i:0{width}}" for i in itertools.count(number + 1))
    return list(itertools.islice((name for name in free if name not in taken), count))
