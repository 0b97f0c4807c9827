"""Aggregates by pyarrow: partial states of groups, merging them, and finished rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.arrow.expressions import Evaluator, array_of, evaluator, finite
from engine.dataflow.expressions.nodes import Node
from engine.dataflow.operators import AggregateSpec, Output
from engine.dataflow.sketch import bucket_of, merge_sketches, quantile, sketches
from engine.dataflow.types import ARROW, Columns

__all__ = ["Groups"]

_SUM = pc.ScalarAggregateOptions(min_count=1)  # the sum of no value is null, not 0
_MERGES: Final = {"rows": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}
_ROW = "_row"


class Groups:
    """Partial aggregates of one spec."""

    def __init__(self, spec: AggregateSpec, columns_in: Columns, columns_out: Columns) -> None:
        self._spec = spec
        self._keys = list(spec.keys)
        keys = [pa.field(name, ARROW[columns_in[name]]) for name in spec.keys]
        self.partial_schema = pa.schema([*keys, *(pa.field(state.name, state.type) for state in spec.states)])
        self._output_schema = pa.schema([(name, ARROW[kind]) for name, kind in columns_out.items()])
        self._inputs: list[tuple[str, Evaluator, bool]] = []
        self._partials = [self._first(state.kind, state.argument) for state in spec.states]
        self._merges = [([_ROW], "list") if state.kind == "sketch" else self._again(state) for state in spec.states]

    def _first(self, kind: str, argument: Node | None) -> tuple[Any, ...]:
        """Aggregation of a state from records; notes the column that it is aggregated from."""
        if argument is None:
            return [], "count_all"
        name = f"_{'bucket' if kind == 'sketch' else 'value'}_{argument_number(self._spec, argument)}"
        if all(name != known for known, _, _ in self._inputs):
            self._inputs.append((name, evaluator(argument), kind == "sketch"))
        if kind == "sketch":
            return name, "list"
        return (name, "sum", _SUM) if kind == "sum" else (name, kind)

    @staticmethod
    def _again(state: Any) -> tuple[Any, ...]:
        how = _MERGES[state.kind]
        return (state.name, how, _SUM) if how == "sum" else (state.name, how)

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The states of the groups of some records."""
        arrays = [batch.column(name) for name in self._keys]
        for _, compute, is_sketch in self._inputs:
            values = array_of(compute(batch), batch)
            arrays.append(bucket_of(values) if is_sketch else values)
        table = pa.Table.from_arrays(arrays, [*self._keys, *(name for name, _, _ in self._inputs)])
        grouped = table.group_by(self._keys, use_threads=False).aggregate(self._partials)
        return self._states(grouped, lambda _, lists: sketches(lists))

    def merge(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The states of the groups of all partials together, in whatever order they come."""
        table = pa.Table.from_batches(partials, self.partial_schema).combine_chunks()
        sketched = {state.name: _one(table[state.name]) for state in self._spec.states if state.kind == "sketch"}
        if sketched:
            table = table.drop_columns(list(sketched)).append_column(_ROW, pa.array(np.arange(table.num_rows)))
        grouped = table.group_by(self._keys, use_threads=False).aggregate(self._merges)
        return self._states(grouped, lambda name, rows: merge_sketches(sketched[name], rows))

    def _states(self, grouped: pa.Table, sketch: Any) -> pa.RecordBatch:
        """The grouped table in the partial schema, with sketches for the lists that stand in their places."""
        arrays = [_one(column) for column in grouped.columns]
        first = len(self._keys)
        for place, state in enumerate(self._spec.states, first):
            if state.kind == "sketch":
                arrays[place] = sketch(state.name, arrays[place])
        return pa.RecordBatch.from_arrays(arrays, schema=self.partial_schema)

    def finalise(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        """The finished rows, in the order of their keys."""
        arrays = [partial.column(name) for name in self._keys]
        arrays += [_finished(output, partial) for output in self._spec.outputs]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._output_schema)
        return rows.sort_by([(name, "ascending") for name in self._keys])


def argument_number(spec: AggregateSpec, argument: Node) -> int:
    """The number of a distinct argument among those of the spec."""
    distinct: list[Node] = []
    for state in spec.states:
        if state.argument is not None and state.argument not in distinct:
            distinct.append(state.argument)
    return distinct.index(argument)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _finished(output: Output, partial: pa.RecordBatch) -> pa.Array:
    states = [partial.column(name) for name in output.states]
    if output.function == "avg":
        total, count = (pc.cast(state, pa.float64(), safe=False) for state in states)
        return finite(pc.divide(total, count))
    if output.share is not None:
        return quantile(states[0], output.share)
    return finite(states[0]) if pa.types.is_floating(states[0].type) else states[0]
