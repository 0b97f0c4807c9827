"""Expressions over batches by pyarrow: each node becomes a function once, then runs on many batches.

Whatever would be no finite number, does not fit, or cannot be converted is null. The common case is checked at the cost
of one sum; only a batch in which something did overflow takes the slow way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.calls import CALLS
from engine.dataflow.casts import cast
from engine.dataflow.expressions import Call, Case, Cast, Column, In, Literal, Node
from engine.dataflow.types import ARROW

__all__ = ["Evaluator", "array_of", "evaluator"]

#: Gives an array of the batch's length, or a scalar where no column is read.
Evaluator = Callable[[pa.RecordBatch], Any]


def evaluator(node: Node) -> Evaluator:
    """The function that computes an expression over a batch."""
    match node:
        case Column(name, _):
            return lambda batch: batch.column(name)
        case Literal(value, kind):
            constant = pa.scalar(value, ARROW[kind])
            return lambda _: constant
        case Call(function, arguments, _):
            return _call(CALLS[function], [evaluator(one) for one in arguments])
        case Cast(argument, kind):
            inner, convert = evaluator(argument), cast(argument.type, kind)
            return lambda batch: convert(inner(batch))
        case Case():
            return _case(node)
        case In(argument, options, _):
            return _in(evaluator(argument), pa.array([one.value for one in options], ARROW[argument.type]))


def array_of(value: Any, batch: pa.RecordBatch) -> pa.Array:
    """The value as one array for the batch."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, batch.num_rows)
    return value


def _call(function: Callable[..., Any], arguments: list[Evaluator]) -> Evaluator:
    if len(arguments) == 1:
        (only,) = arguments
        return lambda batch: function(only(batch))
    if len(arguments) == 2:
        left, right = arguments
        return lambda batch: function(left(batch), right(batch))
    return lambda batch: function(*[one(batch) for one in arguments])


def _case(node: Case) -> Evaluator:
    branches = [(evaluator(when), evaluator(then)) for when, then in reversed(node.branches)]
    otherwise = evaluator(node.otherwise)

    def run(batch: pa.RecordBatch) -> Any:
        value = otherwise(batch)
        for when, then in branches:  # from the last to the first, so that the first true one prevails
            value = pc.if_else(pc.fill_null(when(batch), False), then(batch), value)
        return value

    return run


def _in(argument: Evaluator, options: pa.Array) -> Evaluator:
    is_float = pa.types.is_floating(options.type)
    if is_float:
        options = pc.add(options, 0.0)  # values are looked up by their bits, and -0.0 equals 0.0

    def run(batch: pa.RecordBatch) -> Any:
        value = argument(batch)
        if is_float:
            value = pc.add(value, 0.0)
        return pc.if_else(pc.is_valid(value), pc.is_in(value, value_set=options), pa.scalar(None, pa.bool_()))

    return run
