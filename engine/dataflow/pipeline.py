"""Pipelines of executable operators, read from a document, checked and typed."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from engine.dataflow.documents import KINDS, PipelineOperatorRecord, PipelineRecord, read_table
from engine.dataflow.expressions.nodes import Node, canonical
from engine.dataflow.operators import (
    AggregateSpec,
    JudgedOperator,
    OperationScope,
    SourceRule,
    Spec,
    StaticTable,
    StreamJoinSpec,
    WindowSpec,
    judge_operators,
    not_runnable,
)
from engine.dataflow.types import Columns, PipelineDocument, Type, arrow_schema
from engine.errors import DocumentError, Fault, join_path, value_words
from engine.records import BAD

__all__ = ["Pipeline", "PipelineOperator", "PipelineSource"]


@dataclass(frozen=True)
class PipelineSource:
    """The stream of a pipeline: records with an event time."""

    id: str
    time: str
    columns: Columns

    @property
    def schema(self) -> pa.Schema:
        """The records as Arrow; columns in the order of the alphabet."""
        return arrow_schema(self.columns)


@dataclass(frozen=True)
class PipelineOperator:
    """One operator. `kind` is the operation; `fingerprint` is the same wherever and whenever the same work is done."""

    id: str
    kind: str
    spec: Spec
    index: int
    columns_in: Columns
    columns_out: Columns
    copies: int
    fingerprint: str
    input_schema: pa.Schema = field(repr=False)
    output_schema: pa.Schema = field(repr=False)

    @property
    def stateful(self) -> bool:
        """Whether its output depends on more than one record."""
        return isinstance(self.spec, (AggregateSpec, StreamJoinSpec))

    @property
    def not_runnable(self) -> str | None:
        """Reason that it can run nowhere, or None."""
        return not_runnable(JudgedOperator(self.id, self.spec, self.copies))


@dataclass(frozen=True)
class Pipeline:
    """A linear sequence of operators over one source, of which one may join another stream.

    `aggregate` is the index of the first aggregate, `window` the spec of the window operator; None where there is none.
    `source_operators` (M) counts the leading operators that may run at a source. `not_live` says why the pipeline
    cannot be a live query; it is empty for one that can.
    """

    document: PipelineDocument = field(repr=False)
    digest: str
    source: PipelineSource
    tables: Mapping[str, StaticTable]
    operators: tuple[PipelineOperator, ...]
    rules: tuple[SourceRule, ...]
    not_live: tuple[Fault, ...]

    @property
    def aggregate(self) -> int | None:
        """Index of the first aggregate."""
        return next((operator.index for operator in self.operators if isinstance(operator.spec, AggregateSpec)), None)

    @property
    def window(self) -> WindowSpec | None:
        """The window."""
        return next((operator.spec for operator in self.operators if isinstance(operator.spec, WindowSpec)), None)

    @property
    def stream_join(self) -> int | None:
        """Index of the join with another stream."""
        return next((operator.index for operator in self.operators if isinstance(operator.spec, StreamJoinSpec)), None)

    @property
    def other_stream(self) -> str | None:
        """Id of the stream that is joined, which may be the source's own."""
        return next(
            (operator.spec.stream for operator in self.operators if isinstance(operator.spec, StreamJoinSpec)), None
        )

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Ids of the streams that it reads, each once."""
        return tuple(dict.fromkeys(name for name in (self.source.id, self.other_stream) if name is not None))

    @property
    def other_entry(self) -> int | None:
        """Entry of the joined stream's records: a number behind those of all operators."""
        return None if self.stream_join is None else len(self.operators)

    def entry_schema(self, entry: int) -> pa.Schema | None:
        """Columns of records that enter at an operator, or of the joined stream's; None where none may.

        What comes behind a join of streams, as behind the aggregate, hangs on more than one record.
        """
        if entry == self.other_entry:
            return self.other_schema
        stateful = next((operator.index for operator in self.operators if operator.stateful), len(self.operators) - 1)
        return self.operators[entry].input_schema if 0 <= entry <= stateful else None

    @property
    def other_schema(self) -> pa.Schema:
        """Records of the joined stream: its needed columns, in the order of the alphabet."""
        spec = next(operator.spec for operator in self.operators if isinstance(operator.spec, StreamJoinSpec))
        return arrow_schema(dict(spec.columns))

    @property
    def source_operators(self) -> int:
        """M: how many leading operators a source may run."""
        return next((i for i, rule in enumerate(self.rules) if not rule.allowed), len(self.rules))

    @property
    def output_schema(self) -> pa.Schema:
        """The rows that the last operator puts out."""
        return self.operators[-1].output_schema

    @classmethod
    def parse(cls, document: Any) -> Pipeline:
        """The pipeline that a document describes.

        Raises
        ------
        DocumentError
            It describes none; every fault found is listed, each with its path.
        """
        faults: list[Fault] = []
        record = PipelineRecord.read_parts(document, "", "", faults)
        if record is BAD:
            raise DocumentError(faults, "pipeline document")
        source = _source(record.source, faults)
        given = {} if record.tables is BAD else record.tables
        tables = {
            name: None if table is BAD else read_table(name, table, f"tables.{name}", faults)
            for name, table in given.items()
        }
        operators = _operators(record.operators, source, tables, faults)
        if faults or source is None:
            raise DocumentError(faults, "pipeline document")
        judged = [JudgedOperator(operator.id, operator.spec, operator.copies) for operator in operators]
        known = {name: table for name, table in tables.items() if table is not None}
        not_live = tuple(_not_live(operators, judged))
        frozen: Any = copy.deepcopy(dict(document))
        return cls(frozen, _digest(document), source, known, tuple(operators), judge_operators(judged), not_live)


