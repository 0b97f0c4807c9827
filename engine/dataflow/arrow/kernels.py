"""Pipelines by pyarrow: what agents run on their batches, and what the stream processor merges and finishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.arrow.expressions import Evaluator, array_of, evaluator, finite
from engine.dataflow.arrow.rows import finite_columns, row_function
from engine.dataflow.expressions.nodes import Node
from engine.dataflow.operators import AggregateSpec, Output, StreamJoinSpec
from engine.dataflow.pipeline import Pipeline, PipelineOperator
from engine.dataflow.sketch import MAX_COUNT, bucket_of, is_sound, merge_sketches, quantile, sketches
from engine.dataflow.types import AGENT, ARROW, WINDOW_START, Columns, Type, arrow_schema
from engine.errors import EngineError, Fault

__all__ = [
    "AggregateKernel",
    "Groups",
    "Kernel",
    "NotRunnableError",
    "RowKernel",
    "StreamJoinKernel",
    "aggregate_kernel",
    "join_records",
    "kernel",
    "partial_schema",
    "rest",
    "row_kernel",
    "side_of",
    "side_schema",
    "stream_join_kernel",
    "whole",
]


def side_schema(spec: StreamJoinSpec) -> pa.Schema:
    """Records of the other stream as they wait to be matched."""
    return arrow_schema({**dict(spec.columns), WINDOW_START: Type.TIMESTAMP})


def side_of(spec: StreamJoinSpec, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Records of the other stream in their windows; what was no number is null. A column of agents stays."""
    columns = arrow_schema(dict(spec.columns))
    finite = finite_columns(columns)
    schema = side_schema(spec)
    if AGENT in rows.schema.names:
        columns, schema = (part.append(pa.field(AGENT, pa.string())) for part in (columns, schema))
    batch = rows.select(columns.names)
    return row_function(spec.window, schema)(batch if finite is None else finite(batch))


def join_records(spec: StreamJoinSpec, schema: pa.Schema, records: pa.RecordBatch, side: pa.RecordBatch) -> pa.Table:
    """Records matched with what `side_of` made of the other stream's, in no order.

    Where records of one agent alone match, both have the column `AGENT`; without it all are of one agent.
    """
    pairs = [(WINDOW_START, WINDOW_START), *spec.on]
    if spec.within_agent and AGENT in records.schema.names:
        pairs.append((AGENT, AGENT))
    mine, theirs = [list(names) for names in zip(*pairs, strict=True)]
    side = _first(side, theirs, spec)
    keys = {f"_key_{i}": side.column(name) for i, name in enumerate(theirs)}
    taken = {f"_taken_{i}": side.column(name) for i, (_, name) in enumerate(spec.take)}
    how = "inner" if spec.inner else "left outer"
    matches = pa.Table.from_batches([records]).join(
        pa.table(keys | taken), mine, right_keys=list(keys), join_type=how, use_threads=False
    )
    place = {name: f"_taken_{i}" for i, (name, _) in enumerate(spec.take)}
    return pa.Table.from_arrays([matches[place.get(name, name)] for name in schema.names], schema=schema)


