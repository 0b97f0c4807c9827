"""Sketch of a large cluster: what a page says of it, without the rows of its operators."""

from __future__ import annotations

import numpy as np

from apps.fleet.models import Cluster
from apps.queries.choices import QueryState
from apps.queries.models import ClusterParts, OperatorInput, Query
from apps.queries.snapshots.cluster import Snapshot
from apps.queries.snapshots.contents import node_policies
from apps.queries.snapshots.elements import engine_node, engine_objective, source_name
from apps.queries.snapshots.outlines import closed_nodes
from apps.queries.snapshots.parts import parts_read
from apps.queries.snapshots.states import nodes_present
from engine.document import elements
from engine.document.deployment import Deployment
from engine.document.policies import schedule_nodes

__all__ = ["cluster_sketch"]


def cluster_sketch(cluster: Cluster) -> Snapshot:
    """Nodes, queries with their objectives, and sources with their mean rate; one operator without a place a query.

    It identifies the parts that a worker read last (`apps.queries.snapshots.parts`). Enough to word and ask a question;
    the answer is a job's, on a snapshot.
    """
    kept = ClusterParts.objects.filter(cluster=cluster).first() or parts_read(cluster)
    nodes = nodes_present(cluster)
    running = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING, running_version__isnull=False)
    queries = list(running.defer("description", "backlogs"))
    machines, scheduling = schedule_nodes([engine_node(node) for node in nodes], node_policies(cluster, nodes))
    deployment = Deployment(
        subinterval_s=cluster.slice_s,
        subintervals=cluster.slices,
        sources=_sources(cluster, queries),
        nodes=machines,
        operators=tuple(elements.Operator(query.name, (), (), query=query.name) for query in queries),
        objectives=tuple(engine_objective(query) for query in queries if query.objective_bound_s is not None),
        priorities={query.name: query.priority for query in queries},
        scheduling=scheduling,
    )
    return Snapshot(deployment, kept.digest, dict(kept.parts), kept.read_at, closed_nodes(nodes))


def _sources(cluster: Cluster, queries: list[Query]) -> tuple[elements.Source, ...]:
    """Sources that are read, each with its mean in every slice, in one number's memory."""
    readers = {query.running_version_id: query for query in queries}
    means = {
        name: events / slices for name, events, slices in cluster.arrivals.values_list("source_id", "events", "slices")
    }
    reads = OperatorInput.objects.filter(operator__version__running_as__cluster=cluster).exclude(source_id="")
    rates: dict[str, float] = {}
    for version, source in reads.values_list("operator__version_id", "source_id").distinct():
        query = readers.get(version)
        if query is not None and source in means:
            rates[source_name(source, query.name, query.reads_privately)] = means[source] * query.rate_share
    shape = (cluster.slices,)
    return tuple(
        elements.Source(name, np.broadcast_to(np.float64(rate), shape)) for name, rate in sorted(rates.items())
    )
