"""Operators of a pipeline, typed: a record for each operation, what it may refer to, and where it may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from engine.dataflow.expressions.nodes import Node
from engine.dataflow.types import WINDOW_START, Columns, Type
from engine.errors import Fault, join_path, suggestion

__all__ = [
    "AggregateSpec",
    "AggregateState",
    "BucketsSpec",
    "FilterSpec",
    "JoinSpec",
    "JudgedOperator",
    "MapSpec",
    "OperationScope",
    "Output",
    "ParseSpec",
    "ProjectSpec",
    "SourceRule",
    "Spec",
    "StaticTable",
    "StreamJoinSpec",
    "WindowSpec",
    "check_free",
    "judge_operators",
    "not_runnable",
    "type_of",
]

#: Why a join of two streams runs at no source, by whether records of one agent alone match.
_WHY_NOT = {
    False: "records that match may be at other sources",
    True: "both streams are the agent's own, but what matches is known at the end of a window, and no agent holds "
    "records back so long",
}


@dataclass(frozen=True)
class StaticTable:
    """A table that a join looks records up in."""

    name: str
    columns: Columns
    data: pa.Table = field(repr=False, compare=False)
    digest: str


@dataclass(frozen=True)
class WindowSpec:
    """Windows [k slide, k slide + size) for whole k, counted from 1970. A record without time is in none."""

    time: str
    size_us: int
    slide_us: int

    @property
    def copies(self) -> int:
        """Number of windows that a record is in."""
        return self.size_us // self.slide_us


@dataclass(frozen=True)
class FilterSpec:
    """Keeps the records for which `where` is true, not those for which it is null."""

    where: Node


@dataclass(frozen=True)
class MapSpec:
    """Sets columns, all computed from the columns before; new ones stand last, in the order of the alphabet."""

    columns: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class ProjectSpec:
    """Keeps `kept` (window_start and time, where there are such) and `columns`, in this order."""

    kept: tuple[str, ...]
    columns: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class JoinSpec:
    """Looks `take` up in a static table whose keys are unique. `stream` names another stream: `StreamJoinSpec`.

    `on` and `take` pair columns of the records with columns of the table. Null equals nothing.
    """

    table: StaticTable | None
    stream: str | None
    on: tuple[tuple[str, str], ...]
    take: tuple[tuple[str, str], ...]
    inner: bool


@dataclass(frozen=True)
class StreamJoinSpec(JoinSpec):
    """Matches records of the same window by equal keys with those of another stream, of which `columns` are needed.

    `window` puts records of the other stream into windows by their own time. A record is repeated for each match, but
    for no more than `most`: those first by time, then by what is taken of them (nulls last). `within_agent`: only
    records of one agent match.
    """

    columns: tuple[tuple[str, Type], ...]
    window: WindowSpec
    most: int
    within_agent: bool

    @property
    def order(self) -> tuple[str, ...]:
        """Columns of the other stream by which its records are first or last; those with equal values are alike."""
        return tuple(dict.fromkeys([self.window.time, *(theirs for _, theirs in self.take)]))


@dataclass(frozen=True)
class AggregateState:
    """A column of a partial aggregate.

    `kind`: rows (counts records), count (counts values), sum, min, max, or sketch (`engine.dataflow.sketch`).
    """

    name: str
    kind: str
    argument: Node | None
    type: pa.DataType


@dataclass(frozen=True)
class Output:
    """A column of a finished aggregate, computed from the states named."""

    name: str
    function: str
    states: tuple[str, ...]
    share: float | None
    type: Type


@dataclass(frozen=True)
class AggregateSpec:
    """Groups by `keys` (window_start first, where there is one) and keeps `states` of every group.

    `exact` names the outputs that no small state could be kept for; such an aggregate is not run.
    """

    keys: tuple[str, ...]
    states: tuple[AggregateState, ...]
    outputs: tuple[Output, ...]
    exact: tuple[str, ...]


@dataclass(frozen=True)
class ParseSpec:
    """Reads a text column into typed ones and drops it.

    `patterns` (regex and kv): for every column the portable pattern and the number of the group that holds its text;
    a record is faulty if none of the patterns is found. For regex all patterns are the same one.
    """

    column: str
    form: str
    patterns: tuple[tuple[str, int], ...]
    into: tuple[tuple[str, Type], ...]
    drop_faulty: bool


@dataclass(frozen=True)
class BucketsSpec:
    """Numbers buckets: 0 below the first bound, i from bounds[i - 1] on and below bounds[i], n from the last on."""

    column: str
    bounds: tuple[float, ...]
    into: str


Spec = WindowSpec | FilterSpec | MapSpec | ProjectSpec | JoinSpec | AggregateSpec | ParseSpec | BucketsSpec


@dataclass(frozen=True)
class OperationScope:
    """Scope of an operation: columns, tables and streams that it may refer to."""

    columns: Columns
    time: str
    tables: Mapping[str, StaticTable | None]  # None for a table that is faulty itself
    window: WindowSpec | None = None
    aggregate: str | None = None  #: id of the first aggregate
    stream_join: str | None = None  #: id of a join with another stream

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that a project keeps unasked."""
        return tuple(name for name in (WINDOW_START, self.time) if name in self.columns)