def _first(side: pa.RecordBatch, keys: Sequence[str], spec: StreamJoinSpec) -> pa.RecordBatch:
    """The first records of every key, as many as a record may match. Those without a whole key match nothing."""
    for name in keys:
        if side.column(name).null_count:
            side = side.filter(pc.is_valid(side.column(name)))
    if not side.num_rows:
        return side
    sizes = (
        pa.Table.from_batches([side])
        .group_by(list(keys), use_threads=False)
        .aggregate([([], "count_all")])["count_all"]
    )
    if pc.max(sizes).as_py() <= spec.most:
        return side
    order = [(name, "ascending") for name in dict.fromkeys([*keys, *spec.order])]
    side = side.take(pc.sort_indices(side, sort_keys=order))
    begins = np.ones(side.num_rows, bool)
    begins[1:] = False
    for name in keys:
        codes = side.column(name).dictionary_encode().indices.to_numpy()
        begins[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(begins)
    number = np.arange(side.num_rows) - np.repeat(starts, np.diff(np.append(starts, side.num_rows)))
    return side.filter(pa.array(number < spec.most))


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


class NotRunnableError(EngineError):
    """An operator that is judged by the rules but can run nowhere."""

    code = "not-runnable"


def _batch(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """The rows as one batch."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def _like(given: Rows, made: pa.RecordBatch) -> Rows:
    return made if isinstance(given, pa.RecordBatch) else pa.Table.from_batches([made])


class RowKernel:
    """A stateless operator."""

    def __init__(self, operator: PipelineOperator) -> None:
        self.operator = operator
        self._names = operator.input_schema.names
        self._run = row_function(operator.spec, operator.output_schema)
        self._finite = finite_columns(operator.input_schema) if operator.index == 0 else None

    def run(self, rows: Rows) -> Rows:
        """Run the operator on rows."""
        batch = _batch(rows)
        if batch.schema.names != self._names:
            batch = batch.select(self._names)
        if self._finite is not None:
            batch = self._finite(batch)
        return _like(rows, self._run(batch))


class StreamJoinKernel:
    """A join with another stream: whole windows of records, matched with the other stream's of the same windows."""

    def __init__(self, operator: PipelineOperator) -> None:
        if not isinstance(operator.spec, StreamJoinSpec):
            raise TypeError(f"{operator.id} joins no stream")
        self.operator = operator
        self._spec = operator.spec

    @property
    def within_agent(self) -> bool:
        """Whether records of one agent alone match: both sides then have a column `AGENT`, or are of one agent."""
        return self._spec.within_agent

    @property
    def most(self) -> int:
        """Largest number of records of the other stream that one record matches."""
        return self._spec.most

    @property
    def side_schema(self) -> pa.Schema:
        """Schema of `side`, without the column of agents."""
        return side_schema(self._spec)

    def side(self, rows: Rows) -> Rows:
        """Records of the other stream in their windows."""
        return _like(rows, side_of(self._spec, _batch(rows)))

    def run(self, rows: Rows, side: Rows) -> Rows:
        """The records of `rows`, each as often as it matches; `side` holds whole windows of the other stream."""
        matches = join_records(self._spec, self.operator.output_schema, _batch(rows), _batch(side))
        return _like(rows, _batch(matches))


class AggregateKernel:
    """An aggregate: partial states that merge in any order, and finished rows.

    `merge(partials)` of any cut of the records into batches is the partial of all of them: whole numbers and sketches
    exactly, sums of floats to rounding.
    """

    def __init__(self, operator: PipelineOperator) -> None:
        if not isinstance(operator.spec, AggregateSpec):
            raise TypeError(f"{operator.id} is no aggregate")
        self.operator = operator
        self._spec = operator.spec
        self._groups = Groups(operator.spec, operator.columns_in, operator.columns_out)
        self._finite = finite_columns(operator.input_schema) if operator.index == 0 else None
        self._names = operator.input_schema.names

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that tell groups apart."""
        return tuple(self._spec.keys)

    @property
    def partial_schema(self) -> pa.Schema:
        """Keys, then states."""
        return self._groups.partial_schema

    def partial(self, rows: Rows) -> Rows:
        """The states of the groups of these rows."""
        batch = _batch(rows)
        if self._finite is not None:
            batch = self._finite(batch.select(self._names))
        return _like(rows, self._groups.partial(batch))

    def merge(self, partials: Sequence[Rows]) -> Rows:
        """The states of all partials together."""
        if not partials:
            raise ValueError("nothing to merge; allowed: at least one partial")
        return _like(partials[0], self._groups.merge([self._partial(partial) for partial in partials]))

    def partial_fault(self, partial: Rows) -> str:
        """Reason that a partial of the right schema cannot be merged; empty if it can."""
        batch = self._partial(partial)
        if WINDOW_START in batch.schema.names and batch.column(WINDOW_START).null_count:
            return f"{WINDOW_START} is null; allowed: the beginning of a window"
        for state in self._spec.states:
            column = batch.column(state.name)
            if state.kind in ("rows", "count") and not _are_counts(column):
                return f"{state.name} has values that count nothing; allowed: 0 to {MAX_COUNT}"
            if state.kind == "sketch" and not is_sound(column):
                return f"{state.name} is no sketch; allowed: buckets with counts of 1 to {MAX_COUNT}"
        return ""

    def finalise(self, partial: Rows) -> Rows:
        """The finished rows of a partial, in the order of their keys."""
        return _like(partial, self._groups.finalise(self._partial(partial)))

    def _partial(self, rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """A partial as it is merged; others name the fields of a sketch's list otherwise, or order columns so."""
        batch = _batch(rows)
        if batch.schema.equals(self.partial_schema):
            return batch
        return batch.select(self.partial_schema.names).cast(self.partial_schema)


def _are_counts(column: pa.Array) -> bool:
    if column.null_count or not len(column):
        return not column.null_count
    bounds = pc.min_max(column).as_py()
    return bool(bounds["min"] >= 0 and bounds["max"] <= MAX_COUNT)


Kernel = RowKernel | AggregateKernel | StreamJoinKernel


def kernel(pipeline: Pipeline, k: int) -> Kernel:
    """The operator `k` of a pipeline.

    Raises
    ------
    NotRunnableError
        The operator can run nowhere; the message says why.
    """
    operator = pipeline.operators[k]
    if (reason := operator.not_runnable) is not None:
        raise NotRunnableError(reason, [Fault(f"operators[{k}]", reason)])
    if isinstance(operator.spec, StreamJoinSpec):
        return StreamJoinKernel(operator)
    return AggregateKernel(operator) if operator.stateful else RowKernel(operator)


def row_kernel(pipeline: Pipeline, k: int) -> RowKernel:
    """The stateless operator `k`."""
    made = kernel(pipeline, k)
    if not isinstance(made, RowKernel):
        raise TypeError(f"operator {k} ({made.operator.id}) keeps a state")
    return made


def stream_join_kernel(pipeline: Pipeline) -> StreamJoinKernel:
    """The join with another stream."""
    if pipeline.stream_join is None:
        raise TypeError("the pipeline joins no stream")
    return StreamJoinKernel(pipeline.operators[pipeline.stream_join])


def aggregate_kernel(pipeline: Pipeline) -> AggregateKernel:
    """The first aggregate."""
    if pipeline.aggregate is None:
        raise TypeError("the pipeline has no aggregate")
    made = kernel(pipeline, pipeline.aggregate)
    assert isinstance(made, AggregateKernel)
    return made


def partial_schema(pipeline: Pipeline) -> pa.Schema:
    """The partials of the first aggregate as Arrow."""
    return aggregate_kernel(pipeline).partial_schema


def _through(pipeline: Pipeline, rows: Rows, first: int, other: Rows | None = None) -> Rows:
    for k in range(first, len(pipeline.operators)):
        operator_kernel = kernel(pipeline, k)
        if isinstance(operator_kernel, StreamJoinKernel):
            assert other is not None, f"records of the stream {pipeline.streams[-1]!r} are missing"
            rows = operator_kernel.run(rows, operator_kernel.side(other))
        else:
            rows = (
                operator_kernel.run(rows)
                if isinstance(operator_kernel, RowKernel)
                else operator_kernel.finalise(operator_kernel.partial(rows))
            )
    return rows


def rest(pipeline: Pipeline, rows: Rows) -> Rows:
    """The operators after the first aggregate, run on the finished rows of closed windows."""
    if pipeline.aggregate is None:
        raise TypeError("the pipeline has no aggregate")
    return _through(pipeline, rows, pipeline.aggregate + 1)


def whole(pipeline: Pipeline, rows: Rows, other: Rows | None = None) -> Rows:
    """The query run whole over all records: what every way of running it must give.

    `other` has the records of the stream that is joined; what matches within agents alone is given for one agent.
    """
    return _through(pipeline, rows, 0, other)


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
