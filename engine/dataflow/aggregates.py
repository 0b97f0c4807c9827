"""Aggregates of a document as states that merge, and how the outputs are computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from engine.dataflow.expressions import Node
from engine.dataflow.functions import AGGREGATES
from engine.dataflow.operators import AggregateSpec, Output, State
from engine.dataflow.sketch import SKETCH_TYPE
from engine.dataflow.sql import AggregateCall, read_aggregate
from engine.dataflow.types import ARROW, Columns, Type
from engine.errors import Fault
from engine.wording import join

__all__ = ["bind_aggregate"]

_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "avg": ("sum", "count"),
    "count": ("count",),
    "max": ("max",),
    "min": ("min",),
    "quantile": ("sketch",),
    "sum": ("sum",),
}


def bind_aggregate(
    compute: Mapping[str, str], keys: Columns, columns: Columns, path: str, faults: list[Fault]
) -> tuple[AggregateSpec, dict[str, Type]] | None:
    """The spec of an aggregate over `columns`, grouped by `keys`, with the columns that it puts out."""
    calls: dict[str, AggregateCall] = {}
    for name in sorted(compute):
        at = join(join(path, "compute"), name)
        if name in keys:
            faults.append(Fault(at, f"{name} is computed, but grouped by too; allowed: another name"))
        call = read_aggregate(compute[name], columns, at, name, faults)
        if call is not None:
            calls[name] = call
    if len(calls) < len(compute):
        return None
    states = _States()
    states.state("rows", None)  # in every partial: how many records are behind a group is told with each result
    outputs = tuple(_output(name, call, states) for name, call in calls.items())
    exact = tuple(name for name, call in calls.items() if _is_exact(call))
    spec = AggregateSpec(tuple(keys), tuple(states.made.values()), outputs, exact)
    return spec, {**keys, **{name: call.type for name, call in calls.items()}}


def _is_exact(call: AggregateCall) -> bool:
    return call.distinct or not AGGREGATES[call.function]


def _output(name: str, call: AggregateCall, states: _States) -> Output:
    if _is_exact(call):
        return Output(name, "count distinct" if call.distinct else call.function, (), call.share, call.type)
    if call.argument is None:
        return Output(name, "rows", (states.state("rows", None),), None, call.type)
    names = tuple(states.state(kind, call.argument) for kind in _STATES[call.function])
    return Output(name, call.function, names, call.share, call.type)


class _States:
    """The states of an aggregate; outputs of the same argument share them."""

    def __init__(self) -> None:
        self.made: dict[str, State] = {}
        self._arguments: list[Node] = []

    def state(self, kind: str, argument: Node | None) -> str:
        if argument is None:
            name = "_rows"
        else:
            if argument not in self._arguments:
                self._arguments.append(argument)
            name = f"_{kind}_{self._arguments.index(argument)}"
        self.made.setdefault(name, State(name, kind, argument, _state_type(kind, argument)))
        return name


def _state_type(kind: str, argument: Node | None) -> pa.DataType:
    if kind == "sketch":
        return SKETCH_TYPE
    return pa.int64() if argument is None or kind == "count" else ARROW[argument.type]
