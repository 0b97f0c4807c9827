"""What would have to be bought for more load and the loss of any one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.fleet.models import Cluster
from apps.queries.snapshots import Snapshot

__all__ = ["purchase_facts"]


def purchase_facts(
    cluster: Cluster, snapshot: Snapshot, growth: float, progress: Callable[[float, str], None]
) -> dict[str, Any]:
    return {"available": False, "text": "No operators run here yet; there is nothing to size.", "growth": growth}
