"""What runs in a cluster at this moment, as the engine takes it, with a digest of each part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.fleet.choices import ABSENT, NodeState
from apps.fleet.models import Cluster, Link
from apps.queries.arrivals.series import arrival_rows, load_arrays
from apps.queries.bodies import with_operators
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput, Query, QueryVersion
from apps.queries.snapshots.contents import link_content, node_content, part_content, query_content, snapshot_changes
from apps.queries.snapshots.elements import (
    candidate_operator,
    engine_node,
    engine_objective,
    engine_sources,
    operator_id,
    running_queries,
    source_name,
    version_inputs,
)
from engine.document import elements
from engine.document.deployment import Deployment

__all__ = ["Snapshot", "candidate_document", "cluster_snapshot", "operator_id", "snapshot_changes"]


@dataclass(frozen=True)
class Snapshot:
    """The running part of a cluster.

    `parts` names everything in it (`node:n1`, `link:a->b`, `query:checkout`, `source:clicks`, `grid`, `policy`) with
    what identifies its content; `digest` is the SHA-256 of them all: equal digests mean equal answers of the engine.
    `closed_nodes` take nothing new: they are draining.
    """

    deployment: Deployment
    digest: str
    parts: dict[str, str]
    closed_nodes: tuple[str, ...] = ()


def cluster_snapshot(cluster: Cluster) -> Snapshot:
    """Running queries on the nodes that are there, at slice width, with the sources they read.

    A query admitted with a share of its rate, or from a later moment on, reads private copies of its sources, named
    `source@query`.
    """
    nodes = list(cluster.nodes.exclude(state__in=ABSENT).select_related("pool"))
    names = {node.pk: node.name for node in nodes}
    links = [link for link in Link.objects.filter(cluster=cluster) if {link.source_id, link.target_id} <= set(names)]
    rows = Query.objects.filter(cluster=cluster, state=QueryState.RUNNING, running_version__isnull=False)
    found = running_queries(list(rows.select_related("cluster")), names)
    queries = [running.query for running in found]
    arrivals = {row.source_id: row for row in arrival_rows(cluster, {name for one in found for name in one.reads})}
    parts = {
        "grid": part_content(subinterval_s=cluster.subinterval_s, horizon_s=cluster.horizon_s),
        "policy": part_content(review_at_risk=cluster.review_at_risk, review_assumed=cluster.review_assumed),
        **{f"node:{node.name}": node_content(node) for node in nodes},
        **{f"link:{names[link.source_id]}->{names[link.target_id]}": link_content(link) for link in links},
        **{f"query:{one.query.name}": query_content(one.query, one.shorts) for one in found},
        **{f"source:{name}": part_content(data=f"#{row.digest[:16]}") for name, row in arrivals.items()},
    }
    reads = {one.query.running_version_id: one.reads for one in found}
    deployment = Deployment(
        subinterval_s=cluster.slice_s,
        subintervals=cluster.slices,
        sources=engine_sources(queries, reads, load_arrays(arrivals.values())),
        nodes=tuple(engine_node(node) for node in nodes),
        operators=tuple(operator for one in found for operator in one.operators),
        links=tuple(
            elements.Link(names[link.source_id], names[link.target_id], link.bandwidth_bytes_s, link.delay_s)
            for link in links
        ),
        objectives=tuple(engine_objective(query) for query in queries if query.objective_bound_s is not None),
        priorities={query.name: query.priority for query in queries},
    )
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    closed = tuple(node.name for node in nodes if node.state == NodeState.DRAINING)
    return Snapshot(deployment, hashlib.sha256(text.encode()).hexdigest(), parts, closed)


def candidate_document(
    version: QueryVersion,
    *,
    placement: Mapping[str, Any] | None = None,
    rate_share: float = 1.0,
) -> dict[str, Any]:
    """A version as a candidate of `engine.admission`, with the sources that no running query reads.

    Parameters
    ----------
    version : QueryVersion
        What wants to run. Its operators are named `{query}/{operator}`.
    placement : mapping, optional
        Where operators (by either name) are to go: a node's name or a list of replicas. It comes before what the
        version's own document asks for.
    rate_share : float
        With less than 1 the candidate brings private copies of its sources, `source@query`.
    """
    query, cluster = version.query, version.query.cluster
    version = with_operators(QueryVersion.objects.filter(pk=version.pk)).get()
    asked = {operator_id(query.name, name): where for name, where in (placement or {}).items()}
    private = rate_share != 1.0
    operators = [
        candidate_operator(query.name, row, asked.get(operator_id(query.name, row.name)), private)
        for row in version.operators.all()
    ]
    document: dict[str, Any] = {"query": query.name, "operators": operators, "priority": query.priority}
    own = {entry.source_id for entry in version_inputs(version) if entry.source_id}
    if not private:
        own -= _sources_running(cluster)
    arrays = load_arrays(arrival_rows(cluster, own))
    sources = [{"id": source_name(name, query.name, private), "arrivals": arrays[name] * rate_share} for name in arrays]
    if sources:
        document["sources"] = sources
    if query.objective_bound_s is not None:
        document["objective"] = {"statistic": query.objective_statistic, "bound_s": query.objective_bound_s}
    return document


def _sources_running(cluster: Cluster) -> set[str]:
    rows = OperatorInput.objects.filter(
        operator__version__running_as__cluster=cluster,
        operator__version__running_as__state=QueryState.RUNNING,
        operator__version__running_as__rate_share=1.0,
        operator__version__running_as__start_s=0.0,
    )
    return set(rows.exclude(source_id="").values_list("source_id", flat=True))
