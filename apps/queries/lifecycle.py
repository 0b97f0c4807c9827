"""Queries started, moved and stopped. Admission decides whether they may start."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db import transaction

from apps.core.errors import Conflict, Fault, Impossible, Malformed
from apps.fleet.choices import NodeState
from apps.fleet.models import Node
from apps.queries.choices import QueryState
from apps.queries.definitions import query_announce
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, QueryVersion
from apps.queries.snapshots.elements import operator_id
from engine.document.checks import is_mergeable
from engine.document.cycles import cycle_unit_words, is_of_clock

__all__ = ["placement_move", "query_start", "query_stop"]


@transaction.atomic
def query_start(
    *,
    version: QueryVersion,
    placement: Mapping[str, Any],
    rate_share: float | None = None,
    start_s: float = 0.0,
) -> Query:
    """Let a version run on the given nodes, in the place of the version that may be running.

    Parameters
    ----------
    placement : mapping
        For every operator, by its name or `{query}/{name}`: a node's name, `{"node", "core"}`, or a list of replicas
        `{"node", "core", "fraction"}`.
    rate_share : float, optional
        Share of its sources' events it is planned with; what the query says unless given. Nothing here holds the rest
        back: that is its sources' part.
    start_s : float
        Seconds into the horizon before which it reads nothing.

    Raises
    ------
    Malformed, Conflict
        Operators without a place, unknown nodes and cores, fractions that do not add up; nodes that take nothing new.
    Impossible
        A source it reads has no arrivals.
    """
    query = _locked(version.query)
    share = query.rate_share if rate_share is None else rate_share
    if not (math.isfinite(share) and 0 < share <= 1):
        raise Malformed(
            f"rate_share is {share}; allowed: above 0 and up to 1.", [("rate_share", "above 0 and up to 1")]
        )
    if not (math.isfinite(start_s) and 0 <= start_s < query.cluster.horizon_s):
        allowed = f"from 0 to below the horizon, {query.cluster.horizon_s:g}"
        raise Malformed(f"start_s is {start_s}; allowed: {allowed}.", [("start_s", f"allowed: {allowed}")])
    operators = list(version.operators.all())
    _check_sources(version)
    rows = _rows(query, operators, placement)
    missing = [operator.name for operator in operators if not any(row.operator_id == operator.pk for row in rows)]
    if missing:
        faults = [(f"placement.{name}", "operator has no node") for name in missing]
        raise Malformed(f"Operators without a node: {', '.join(missing)}.", faults)
    if query.running_version_id:
        Placement.objects.filter(operator__version=query.running_version_id).delete()
    Placement.objects.filter(operator__version=version).delete()
    Placement.objects.bulk_create(rows)
    query.state, query.running_version = QueryState.RUNNING, version
    query.rate_share, query.start_s = share, start_s
    query.save()
    query_announce(query)
    return query


@transaction.atomic
def placement_move(*, query: Query, placement: Mapping[str, Any]) -> Query:
    """Move operators of a running query; those not named stay."""
    query = _locked(query)
    if query.running_version is None:
        raise Conflict(f"Query {query.name!r} does not run; only what runs can be moved.")
    rows = _rows(query, list(query.running_version.operators.all()), placement)
    Placement.objects.filter(operator__in={row.operator_id for row in rows}).delete()
    Placement.objects.bulk_create(rows)
    query.save()
    query_announce(query)
    return query


@transaction.atomic
def query_stop(*, query: Query) -> Query:
    """Stop a running or waiting query: it takes no part in estimates any more, and its nodes are free."""
    query = _locked(query)
    if query.state not in {QueryState.RUNNING, QueryState.QUEUED}:
        raise Conflict(
            f"Query {query.name!r} is {query.get_state_display().lower()}; only a running or queued one stops."
        )
    ran = query.running_version_id is not None
    Placement.objects.filter(operator__version__query=query).delete()
    query.state = QueryState.STOPPED if ran else QueryState.DRAFT
    query.running_version, query.rate_share, query.start_s = None, 1.0, 0.0
    query.save()
    query_announce(query)
    return query


def _locked(query: Query) -> Query:
    rows = Query.objects.select_for_update(of=("self",)).select_related("cluster", "running_version")
    return rows.get(pk=query.pk)


def _check_sources(version: QueryVersion) -> None:
    inputs = OperatorInput.objects.filter(operator__version=version).exclude(source_id="")
    read = set(inputs.values_list("source_id", flat=True))
    known = ArrivalSeries.objects.filter(cluster=version.query.cluster, source_id__in=read)
    missing = sorted(read - set(known.values_list("source_id", flat=True)))
    if missing:
        faults = [("", f"source {name!r} has no arrivals") for name in missing]
        raise Impossible(f"There are no arrivals of {', '.join(missing)}. Upload or generate them first.", faults)


def _rows(query: Query, operators: Iterable[Operator], placement: Mapping[str, Any]) -> list[Placement]:
    """Rows of a placement, checked whole before anything is stored."""
    by_name = {operator_id(query.name, operator.name): operator for operator in operators}
    named = {str(replica.get("node", "")) for where in placement.values() for replica in _replicas(where)}
    nodes = {node.name: node for node in query.cluster.nodes.filter(name__in=named)}
    held = set(Placement.objects.filter(operator__version__query=query).values_list("operator__name", "node_id"))
    faults: list[Fault] = []
    closed: list[Fault] = []
    rows: list[Placement] = []
    for name, where in placement.items():
        path = f"placement.{name}"
        operator = by_name.get(operator_id(query.name, name))
        if operator is None:
            faults.append(Fault(path, f"query {query.name!r} has no operator {name!r}"))
            continue
        replicas = _replicas(where)
        for replica in replicas:
            row = _row(operator, replica, nodes, path, faults)
            if row is not None and row.node.state != NodeState.ACTIVE and (operator.name, row.node_id) not in held:
                closed.append(Fault(path, f"node {row.node.name!r} is {row.node.state} and takes nothing new"))
            rows += [row] if row is not None else []
        _check_split(operator, replicas, path, faults)
    faults += _unit_faults(query, rows)
    if faults:
        raise Malformed(f"The placement has {len(faults)} faults; first: {faults[0].path}: {faults[0].message}", faults)
    if closed:
        raise Conflict(f"{closed[0].path}: {closed[0].message}.", closed)
    return rows


def _unit_faults(query: Query, rows: Sequence[Placement]) -> Iterator[Fault]:
    """Faults of operators on nodes that count in another unit than their costs."""
    known = OperatorInput.objects.filter(operator__in={row.operator_id for row in rows}, cycles_per_event__isnull=False)
    units = dict(known.values_list("operator_id", "cycle_unit"))
    for row in rows:
        unit = units.get(row.operator_id)
        if unit is not None and is_of_clock(unit) != is_of_clock(row.node.cycle_unit):
            costs, counts = cycle_unit_words(unit), cycle_unit_words(row.node.cycle_unit)
            message = f"its costs are in {costs}, and node {row.node.name!r} counts {counts}; allowed: nodes that do"
            yield Fault(f"placement.{operator_id(query.name, row.operator.name)}", message)


def _replicas(where: Any) -> list[dict[str, Any]]:
    if isinstance(where, str):
        return [{"node": where}]
    return [dict(where)] if isinstance(where, Mapping) else [dict(replica) for replica in where]


def _row(
    operator: Operator, replica: Mapping[str, Any], nodes: Mapping[str, Node], path: str, faults: list[Fault]
) -> Placement | None:
    node, core = nodes.get(replica.get("node", "")), replica.get("core", 0)
    if node is None:
        faults.append(Fault(path, f"node is {replica.get('node')!r}; allowed: a node of the cluster"))
        return None
    if isinstance(core, bool) or not isinstance(core, int) or not 0 <= core < node.cores:
        faults.append(Fault(path, f"core is {core!r}; allowed: 0 to {node.cores - 1} on node {node.name!r}"))
        return None
    return Placement(operator=operator, node=node, core=core, fraction=replica.get("fraction", 1.0))


def _check_split(operator: Operator, replicas: list[dict[str, Any]], path: str, faults: list[Fault]) -> None:
    fractions = [replica.get("fraction", 1.0) for replica in replicas]
    if not all(isinstance(part, (int, float)) and 0 < part <= 1 for part in fractions):
        faults.append(Fault(path, f"fractions are {fractions}; allowed: numbers above 0 and up to 1"))
    elif abs(sum(fractions) - 1) > 1e-9:
        faults.append(Fault(path, f"fractions add up to {sum(fractions):.12g}; allowed: 1"))
    if len(replicas) > 1 and operator.stateless is False and not is_mergeable(operator.extra.get("expression")):
        faults.append(Fault(path, f"operator {operator.name!r} has state; allowed: one node"))
    places = [(replica.get("node"), replica.get("core", 0)) for replica in replicas]
    if len(set(places)) < len(places):
        faults.append(Fault(path, "two parts are on the same core; allowed: one part per core"))