def type_of(name: str, columns: Columns, path: str, key: str, faults: list[Fault]) -> Type | None:
    """The type of a column, or None after noting that there is none of the name."""
    kind = columns.get(name)
    if kind is None:
        known = list(columns)
        text = f"{key} is {name!r}; allowed: {', '.join(known)}{suggestion(name, known)}"
        faults.append(Fault(join_path(path, key), text))
    return kind


def check_free(name: str, scope: OperationScope, path: str, faults: list[Fault]) -> None:
    """An operation may neither set the window nor the event time: watermarks are told of both."""
    if name in (WINDOW_START, scope.time):
        faults.append(Fault(join_path(path, name), f"{name} is set; allowed: any column but window_start and the time"))


@dataclass(frozen=True)
class SourceRule:
    """Ruling on an operator at a source: allowed, or the `number` of the rule and the `reason`.

    `number` is None for an operator that no rule forbids but that comes after one that must not run there.
    """

    allowed: bool
    number: int | None
    reason: str


@dataclass(frozen=True)
class JudgedOperator:
    """Operator as the rules see it."""

    id: str
    spec: Spec
    copies: int


def judge_operators(operators: Sequence[JudgedOperator]) -> tuple[SourceRule, ...]:
    """The rules on every operator of a pipeline, in order."""
    rules: list[SourceRule] = []
    stateful: str | None = None
    barred: str | None = None
    for operator in operators:
        rule = _own(operator, stateful)
        if rule.allowed and barred is not None:
            reason = f"{operator.id} comes after {barred}, which must not run at a source"
            rule = SourceRule(False, None, reason)
        rules.append(rule)
        if isinstance(operator.spec, AggregateSpec):
            stateful = stateful or operator.id
        if not rule.allowed:
            barred = barred or operator.id
    return tuple(rules)


def _own(operator: JudgedOperator, stateful: str | None) -> SourceRule:
    spec = operator.spec
    if isinstance(spec, AggregateSpec) and spec.exact:
        return SourceRule(False, 1, _exact(operator.id, spec))
    if stateful is not None:
        reason = f"{operator.id} comes after {stateful}, whose groups are complete only where all sources meet"
        return SourceRule(False, 2, reason)
    if isinstance(spec, StreamJoinSpec):
        return SourceRule(False, 3, f"{operator.id} joins the stream {spec.stream!r}: {_WHY_NOT[spec.within_agent]}")
    if operator.copies > 1:
        reason = (
            f"{operator.id} has {operator.copies} physical copies: which one takes a record is not the source's to say"
        )
        return SourceRule(False, 4, reason)
    return SourceRule(True, None, f"{operator.id} needs nothing but the records of its source")


def _exact(name: str, spec: AggregateSpec) -> str:
    listed = ", ".join(f"{out.name} ({out.function})" for out in spec.outputs if out.name in spec.exact)
    advice = "quantile() keeps a small one" if not _distinct(spec) else "quantile() and counts by group keep small ones"
    return f"{name} computes {listed}, which no small state can be updated for record by record; {advice}"


def _distinct(spec: AggregateSpec) -> bool:
    return any(out.function == "count distinct" for out in spec.outputs if out.name in spec.exact)


def not_runnable(operator: JudgedOperator) -> str | None:
    """Reason that an operator can run nowhere, or None if it can run.

    What has no state that merges could not be taken up again after a restart, nor bounded, at the stream processor
    either.
    """
    spec = operator.spec
    if isinstance(spec, AggregateSpec) and spec.exact:
        return f"{_exact(operator.id, spec)}; allowed: aggregates whose state merges"
    return None
