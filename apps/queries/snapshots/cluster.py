"""Snapshot of a cluster: what runs there now, as the engine takes it, with what identifies each part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from typing import Any

from django.utils import timezone

from apps.core.clock import shared_now
from apps.fleet.models import Cluster
from apps.queries.arrivals.series import arrival_rows, load_arrays
from apps.queries.backlogs import candidate_backlogs, with_backlogs
from apps.queries.bodies import with_operators
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput, QueryVersion
from apps.queries.snapshots.contents import node_policies, snapshot_changes
from apps.queries.snapshots.elements import (
    arrivals_noise,
    candidate_operator,
    engine_node,
    engine_objective,
    operator_id,
    source_name,
    version_inputs,
)
from apps.queries.snapshots.outlines import closed_nodes
from apps.queries.snapshots.states import ClusterState, cluster_state
from engine.document import elements
from engine.document.deployment import Deployment
from engine.document.policies import schedule_nodes
from engine.document.translation import source_rates, with_nominal_costs

__all__ = [
    "SLICES_PER_SUBINTERVAL",
    "Snapshot",
    "candidate_document",
    "cluster_parts",
    "cluster_snapshot",
    "operator_id",
    "parts_digest",
    "snapshot_changes",
]

SLICES_PER_SUBINTERVAL = 4  #: snapshots are at a quarter of a subinterval


@dataclass(frozen=True)
class Snapshot:
    """The running part of a cluster.

    `parts` names everything in it (`node:n1`, `link:a->b`, `query:checkout`, `source:clicks`, `grid`, `policy`) with
    what identifies its content; `digest` is the SHA-256 of them all: equal digests mean equal answers of the engine.
    `read_at` is the moment before its rows were read. `closed_nodes` take nothing new: they are draining.
    """

    deployment: Deployment
    digest: str
    parts: dict[str, str]
    read_at: datetime
    closed_nodes: tuple[str, ...] = ()


def cluster_snapshot(cluster: Cluster, *, with_waiting: bool = True) -> Snapshot:
    """Running queries on the nodes that are there, at slice width, with the sources they read.

    A query admitted with a share of its rate, or from a later moment on, reads private copies of its sources, named
    `source@query`. Its horizon begins now, with what is known to wait at inputs; without `with_waiting` it begins
    empty. Nodes are scheduled as their agents say. Of a cluster that has not changed it is the same deployment, unless
    something waits: that grows older.
    """
    read_at, now = shared_now(), timezone.now()
    state = cluster_state(cluster)
    policies = node_policies(cluster, state.nodes)
    is_aging = with_waiting and any(row.query.backlogs for row in state.running.values())
    made_of = (_facts(cluster), tuple(sorted(policies.items())))
    known_of, known = state.made.get("snapshot", (None, None))
    if known_of == made_of and not is_aging:
        return replace(known, read_at=read_at)
    parts = cluster_parts(cluster, state, policies)
    snapshot = Snapshot(
        _deployment(cluster, state, policies, now if is_aging else None),
        parts_digest(parts),
        parts,
        read_at,
        closed_nodes(state.nodes),
    )
    if not is_aging:
        state.made["snapshot"] = made_of, snapshot
    return snapshot


def _facts(cluster: Cluster) -> tuple[Any, ...]:
    """All that a snapshot has of the cluster's own row."""
    return cluster.subinterval_s, cluster.horizon_s, cluster.policy_version


def _deployment(
    cluster: Cluster, state: ClusterState, policies: Mapping[str, str], waiting_at: datetime | None
) -> Deployment:
    """Deployment of the queries that run, with what waits at a moment."""
    rows, names = state.ordered, state.node_names
    sources = state.engine_sources()
    nodes, scheduling = schedule_nodes([engine_node(node) for node in state.nodes], policies)
    operators = {
        row.query.pk: row.operators if waiting_at is None else with_backlogs(row.query, row.operators, waiting_at)
        for row in rows
    }
    new = [row for row in rows if row.never_ran]
    if new:
        own = [operator for row in new for operator in operators[row.query.pk]]
        rates = source_rates(sources, cluster.slice_s)
        filled = iter(with_nominal_costs(own, rates, cluster.slice_s, nodes, processor=state.stream_processor))
        operators |= {row.query.pk: tuple(islice(filled, len(row.operators))) for row in new}
    return Deployment(
        subinterval_s=cluster.slice_s,
        subintervals=cluster.slices,
        sources=sources,
        nodes=nodes,
        operators=tuple(chain.from_iterable(operators.values())),
        links=tuple(
            elements.Link(names[link.source_id], names[link.target_id], link.bandwidth_bytes_s, link.delay_s)
            for link in state.links
        ),
        objectives=tuple(engine_objective(row.query) for row in rows if row.query.objective_bound_s is not None),
        priorities={row.query.name: row.query.priority for row in rows},
        scheduling=scheduling,
        stream_processor=state.stream_processor,
    )


def parts_digest(parts: Mapping[str, str]) -> str:
    """Digest of a snapshot of these parts."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def cluster_parts(
    cluster: Cluster, state: ClusterState | None = None, policies: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Parts of the snapshot that the cluster would give now, without building it: to tell what has moved."""
    state = state or cluster_state(cluster)
    policies = node_policies(cluster, state.nodes) if policies is None else policies
    made_of = (_facts(cluster), tuple(sorted(policies.items())))
    known_of, parts = state.made.get("parts", (None, None))
    if known_of != made_of:
        parts = state.parts(cluster, policies)
        state.made["parts"] = made_of, parts
    return dict(parts)


def candidate_document(
    version: QueryVersion,
    *,
    placement: Mapping[str, object] | None = None,
    rate_share: float = 1.0,
) -> dict[str, Any]:
    """A version as a candidate of `engine.admission`, with the sources that no running query reads.

    Where the engine is asked, costs of its relatives belong to it as well (`StoppedRelatives`).

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
    candidate_backlogs(query, operators, timezone.now())
    document: dict[str, Any] = {"query": query.name, "operators": operators, "priority": query.priority}
    own = {entry.source_id for entry in version_inputs(version) if entry.source_id}
    if not private:
        own -= _sources_running(cluster)
    rows = arrival_rows(cluster, own)
    arrays = load_arrays(rows)
    sources = [
        {"id": source_name(row.source_id, query.name, private), "arrivals": arrays[row.source_id] * rate_share}
        | ({"event_fields": row.event_fields} if row.event_fields else {})
        | {name: value for name, value in arrivals_noise(row).items() if value is not None}
        for row in rows
    ]
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
    )
    return set(rows.exclude(source_id="").values_list("source_id", flat=True))
