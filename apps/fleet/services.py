"""Changes to clusters, node pools, nodes and links."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db import models
from django.dispatch import Signal

from apps.core.errors import Conflict, Fault, Malformed, fault_count
from apps.core.events import announce
from apps.core.labels import label_faults
from apps.fleet.choices import ABSENT, CycleUnit, Evidence, NodeState
from apps.fleet.models import Cluster, Link, Node, NodePool
from apps.fleet.selectors import cores_in_use, operators_on, queries_running
from apps.fleet.validation import check_free, check_row, cluster_faults
from apps.ledger.recorder import recorded
from engine.document.cycles import cycle_unit_words, is_of_clock
from engine.words import listed

__all__ = [
    "MAX_PLANNED_NODES",
    "cluster_announce",
    "cluster_changed",
    "cluster_create",
    "cluster_delete",
    "cluster_locked",
    "cluster_update",
    "link_create",
    "link_delete",
    "link_update",
    "node_activate",
    "node_calibrate",
    "node_create",
    "node_delete",
    "node_drain",
    "node_of_pool",
    "node_take_offline",
    "node_update",
    "nodes_create",
    "nodes_plan",
    "pool_create",
    "pool_delete",
    "pool_update",
    "row_revived",
]


#: Sent with `cluster` where rows that estimates rest on were written in bulk, which sends no signal for each.
cluster_changed = Signal()
_BATCH = 2000  # rows of one statement
Row = TypeVar("Row", bound=models.Model)
_GRID = ("subinterval_s", "horizon_s")


def cluster_locked(cluster: Cluster) -> models.QuerySet[Cluster]:
    """The cluster's row; reading it holds off admissions and other changes until the transaction ends.

    Its key stays free: a row that refers to the cluster can still be written meanwhile.
    """
    return Cluster.objects.select_for_update(no_key=True).filter(pk=cluster.pk)


def cluster_announce(cluster: Cluster) -> None:
    """Announce a change of the cluster to open pages."""
    announce(f"cluster:{cluster.slug}")


@recorded()
def cluster_create(*, slug: str, name: str, **fields: Any) -> Cluster:
    """Create a cluster without nodes.

    Raises
    ------
    Malformed
        A field's value is not allowed; the horizon is no whole number of subintervals or has too many slices.
    Conflict
        The slug is taken.
    """
    cluster = Cluster(slug=slug, name=name, **fields)
    check_row(cluster, cluster_faults(cluster))
    check_free(Cluster.objects.all(), cluster, slug=slug)
    cluster.save()
    announce("clusters")
    return cluster


@recorded()
def cluster_update(*, cluster: Cluster, **fields: Any) -> Cluster:
    """Change fields of a cluster. Its grid is fixed as long as it has arrivals, which are kept at that grid."""
    cluster.refresh_from_db(from_queryset=cluster_locked(cluster))
    moved = [name for name in _GRID if name in fields and fields[name] != getattr(cluster, name)]
    count = cluster.arrivals.count()
    _assign(cluster, fields)
    check_row(cluster, cluster_faults(cluster))
    if moved and count:
        sources = ", ".join(cluster.arrivals.values_list("source_id", flat=True)[:5])
        message = f"{count} arrival series ({sources}) are kept at the present grid; delete them, then change the grid"
        raise Conflict(f"{moved[0]}: {message}, and store them again.", [(name, message) for name in moved])
    check_free(Cluster.objects.all(), cluster, slug=cluster.slug)
    cluster.save()
    announce("clusters")
    cluster_announce(cluster)
    return cluster


@recorded()
def cluster_delete(*, cluster: Cluster) -> None:
    """Delete a cluster with everything in it, unless queries run there."""
    cluster_locked(cluster).get()
    running = queries_running(cluster)
    if running:
        raise Conflict(f"Cluster {cluster.slug!r} runs {listed(running, _NAMED)}. Stop them first.")
    cluster_announce(cluster)
    announce("clusters")
    # In this order, since nodes protect their pools and placements their nodes.
    cluster.queries.update(running_version=None)
    cluster.queries.all().delete()
    cluster.nodes.all().delete()
    cluster.pools.all().delete()
    cluster.delete()


@recorded()
def pool_create(*, cluster: Cluster, name: str, capacity_cps: float, **fields: Any) -> NodePool:
    """Create a pool; new nodes get its capacity and cores."""
    pool = NodePool(cluster=cluster, name=name, capacity_cps=capacity_cps, **fields)
    return _store_pool(pool)


@recorded()
def pool_update(*, pool: NodePool, **fields: Any) -> NodePool:
    """Change a pool. Nodes that exist keep their own capacity and cores."""
    return _store_pool(_assign(pool, fields), fields)


def _store_pool(pool: NodePool, changed: Iterable[str] | None = None) -> NodePool:
    check_row(pool, _label_faults(pool.labels, changed))
    check_free(pool.cluster.pools.all(), pool, name=pool.name)
    _save(pool, changed)
    cluster_announce(pool.cluster)
    return pool


@recorded()
def pool_delete(*, pool: NodePool) -> None:
    """Delete a pool that has no nodes."""
    nodes = list(pool.nodes.values_list("name", flat=True))
    if nodes:
        raise Conflict(f"Pool {pool.name!r} has the nodes {listed(nodes, _NAMED)}. Delete or move them first.")
    cluster_announce(pool.cluster)
    pool.delete()


@recorded()
def node_create(
    *, pool: NodePool, name: str, capacity_cps: float | None = None, cores: int | None = None, **fields: Any
) -> Node:
    """Add a node to a pool, with the pool's capacity per core and cores unless given."""
    return _store_node(node_of_pool(pool, name=name, capacity_cps=capacity_cps, cores=cores, **fields))