def _digest(value: Any) -> str:
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The value with 10.0 as 10: databases and JSON writers change one into the other."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _source(kept: Any, faults: list[Fault]) -> PipelineSource | None:
    if kept is BAD:
        return None
    columns = {name: Type(kept.columns[name]) for name in sorted(kept.columns)}
    kind = columns.get(kept.time)
    if kind != Type.TIMESTAMP:
        is_what = "no column" if kind is None else f"a {kind}"
        allowed = (
            ", ".join(name for name, type_ in columns.items() if type_ == Type.TIMESTAMP)
            or "a column of type timestamp"
        )
        faults.append(Fault("source.time", f"time is {value_words(kept.time)}, {is_what}; allowed: {allowed}"))
    if len({name.lower() for name in columns}) < len(columns):
        faults.append(Fault("source.columns", "columns differ in case alone; allowed: other names"))
    if "window_start" in columns:
        faults.append(Fault("source.columns.window_start", "window_start is a window's; allowed: another name"))
    return PipelineSource(kept.id, kept.time, columns)


def _operators(
    given: Any, source: PipelineSource | None, tables: Mapping[str, StaticTable | None], faults: list[Fault]
) -> list[PipelineOperator]:
    """The operators up to the first whose output is unknown; all are checked as far as that goes."""
    if given is BAD:
        return []
    _check_ids(given, faults)
    columns: Columns | None = None if source is None else source.columns
    made: list[PipelineOperator] = []
    prefix = "" if source is None else _digest([source.id, source.time, sorted(source.columns.items())])
    for index, kept in enumerate(given):
        path = join_path("operators", index)
        _check_kind(kept, path, faults)
        if kept is BAD or kept.expression is BAD or columns is None or source is None:
            columns = None
            continue
        operator = _operator(kept, index, _scope(columns, source, tables, made), prefix, faults)
        if operator is not None:
            made.append(operator)
            columns, prefix = operator.columns_out, operator.fingerprint
        elif kept.expression.OP != "filter":  # a filter changes no column, so what follows can still be checked
            columns = None
    return made


def _scope(
    columns: Columns,
    source: PipelineSource,
    tables: Mapping[str, StaticTable | None],
    before: list[PipelineOperator],
) -> OperationScope:
    """Scope of an operator behind others."""
    window = next((operator.spec for operator in before if isinstance(operator.spec, WindowSpec)), None)
    aggregate = next((operator.id for operator in before if isinstance(operator.spec, AggregateSpec)), None)
    joined = next((operator.id for operator in before if isinstance(operator.spec, StreamJoinSpec)), None)
    return OperationScope(columns, source.time, tables, window, aggregate, joined)


def _operator(
    kept: PipelineOperatorRecord, index: int, scope: OperationScope, prefix: str, faults: list[Fault]
) -> PipelineOperator | None:
    from engine.dataflow.binder import bind  # sqlglot is loaded when a pipeline is read, not with the package

    path = join_path(join_path("operators", index), "expression")
    bound = bind(kept.expression, scope, path, faults)
    if bound is None or kept.id is BAD or kept.copies is BAD:
        return None
    spec, after = bound
    fingerprint = _digest([prefix, kept.expression.OP, _described(spec)])
    schemas = arrow_schema(scope.columns), arrow_schema(after)
    return PipelineOperator(
        kept.id, kept.expression.OP, spec, index, scope.columns, after, kept.copies, fingerprint, *schemas
    )


def _described(value: Any) -> Any:
    """A spec as JSON that says what is done, not how it was spelled."""
    if isinstance(value, Node):
        return canonical(value)
    if isinstance(value, StaticTable):
        return value.digest
    if isinstance(value, pa.DataType):
        return str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: _described(getattr(value, name)) for name in value.__dataclass_fields__}
    return [_described(item) for item in value] if isinstance(value, (list, tuple)) else value


def _check_ids(given: list[Any], faults: list[Fault]) -> None:
    seen: dict[str, int] = {}
    for index, kept in enumerate(given):
        if kept is BAD or kept.id is BAD:
            continue
        first = seen.setdefault(kept.id, index)
        if first != index:
            text = f"id is {kept.id!r}, as of operators[{first}]; allowed: an id of its own"
            faults.append(Fault(f"operators[{index}].id", text))


def _check_kind(kept: Any, path: str, faults: list[Fault]) -> None:
    if kept is BAD or kept.expression is BAD or kept.kind in (None, BAD):
        return
    op = kept.expression.OP
    if kept.kind not in KINDS[op]:
        text = f"kind is {kept.kind!r}, but op is {op!r}; allowed: {', '.join(KINDS[op])}"
        faults.append(Fault(join_path(path, "kind"), text))


def _not_live(operators: list[PipelineOperator], judged: list[JudgedOperator]) -> list[Fault]:
    """Faults of a pipeline that cannot run live: results are those of closed windows."""
    faults = []
    for index, operator in enumerate(judged):
        if reason := not_runnable(operator):
            faults.append(Fault(f"operators[{index}]", reason))
    kinds = [operator.kind for operator in operators]
    first = kinds.index("aggregate") if "aggregate" in kinds else None
    if first is None:
        faults.append(Fault("operators", "there is no aggregate; allowed: a window and an aggregate after it"))
    elif "window" not in kinds[:first]:
        text = f"{operators[first].id} has no window before it; allowed: a window, then the aggregate"
        faults.append(Fault(f"operators[{first}]", text))
    return faults
