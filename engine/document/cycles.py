"""Units of cycles: what a cycle of a node's capacity and of an operator's cost is, and what turns one into another.

A cycle is *nominal* (of a clock rate that somebody stated), *calibrated* (of the clock at which a core was measured to
run) or a *nanosecond of CPU* (what engines report of busy threads). Nominal and calibrated cycles are cycles of a
clock alike: costs in one may be held against capacities in the other. A nanosecond is no cycle of a clock; what turns
one into the other is how many cycles a core does in it, and that is known where a core was measured alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import Fault
from engine.query_graph.graph import REFERENCE_CORE_CPS
from engine.words import listed

if TYPE_CHECKING:
    from engine.document.elements import Constraints, Input, Node, Operator

__all__ = [
    "CALIBRATED",
    "CPU_NS",
    "CYCLE_UNITS",
    "NOMINAL",
    "REFERENCE_CYCLES_PER_NS",
    "common_unit",
    "convert_operators",
    "cycle_unit_words",
    "cycles_per_unit",
    "forbid_other_units",
    "is_of_clock",
    "nominal_cost",
    "operator_unit",
    "unit_fault",
]

NOMINAL, CALIBRATED, CPU_NS = "nominal", "calibrated", "cpu_ns"
#: Units of cycles; the first where nothing is said.
CYCLE_UNITS = (NOMINAL, CALIBRATED, CPU_NS)

#: Cycles that the reference core of the simulator's table does in a nanosecond.
REFERENCE_CYCLES_PER_NS = REFERENCE_CORE_CPS / 1e9

_WORDS = {NOMINAL: "nominal cycles", CALIBRATED: "calibrated cycles", CPU_NS: "nanoseconds of CPU"}
_NS_PER_S = 1e9
_SAME = 1e-6  # by which factors of two nodes may differ and count as one


def cycle_unit_words(unit: str) -> str:
    """A unit in words.

    Examples
    --------
    >>> cycle_unit_words("cpu_ns")
    'nanoseconds of CPU'
    """
    return _WORDS[unit]


def is_of_clock(unit: str) -> bool:
    """Whether it counts cycles of a clock."""
    return unit != CPU_NS


def operator_unit(operator: Operator) -> str:
    """Unit of an operator's costs."""
    return (operator.evidence.cycle_unit if operator.evidence else None) or NOMINAL


def common_unit(nodes: Iterable[Node]) -> str:
    """The unit that all nodes count in; nominal where they differ."""
    units = {node.cycle_unit for node in nodes}
    return units.pop() if len(units) == 1 else NOMINAL


def cycles_per_unit(node: Node) -> float | None:
    """Cycles of a clock that one unit of a node's capacity is; None where nobody knows."""
    return 1.0 if is_of_clock(node.cycle_unit) else node.cycles_per_ns


def _cycles_per_ns(node: Node) -> float | None:
    """Cycles of a clock that a core does in a nanosecond of CPU, where it was measured."""
    if node.cycles_per_ns is not None:
        return node.cycles_per_ns
    # A calibrated capacity is cycles per second of CPU time.
    is_measured = node.cycle_unit == CALIBRATED and node.capacity_cps is not None
    return node.capacity_cps / _NS_PER_S if is_measured and node.capacity_cps is not None else None


def _factor(unit: str, node: Node) -> float | None:
    """Units of a node's capacity that one of `unit` is; None where nobody knows."""
    if is_of_clock(unit) == is_of_clock(node.cycle_unit):
        return 1.0
    cycles = _cycles_per_ns(node)
    if cycles is None:
        return None
    return cycles if unit == CPU_NS else 1.0 / cycles


def convert_operators(
    operators: Sequence[Operator | None], nodes: Iterable[Node | None], path: str, faults: list[Fault]
) -> list[Operator | None]:
    """Operators with costs in the unit of the nodes they are on, or may go to; what cannot be converted is a fault.

    An operator without a place needs one factor to all nodes; where some nodes count as it does, it stays as it is, and
    the others are closed to it (`forbid_other_units`). What never ran has no cost to convert.
    """
    known = {node.id: node for node in nodes if node is not None}
    return [
        operator if operator is None else _converted(operator, known, f"{path}[{i}]", faults)
        for i, operator in enumerate(operators)
    ]


