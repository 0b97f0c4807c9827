"""Features of executable operators as a deployment document states them: comparisons, functions and types.

They come from the expressions themselves, so that a prediction needs nobody to state them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from engine.dataflow.expressions.nodes import Call, Cast, Literal, Node
from engine.dataflow.operators import AggregateSpec, FilterSpec, JoinSpec
from engine.dataflow.pipeline import PipelineOperator
from engine.dataflow.types import WINDOW_START, Columns, Type

__all__ = ["event_fields", "operator_features"]

_VALUE: Final[Mapping[Type, str]] = {Type.FLOAT64: "double", Type.STRING: "string"}  # any other: int
_FIELDS: Final = {"int": "ints", "string": "strings", "double": "doubles"}
_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXTS: Final = {"starts_with": "startswith", "ends_with": "endswith", "contains": "contains"}
_AGGREGATES: Final = {"min": "min", "max": "max", "avg": "mean", "sum": "sum", "count": "count"}


def event_fields(columns: Columns) -> dict[str, int]:
    """Number of columns by the type of their values; times and truth values are whole numbers.

    Examples
    --------
    >>> event_fields({"t": Type.TIMESTAMP, "host": Type.STRING, "rtt": Type.FLOAT64})
    {'ints': 1, 'strings': 1, 'doubles': 1}
    """
    counts = Counter(_FIELDS[_value(kind)] for kind in columns.values())
    return {name: counts[name] for name in _FIELDS.values()}


def operator_features(operator: PipelineOperator) -> dict[str, Any]:
    """Fields of the document: ``filter``, ``join`` or ``aggregate``, and values per event in and out."""
    widths = {
        "tuple_values_in": float(len(operator.columns_in)),
        "tuple_values_out": float(len(operator.columns_out)),
    }
    spec = operator.spec
    if isinstance(spec, FilterSpec):
        return {"filter": _comparison(spec.where)} | widths
    if isinstance(spec, JoinSpec):
        return {"join": {"key_type": _value(operator.columns_in[spec.on[0][0]])}} | widths
    if isinstance(spec, AggregateSpec):
        return {"aggregate": _aggregate(spec, operator.columns_in)} | widths
    return widths


def _value(kind: Type) -> str:
    return _VALUE.get(kind, "int")


def _comparison(where: Node) -> dict[str, str]:
    """A comparison of anything with a literal; any other condition is told by the type of what it begins with."""
    if isinstance(where, Call) and len(where.arguments) == 2:
        left, right = (_bare(argument) for argument in where.arguments)
        function = _COMPARISONS.get(where.function) or _TEXTS.get(where.function)
        if function and isinstance(right, Literal):
            return {"function": function, "literal_type": _value(right.type)}
        if function and isinstance(left, Literal):
            return {"function": _TURNED.get(function, function), "literal_type": _value(left.type)}
    return {"function": "other", "literal_type": _value(where.type)}


def _bare(node: Node) -> Node:
    return _bare(node.argument) if isinstance(node, Cast) else node


def _aggregate(spec: AggregateSpec, columns: Columns) -> dict[str, str]:
    """The first output's function, the type of its argument, and that of the first key beside the window."""
    keys = [columns[key] for key in spec.keys if key != WINDOW_START and key in columns]
    output = spec.outputs[0] if spec.outputs else None
    states = [state for state in spec.states if output is not None and state.name in output.states]
    argument = next((state.argument for state in states if state.argument is not None), None)
    return {
        "function": _AGGREGATES.get(output.function, "other") if output else "other",
        "argument_type": "int" if argument is None else _value(argument.type),
        "group_by_type": _value(keys[0]) if keys else "none",
    }
