"""Undo of changes to clusters, pools, nodes and links."""

from __future__ import annotations

from apps.core.errors import Conflict
from apps.fleet import services
from apps.fleet.models import Cluster, Link, Node, NodePool
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.undo import UndoWay, register_undo

__all__: list[str] = []


def _remove_cluster(cluster: Cluster) -> None:
    """Take back a new cluster, as long as it is empty."""
    if cluster.pools.exists() or cluster.queries.exists() or cluster.arrivals.exists():
        message = f"cluster {cluster.slug!r} holds something by now; delete it in its settings"
        raise Conflict(f"A cluster is taken back while it is empty: {message}.", [("", message)])
    services.cluster_delete(cluster=cluster)


def _cluster_obstacle(change: ObjectChange) -> str:
    """A cluster takes along what nobody could put together again."""
    if change.action == ChangeAction.CHANGED and "policy_version" in (change.after or {}):
        return "A policy is put back on its page, by those who may change it."
    if change.action != ChangeAction.DELETED:
        return ""
    return "A deleted cluster does not come back: its measurements and decisions are gone. Import its document."


register_undo(
    Cluster,
    UndoWay(
        lambda row, fields: services.cluster_update(cluster=row, **fields),
        _remove_cluster,
        obstacle=_cluster_obstacle,
    ),
)
register_undo(
    NodePool,
    UndoWay(
        lambda row, fields: services.pool_update(pool=row, **fields),
        lambda row: services.pool_delete(pool=row),
        services.row_revived,
    ),
)
register_undo(
    Node,
    UndoWay(
        lambda row, fields: services.node_update(node=row, **fields),
        lambda row: services.node_delete(node=row),
        services.row_revived,
    ),
)
register_undo(
    Link,
    UndoWay(
        lambda row, fields: services.link_update(link=row, **fields),
        lambda row: services.link_delete(link=row),
        services.row_revived,
    ),
)