def _converted(operator: Operator, nodes: dict[str, Node], path: str, faults: list[Fault]) -> Operator:
    unit = operator_unit(operator)
    placed = [nodes[name] for name in dict.fromkeys(replica.node for replica in operator.replicas) if name in nodes]
    targets = placed or list(nodes.values())
    if not targets or all(entry.never_ran for entry in operator.inputs):
        return operator
    factors = [_factor(unit, node) for node in targets]
    if not placed and any(is_of_clock(unit) == is_of_clock(node.cycle_unit) for node in targets):
        return operator
    if any(factor is None for factor in factors) or max(factors) > min(factors) * (1.0 + _SAME):  # type: ignore[type-var, operator]
        faults.append(unit_fault(operator, targets, f"{path}.evidence.cycle_unit"))
        return operator
    factor = factors[0]
    assert factor is not None
    if all(each == 1.0 for each in factors) and all(is_of_clock(n.cycle_unit) == is_of_clock(unit) for n in targets):
        return operator
    evidence = operator.evidence
    assert evidence is not None or unit == NOMINAL
    if evidence is None:
        from engine.document.elements import Evidence

        evidence = Evidence("assumed")
    return replace(
        operator,
        inputs=tuple(_scaled(entry, factor) for entry in operator.inputs),
        evidence=replace(evidence, cycle_unit=targets[0].cycle_unit),
    )


def _scaled(entry: Input, factor: float) -> Input:
    model = entry.model
    if model is not None:
        c0, c1, c2 = model.cycles
        model = replace(model, cycles=(c0 * factor, c1 * factor, c2 * factor))
    batches = tuple(replace(batch, cycles=batch.cycles * factor) for batch in entry.batches)
    return replace(entry, cycles_per_event=entry.cycles_per_event * factor, model=model, batches=batches)


def nominal_cost(cycles: float, operator: Operator, nodes: Sequence[Node]) -> tuple[float, str]:
    """A cost of the simulator's table, in cycles, and its unit: that of the nodes an operator is on or may go to.

    On nodes that count nanoseconds it is turned into them by their own factor; where that is unknown, by that of the
    table's reference core, which says what the table means and nothing of the nodes: what rests on it is for a person.
    """
    here = {replica.node for replica in operator.replicas}
    targets = [node for node in nodes if node.id in here] or list(nodes)
    if not targets or any(is_of_clock(node.cycle_unit) for node in targets):
        return cycles, NOMINAL
    # Of several factors the smallest, by which the cost is largest.
    return cycles / min(node.cycles_per_ns or REFERENCE_CYCLES_PER_NS for node in targets), CPU_NS


def unit_fault(operator: Operator, nodes: Sequence[Node], path: str) -> Fault:
    """The fault of costs in a unit that nodes do not count in."""
    unit = operator_unit(operator)
    others = [node for node in nodes if is_of_clock(node.cycle_unit) != is_of_clock(unit)]
    names = listed([node.id for node in others])
    counts = "counts" if len(others) == 1 else "count"
    unstated = operator.evidence is None or operator.evidence.cycle_unit is None
    said = f"cycle_unit is {unit!r}{' (unless said otherwise)' if unstated else ''}"
    message = (
        f"{said}, and {names} {counts} {cycle_unit_words(others[0].cycle_unit)}, which nobody knows how to convert; "
        f"allowed: costs in {others[0].cycle_unit!r}, or nodes with one cycles_per_ns"
    )
    return Fault(path, message)


def forbid_other_units(constraints: Constraints, operators: Sequence[Operator], nodes: Sequence[Node]) -> Constraints:
    """The constraints, with nodes closed to operators whose costs are in another unit than they count in."""
    if len({is_of_clock(node.cycle_unit) for node in nodes}) < 2:
        return constraints
    forbid = dict(constraints.forbid)
    for operator in operators:
        unit = operator_unit(operator)
        here = {replica.node for replica in operator.replicas}
        others = [n.id for n in nodes if is_of_clock(n.cycle_unit) != is_of_clock(unit) and n.id not in here]
        known = forbid.get(operator.id, ())
        if missing := tuple(name for name in others if name not in known):
            forbid[operator.id] = (*known, *missing)
    return constraints if forbid == constraints.forbid else replace(constraints, forbid=forbid)
