"""Placements of operators: where each of them may go, checked whole before anything is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.core.errors import Conflict, Fault, Malformed
from apps.fleet.choices import NodeState
from apps.fleet.models import Node
from apps.queries.models import Operator, OperatorInput, Placement, Query
from apps.queries.snapshots.elements import operator_id
from engine.document.checks import is_mergeable
from engine.document.cycles import cycle_unit_words, is_of_clock

__all__ = ["PlacementGround", "placement_ground", "placement_part", "placement_rows"]


@dataclass(frozen=True)
class PlacementGround:
    """Ground that a placement is checked on: nodes by name, what is placed already, units of operators' known costs."""

    nodes: Mapping[str, Node]
    held: Collection[tuple[str, int]]
    units: Mapping[int, str]


def placement_ground(query: Query, operators: Iterable[Operator], placement: Mapping[str, object]) -> PlacementGround:
    named = {str(replica.get("node", "")) for where in placement.values() for replica in _replicas(where)}
    nodes = {node.name: node for node in query.cluster.nodes.filter(name__in=named)}
    held = set(Placement.objects.filter(operator__version__query=query).values_list("operator__name", "node_id"))
    ids = [operator.pk for operator in operators]
    known = OperatorInput.objects.filter(operator__in=ids, cycles_per_event__isnull=False)
    return PlacementGround(nodes, held, dict(known.values_list("operator_id", "cycle_unit")))


def placement_rows(
    query: Query, operators: Sequence[Operator], placement: Mapping[str, object], places: PlacementGround
) -> list[Placement]:
    """Rows of a placement of all operators, checked whole before anything is stored."""
    rows = placement_part(query, operators, placement, places)
    placed = {row.operator_id for row in rows}
    missing = [operator.name for operator in operators if operator.pk not in placed]
    if missing:
        faults = [(f"placement.{name}", "operator has no node") for name in missing]
        raise Malformed(f"Operators without a node: {', '.join(missing)}.", faults)
    return rows


def placement_part(
    query: Query, operators: Iterable[Operator], placement: Mapping[str, object], places: PlacementGround
) -> list[Placement]:
    """Rows of a placement of some operators, checked whole."""
    by_name = {operator_id(query.name, operator.name): operator for operator in operators}
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
            row = _row(operator, replica, places.nodes, path, faults)
            held = (operator.name, row.node_id) in places.held if row is not None else True
            if row is not None and row.node.state != NodeState.ACTIVE and not held:
                closed.append(Fault(path, f"node {row.node.name!r} is {row.node.state} and takes nothing new"))
            rows += [row] if row is not None else []
        _check_split(operator, replicas, path, faults)
    faults += _unit_faults(query, rows, places)
    if faults:
        raise Malformed(f"The placement has {len(faults)} faults; first: {faults[0].path}: {faults[0].message}", faults)
    if closed:
        raise Conflict(f"{closed[0].path}: {closed[0].message}.", closed)
    return rows


def _unit_faults(query: Query, rows: Sequence[Placement], places: PlacementGround) -> Iterator[Fault]:
    """Faults of operators on nodes that count in another unit than their costs."""
    for row in rows:
        unit = places.units.get(row.operator_id)
        if unit is not None and is_of_clock(unit) != is_of_clock(row.node.cycle_unit):
            costs, counts = cycle_unit_words(unit), cycle_unit_words(row.node.cycle_unit)
            message = f"its costs are in {costs}, and node {row.node.name!r} counts {counts}; allowed: nodes that do"
            yield Fault(f"placement.{operator_id(query.name, row.operator.name)}", message)


def _replicas(where: Any) -> list[dict[str, object]]:
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
