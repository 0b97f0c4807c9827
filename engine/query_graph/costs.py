"""Cost table of operators in cycles per event, and what it says of a query that never ran.

The table is an assumption about a stream processor on the Java machine, with acknowledged tuples and a message broker:
about half a million cycles (0.2 ms of the reference core) for a tuple that enters, a third of it for each further
operator. The cohort simulation works with it; so does an estimate of what a query that never ran does to its
neighbours, by `nominal_cycles`. Neither SciPy nor numba is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from engine.query_graph.flow import nominal_flow
from engine.query_graph.graph import OperatorNode, QueryGraph
from engine.query_graph.processors import STREAM_PROCESSORS

__all__ = [
    "CYCLES",
    "SERIALIZE",
    "SERIALIZE_BYTE",
    "OperatorCycles",
    "evaluations_of",
    "nominal_cycles",
    "operator_cost",
]

# Cycles of the reference core (`REFERENCE_CORE_CPS`).
CYCLES: Final[Mapping[str, float]] = MappingProxyType(
    {
        # a tuple that enters: its share of a poll of the broker, the tuple made, its values parsed
        "enter": 400_000.0,
        "parse int": 8_000.0,
        "parse double": 12_000.0,
        "parse string": 24_000.0,
        # a tuple handed over by a queue and acknowledged; one made and put into the next queue; each of its values
        "take": 90_000.0,
        "make": 75_000.0,
        "make value": 4_000.0,
        # a tuple that a join makes out of two, in tuples
        "merge": 2.0,
        # a comparison by the literal's type; more for startswith and endswith
        "compare int": 4_000.0,
        "compare double": 6_000.0,
        "compare string": 24_000.0,
        "compare affix": 14_000.0,
        # windows: a tuple kept; a kept tuple visited at an evaluation, its key hashed, its value added; an evaluation
        "keep": 25_000.0,
        "scan": 14_000.0,
        "hash none": 0.0,
        "hash int": 6_000.0,
        "hash double": 9_000.0,
        "hash string": 21_000.0,
        "add int": 3_000.0,
        "add double": 4_500.0,
        "add to a mean": 2_000.0,
        "evaluate": 400_000.0,
        # a tuple written by a sink
        "deliver": 260_000.0,
    }
)

SERIALIZE, SERIALIZE_BYTE = 30_000.0, 80.0  # cycles to send a tuple to another host and to read it there


@dataclass(frozen=True)
class OperatorCycles:
    """Cycles of an operator: per tuple taken, per tuple made, per stored tuple scanned, per evaluation of a window."""

    take: float
    make: float = 0.0
    scan: float = 0.0
    evaluate: float = 0.0


def operator_cost(operator: OperatorNode) -> OperatorCycles:
    """Row of the cost table for an operator.

    Examples
    --------
    >>> operator_cost(OperatorNode("filter", 5, 5, function="<", value_type="int", selectivity=0.5))
    OperatorCycles(take=94000.0, make=95000.0, scan=0.0, evaluate=0.0)
    """
    take, make = CYCLES["take"], CYCLES["make"] + CYCLES["make value"] * operator.values_out
    if operator.kind == "source":
        parsed = operator.n_int * CYCLES["parse int"] + operator.n_dbl * CYCLES["parse double"]
        return OperatorCycles(CYCLES["enter"] + parsed + operator.n_str * CYCLES["parse string"])
    if operator.kind == "filter":
        affix = CYCLES["compare affix"] if operator.function in ("startswith", "endswith") else 0.0
        return OperatorCycles(take + CYCLES[f"compare {operator.value_type}"] + affix, make)
    if operator.kind == "join":
        scan = CYCLES["scan"] + CYCLES[f"hash {operator.value_type}"]
        return OperatorCycles(take + CYCLES["keep"], CYCLES["merge"] * make, scan, CYCLES["evaluate"])
    if operator.kind == "agg":
        scan = CYCLES["scan"] + CYCLES[f"hash {operator.group_type}"] + CYCLES[f"add {operator.value_type}"]
        scan += CYCLES["add to a mean"] if operator.function in ("mean", "avg") else 0.0
        return OperatorCycles(take + CYCLES["keep"], make, scan, CYCLES["evaluate"])
    return OperatorCycles(take + CYCLES["deliver"])


def evaluations_of(operator: OperatorNode, input_eps: Any, inputs: int) -> Any:
    """Evaluations of windows per second, of so many tuples/s (a number or an array) from so many inputs."""
    if operator.window_policy == "time":
        return 1.0 / operator.window_slide
    return input_eps / (operator.window_slide * inputs) if operator.window_policy == "count" else 0.0


def nominal_cycles(graph: QueryGraph) -> tuple[float, ...]:
    """Mean cycles per event that comes in, of each operator at its nominal rates, windows included.

    Parameters
    ----------
    graph
        A query that never ran; a source's events are those it emits. Costs are those of its stream processor.

    Returns
    -------
    tuple of float
        Cycles of the reference core per input event (Mace's omega), in the order of the query's operators. Operators
        that nothing reaches have what an event would cost.

    Examples
    --------
    >>> source = OperatorNode("source", 5, 5, rate_eps=100, n_int=5)
    >>> half = OperatorNode("filter", 5, 5, function="<", value_type="int", selectivity=0.5)
    >>> nominal_cycles(QueryGraph((source, half, OperatorNode("sink", 5, 5)), ((0, 1), (1, 2))))
    (440000.0, 141500.0, 350000.0)
    """
    flow, cycles = nominal_flow(graph), []
    factors = STREAM_PROCESSORS[graph.processor].factors
    for i, operator in enumerate(graph.operators):
        cost, input_eps = operator_cost(operator), float(flow.in_eps[i])
        evaluations_eps = evaluations_of(operator, input_eps, len(graph.inputs[i]))
        total = float(flow.out_eps[i]) * cost.make + float(flow.scan_eps[i]) * cost.scan
        total += evaluations_eps * cost.evaluate
        cycles.append(factors[operator.kind] * (cost.take + (total / input_eps if input_eps > 0.0 else 0.0)))
    return tuple(cycles)
