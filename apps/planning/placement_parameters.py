"""Parameters of a placement search, checked with every fault at once, each with its path."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from apps.core.errors import Fault, Malformed, fault_count
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Node
from apps.planning.choices import PlacementAlgorithm, PlacementObjective
from apps.queries.models import Operator, Placement
from apps.queries.snapshots.elements import operator_id
from engine.document import elements
from engine.document.checks import DeploymentParts, check_parts

__all__ = ["MAX_BUDGET_S", "MAX_SEED", "check_parameters", "objective_default"]

MAX_BUDGET_S = 300.0
MAX_SEED = 2**53  # browsers read whole numbers exactly up to here


def check_parameters(
    *, cluster: Cluster, algorithm: str, objective: str, budget_s: float, seed: int, constraints: Mapping[str, object]
) -> dict[str, Any]:
    """The fields of a run.

    Raises
    ------
    Malformed
        With every fault.
    """
    faults: list[Fault] = []
    _check_choice("algorithm", algorithm, PlacementAlgorithm.values, faults)
    _check_choice("objective", objective, PlacementObjective.values, faults)
    if isinstance(budget_s, bool) or not math.isfinite(budget_s) or not 0 < budget_s <= MAX_BUDGET_S:
        faults.append(Fault("budget_s", f"budget_s is {budget_s}; allowed: above 0 and up to {MAX_BUDGET_S:g} seconds"))
    if isinstance(seed, bool) or not 0 <= seed <= MAX_SEED:
        faults.append(Fault("seed", f"seed is {seed}; allowed: a whole number from 0 to {MAX_SEED}"))
    read = _read_constraints(cluster, constraints, faults)
    if faults:
        first = f"{faults[0].path}: {faults[0].message}"
        raise Malformed(f"The search has {fault_count(faults)}; first: {first}", faults)
    return {
        "algorithm": algorithm,
        "objective": objective,
        "budget_s": float(budget_s),
        "seed": seed,
        "constraints": read,
    }


def objective_default(cluster: Cluster) -> str:
    """The default objective: latencies against objectives where a running query has one, else the worst case."""
    bound = cluster.queries.filter(running_version__isnull=False, objective_bound_s__isnull=False)
    return PlacementObjective.OBJECTIVES if bound.exists() else PlacementObjective.WORST


def _check_choice(name: str, value: str, allowed: Iterable[str], faults: list[Fault]) -> None:
    if value not in allowed:
        faults.append(Fault(name, f"{name} is {value!r}; allowed: {', '.join(allowed)}"))


def _read_constraints(cluster: Cluster, document: Mapping[str, object], faults: list[Fault]) -> dict[str, Any]:
    """Constraints of a document without empty ones, checked by the rules of deployment documents."""
    read = elements.Constraints.read(document, "", "constraints", faults)
    if read is None:
        return {}
    kept = {
        name: value
        for name, value in read.to_dict().items()
        if name in document and value is not None and (value or name in ("may_split", "max_moves"))
    }
    operators, nodes = _running_operators(cluster), _nodes(cluster)
    parts = DeploymentParts(
        subintervals=1,
        nodes=[elements.Node(node.name, node.capacity_cps) for node in nodes],
        operators=[elements.Operator(name, (), ()) for name in operators],
        constraints=read,
        faults=faults,
    )
    if kept:
        check_parts(parts)
        _check_closed_pins(kept.get("pin", {}), nodes, faults)
        _check_stateful_splits(cluster, kept.get("may_split", ()), faults)
    return kept


def _check_closed_pins(pins: Mapping[str, str], nodes: Iterable[Node], faults: list[Fault]) -> None:
    """Refuse pins of operators to draining nodes, unless they are there already."""
    closed = {node.name: node for node in nodes if node.state == NodeState.DRAINING}
    for name, node in pins.items():
        query, _, operator = name.partition("/")
        if node not in closed:
            continue
        there = Placement.objects.filter(node=closed[node], operator__name=operator)
        if not there.filter(operator__version__query__name=query).exists():
            faults.append(Fault(f"constraints.pin.{name}", f"node {node!r} is draining and takes nothing new"))


def _check_stateful_splits(cluster: Cluster, names: Iterable[str], faults: list[Fault]) -> None:
    rows = Operator.objects.filter(version__running_as__cluster=cluster, stateless=False)
    told = rows.values_list("version__query__name", "name", "extra")
    stateful = {operator_id(query, name) for query, name, extra in told if not extra.get("keyed")}
    for k, name in enumerate(names):
        if name in stateful:
            message = f"may_split names {name!r}, which has state that is not by key; allowed: stateless or keyed ones"
            faults.append(Fault(f"constraints.may_split[{k}]", message))


def _running_operators(cluster: Cluster) -> list[str]:
    rows = Operator.objects.filter(version__running_as__cluster=cluster).order_by("version_id", "position")
    names = rows.values_list("version__query__name", "name")
    return [operator_id(query, name) for query, name in names]


def _nodes(cluster: Cluster) -> list[Node]:
    return list(cluster.nodes.exclude(state=NodeState.OFFLINE))
