"""Outline of a cluster: the names of what runs in it, kept in memory and brought forward by the marks of changed rows.

Web processes check questions by it before a worker looks at them. It has a fraction of the rows of a snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from django.db import connection

from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Node
from apps.queries.choices import QueryState
from apps.queries.models import Operator, OperatorInput, Query
from apps.queries.snapshots.elements import engine_node, operator_id, source_name
from apps.queries.snapshots.row_changes import FLEET, QUERY, RowChanges, row_changes
from apps.queries.snapshots.states import nodes_present
from engine.arrays import frozen_array
from engine.document import elements
from engine.document.deployment import Deployment

__all__ = ["ClusterOutline", "closed_nodes", "cluster_outline"]


@dataclass(frozen=True)
class ClusterOutline:
    """Names of what runs in a cluster, and its nodes: enough to check a question, not to answer it.

    Operators of `deployment` have neither inputs nor replicas, and its sources have no events.
    """

    deployment: Deployment
    closed_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _QueryOutline:
    operators: tuple[elements.Operator, ...]
    sources: frozenset[str]


@dataclass(frozen=True, eq=False)
class _KeptOutline:
    """An outline as of a position among the marks, with what it is made of."""

    changes: RowChanges
    grid: tuple[float, int]
    nodes: tuple[elements.Node, ...]
    closed: tuple[str, ...]
    queries: Mapping[int, _QueryOutline]
    outline: ClusterOutline


_shared: dict[int, _KeptOutline] = {}  # by cluster; written whole, so that no lock is needed


def cluster_outline(cluster: Cluster) -> ClusterOutline:
    """Nodes, and the names of running queries' operators and sources; of a cluster without changes the same object."""
    known = _shared.get(cluster.pk)
    changes = row_changes(cluster, *((known.changes.position, known.changes.seen) if known is not None else (None,)))
    if known is not None and known.changes.epoch == changes.epoch:
        found = _forwarded(known, cluster, changes)
    else:
        nodes = nodes_present(cluster)
        found = _made(cluster, changes, _engine_nodes(nodes), closed_nodes(nodes), _outlines(cluster, None))
    if not connection.in_atomic_block:  # what the present transaction wrote may be rolled back
        _shared[cluster.pk] = found
    return found.outline


def closed_nodes(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Names of those that take nothing new."""
    return tuple(node.name for node in nodes if node.state == NodeState.DRAINING)


def _engine_nodes(nodes: Iterable[Node]) -> tuple[elements.Node, ...]:
    return tuple(engine_node(node) for node in nodes)


def _forwarded(known: _KeptOutline, cluster: Cluster, changes: RowChanges) -> _KeptOutline:
    """The outline with what is marked read anew; the same one where no name is another."""
    nodes, closed, queries = known.nodes, known.closed, known.queries
    if changes.keys.get(FLEET):
        present = nodes_present(cluster)
        nodes, closed = _engine_nodes(present), closed_nodes(present)
    if marked := changes.keys.get(QUERY):
        others = {key: query for key, query in queries.items() if key not in marked}
        queries = dict(sorted((others | _outlines(cluster, marked)).items()))
    is_same = (nodes, closed, queries) == (known.nodes, known.closed, known.queries)
    if is_same and known.grid == (cluster.slice_s, cluster.slices):
        return replace(known, changes=changes)
    return _made(cluster, changes, nodes, closed, queries)


def _made(
    cluster: Cluster,
    changes: RowChanges,
    nodes: tuple[elements.Node, ...],
    closed: tuple[str, ...],
    queries: Mapping[int, _QueryOutline],
) -> _KeptOutline:
    sources = sorted(frozenset().union(*(query.sources for query in queries.values())))
    silence = frozen_array(np.zeros(cluster.slices))
    deployment = Deployment(
        subinterval_s=cluster.slice_s,
        subintervals=cluster.slices,
        sources=tuple(elements.Source(source, silence) for source in sources),
        nodes=nodes,
        operators=tuple(chain.from_iterable(query.operators for query in queries.values())),
    )
    grid = cluster.slice_s, cluster.slices
    return _KeptOutline(changes, grid, nodes, closed, queries, ClusterOutline(deployment, closed))


def _outlines(cluster: Cluster, keys: Collection[int] | None) -> dict[int, _QueryOutline]:
    """Outlines of running queries by key, from bare rows; of all, or of those among `keys`."""
    if keys is not None and not keys:
        return {}
    running = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING, running_version__isnull=False)
    rows = running if keys is None else running.filter(pk__in=keys)
    queries = {query.running_version_id: query for query in rows.select_related("cluster").order_by("pk")}
    operators: dict[int | None, list[elements.Operator]] = {version: [] for version in queries}
    listed = Operator.objects.filter(version__in=queries).order_by("version", "position")
    for version, name in listed.values_list("version_id", "name"):
        query = queries[version].name
        operators[version].append(elements.Operator(operator_id(query, name), (), (), query=query))
    sources: dict[int | None, set[str]] = {version: set() for version in queries}
    reads = OperatorInput.objects.filter(operator__version__in=queries).exclude(source_id="")
    for version, source in reads.values_list("operator__version_id", "source_id"):
        sources[version].add(source_name(source, queries[version].name, queries[version].reads_privately))
    return {
        queries[version].pk: _QueryOutline(tuple(operators[version]), frozenset(sources[version]))
        for version in queries
    }