def node_of_pool(
    pool: NodePool, *, name: str, capacity_cps: float | None = None, cores: int | None = None, **fields: Any
) -> Node:
    """A node of a pool that is not stored yet, with the pool's capacity per core and cores unless given."""
    return Node(
        cluster=pool.cluster,
        pool=pool,
        name=name,
        capacity_cps=pool.capacity_cps if capacity_cps is None else capacity_cps,
        cores=pool.cores if cores is None else cores,
        **{"cycle_unit": pool.cycle_unit, "cycles_per_ns": pool.cycles_per_ns, **fields},
    )


@recorded()
def nodes_create(*, cluster: Cluster, nodes: Sequence[Node]) -> None:
    """Add many nodes, each of a pool of the cluster, by a number of statements that does not grow with them.

    Raises
    ------
    Malformed
        With every fault of every node; the paths begin with its name. None is created then.
    """
    cluster_locked(cluster).get()
    taken = set(cluster.nodes.values_list("name", flat=True))
    faults: list[Fault] = []
    for node in nodes:
        try:
            check_row(node, _node_faults(node, None))
        except Malformed as error:
            faults += [Fault(f"{node.name}.{fault.path}", fault.message) for fault in error.faults]
        if node.name in taken:
            faults.append(Fault(f"{node.name}.name", f"{node.name!r} is taken by another node"))
        taken.add(node.name)
    if faults:
        raise Malformed(f"The nodes have {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
    Node.objects.bulk_create(nodes, batch_size=_BATCH)
    cluster_changed.send(Node, cluster=cluster)
    cluster_announce(cluster)


@recorded()
def node_update(*, node: Node, **fields: Any) -> Node:
    """Change a node. A capacity entered by hand is assumed; one that says it was measured keeps the time."""
    if "capacity_cps" in fields and fields["capacity_cps"] != node.capacity_cps and "evidence" not in fields:
        fields |= {"evidence": Evidence.ASSUMED, "calibrated_at": None}
        if node.cycle_unit == CycleUnit.CALIBRATED and "cycle_unit" not in fields:
            fields["cycle_unit"] = CycleUnit.NOMINAL
    unit = fields.get("cycle_unit", node.cycle_unit)
    if is_of_clock(unit) != is_of_clock(node.cycle_unit):
        _refuse_used(node, f"count {cycle_unit_words(unit)}")
    return _store_node(_assign(node, fields), fields)


def _label_faults(labels: Any, changed: Iterable[str] | None) -> list[Fault]:
    """Faults of the labels of a new row, or of one that is given others: older ones may have another syntax."""
    return label_faults(labels) if changed is None or "labels" in changed else []


def _node_faults(node: Node, changed: Iterable[str] | None) -> list[Fault]:
    faults = _label_faults(node.labels, changed)
    if node.pool.cluster_id != node.cluster_id:
        faults.append(Fault("pool", f"pool {node.pool.name!r} belongs to another cluster"))
    return faults


def _store_node(node: Node, changed: Iterable[str] | None = None) -> Node:
    check_row(node, _node_faults(node, changed))
    check_free(node.cluster.nodes.all(), node, name=node.name)
    cluster_locked(node.cluster).get()  # nothing is placed on the node between the checks and the change
    if node.pk and node.state in ABSENT:
        _refuse_used(node, "be taken offline" if node.state == NodeState.OFFLINE else "be planned")
    used = cores_in_use(node) if node.pk else 0
    if used > node.cores:
        message = (
            f"operators use {used} cores of node {node.name!r} ({listed(operators_on(node), _NAMED)}); move them first"
        )
        raise Conflict(f"cores: {message}.", [("cores", message)])
    _save(node, changed)
    cluster_announce(node.cluster)
    return node


@recorded()
def node_calibrate(*, node: Node, capacity_cps: float, cores: int, measured_at: datetime) -> Node:
    """Store a measured capacity; of a node that counts nanoseconds of CPU, how many cycles a core does in one."""
    measured: dict[str, Any] = {"evidence": Evidence.MEASURED, "calibrated_at": measured_at}
    if not is_of_clock(node.cycle_unit):
        return node_update(node=node, cycles_per_ns=capacity_cps / 1e9, **measured)
    measured["cycle_unit"] = CycleUnit.CALIBRATED
    return node_update(node=node, capacity_cps=capacity_cps, cores=cores, **measured)


@recorded()
def node_drain(*, node: Node) -> Node:
    """Drain a node: its operators go on running, no further ones are placed there."""
    return node_update(node=node, state=NodeState.DRAINING)


@recorded()
def node_activate(*, node: Node) -> Node:
    """Activate a node: operators may be placed there."""
    return node_update(node=node, state=NodeState.ACTIVE)


@recorded()
def node_take_offline(*, node: Node) -> Node:
    """Take an empty node out of the cluster's capacity."""
    return node_update(node=node, state=NodeState.OFFLINE)


@recorded()
def node_delete(*, node: Node) -> None:
    """Delete a node that has no operators; its links go with it."""
    _refuse_used(node, "be deleted")
    cluster_announce(node.cluster)
    node.delete()


def _refuse_used(node: Node, what: str) -> None:
    operators = operators_on(node)
    if operators:
        raise Conflict(
            f"Node {node.name!r} cannot {what}: it runs {listed(operators, _NAMED)}. "
            "Move them to other nodes or stop their queries.",
            [("", f"{operator} is placed on it") for operator in operators],
        )


@recorded()
def link_create(*, source: Node, target: Node, bandwidth_bytes_s: float | None = None, delay_s: float = 0.0) -> Link:
    """Connect two nodes of a cluster in one direction."""
    link = Link(
        cluster=source.cluster, source=source, target=target, bandwidth_bytes_s=bandwidth_bytes_s, delay_s=delay_s
    )
    return _store_link(link)


@recorded()
def link_update(*, link: Link, **fields: Any) -> Link:
    """Change a link's bandwidth or delay."""
    return _store_link(_assign(link, fields), fields)


def _store_link(link: Link, changed: Iterable[str] | None = None) -> Link:
    faults = []
    if link.source_id == link.target_id:
        faults.append(Fault("to", f"to is {link.target.name!r}, where the link starts; allowed: another node"))
    if link.target.cluster_id != link.source.cluster_id:
        faults.append(Fault("to", f"node {link.target.name!r} belongs to another cluster"))
    if link.bandwidth_bytes_s is not None and not link.bandwidth_bytes_s > 0:
        message = f"bandwidth_bytes_s is {link.bandwidth_bytes_s}; allowed: a number above 0, or null for no limit"
        faults.append(Fault("bandwidth_bytes_s", message))
    check_row(link, faults)
    if Link.objects.filter(source=link.source, target=link.target).exclude(pk=link.pk).exists():
        raise Conflict(f"There is a link {link} already.", [("to", f"{link} exists")])
    _save(link, changed)
    cluster_announce(link.cluster)
    return link


@recorded()
def link_delete(*, link: Link) -> None:
    """Delete a link: its direction costs nothing from then on."""
    cluster_announce(link.cluster)
    link.delete()


@recorded()
def row_revived(row: NodePool | Node | Link) -> None:
    """Check a pool, node or link that has come back, as a new one is, and have the cluster estimated with it."""
    faults = _node_faults(row, ()) if isinstance(row, Node) else []
    check_row(row, faults)
    cluster_changed.send(type(row), cluster=row.cluster)
    cluster_announce(row.cluster)


def _assign(row: Row, fields: Mapping[str, object]) -> Row:
    for name, value in fields.items():
        setattr(row, name, value)
    return row


def _save(row: models.Model, changed: Iterable[str] | None) -> None:
    """Insert a new row, or update the changed fields of an existing one: concurrent changes of others stay."""
    row.save(update_fields=None if changed is None else [*changed, "updated_at"])


_NAMED = 9  # names in a refusal, the last of more being the number of those left out
MAX_PLANNED_NODES = 1000  # at once
_NUMBERED = re.compile(r"(.*?)(\d+)")


@recorded()
def nodes_plan(*, pool: NodePool, count: int) -> list[Node]:
    """Plan nodes that are ordered: their names continue those of the pool, and they are not part of estimates
    until they are activated."""
    if isinstance(count, bool) or not 1 <= count <= MAX_PLANNED_NODES:
        raise Malformed(
            f"count is {count}; allowed: 1 to {MAX_PLANNED_NODES}.", [("count", f"allowed: 1 to {MAX_PLANNED_NODES}")]
        )
    cluster_locked(pool.cluster).get()
    names = _names_after(pool, count)
    return [node_create(pool=pool, name=name, state=NodeState.PLANNED) for name in names]


def _names_after(pool: NodePool, count: int) -> list[str]:
    """Free names that continue the pool's numbers: n12 after n11; compute-1 where none has a number."""
    taken = set(pool.cluster.nodes.values_list("name", flat=True))
    numbered = [match for name in pool.nodes.values_list("name", flat=True) if (match := _NUMBERED.fullmatch(name))]
    last = max(numbered, key=lambda match: int(match[2]), default=None)
    stem, width, number = (last[1], len(last[2]), int(last[2])) if last else (f"{pool.name}-", 1, 0)
    free = (f"{stem}{i:0{width}}" for i in itertools.count(number + 1))
    return list(itertools.islice((name for name in free if name not in taken), count))
