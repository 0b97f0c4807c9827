"""Binder: operations of a document, checked against the columns that reach them and made into specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.documents import (
    AggregateOperation,
    BucketsOperation,
    FilterOperation,
    JoinOperation,
    MapOperation,
    ParseOperation,
    ProjectOperation,
    WindowOperation,
)
from engine.dataflow.expressions.functions import AGGREGATES
from engine.dataflow.expressions.nodes import Node
from engine.dataflow.expressions.patterns import PatternError, portable_pattern
from engine.dataflow.expressions.sql import AggregateCall, read_aggregate, read_expression
from engine.dataflow.operators import (
    AggregateSpec,
    AggregateState,
    BucketsSpec,
    FilterSpec,
    JoinSpec,
    MapSpec,
    OperationScope,
    Output,
    ParseSpec,
    ProjectSpec,
    Spec,
    StaticTable,
    StreamJoinSpec,
    WindowSpec,
    check_free,
    type_of,
)
from engine.dataflow.sketch import SKETCH_TYPE
from engine.dataflow.types import ARROW, NUMERIC, WINDOW_START, Columns, Type
from engine.errors import Fault, join_path, suggestion, value_words

__all__ = ["bind", "bind_aggregate", "parse_patterns"]

_FIELDS = {"regex": {"pattern"}, "kv": {"separator", "assign"}, "json": set[str]()}

_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "avg": ("sum", "count"),
    "count": ("count",),
    "max": ("max",),
    "min": ("min",),
    "quantile": ("sketch",),
    "sum": ("sum",),
}
_OF_STREAMS: Final = ("columns", "most", "time", "within")  # fields of a join with a stream alone
_DEFAULT_MATCHES: Final = 100
_MICRO: Final = 1_000_000


def parse_patterns(kept: ParseOperation, path: str, faults: list[Fault]) -> tuple[tuple[str, int], ...]:
    """Pattern and group of every column of `into`, in alphabetical order."""
    form = kept.form
    given = {"assign": kept.assign, "pattern": kept.pattern, "separator": kept.separator}
    faults.extend(
        Fault(join_path(path, name), f"{name} is {value_words(value)}; allowed: not with as {form!r}")
        for name, value in given.items()
        if value is not None and name not in _FIELDS[form]
    )
    names = sorted(kept.into)
    if form == "kv":
        return tuple((_pair(name, kept), 1) for name in names)
    return _groups(names, kept, path, faults) if form == "regex" else ()


def _pair(name: str, kept: ParseOperation) -> str:
    """A key at the beginning or behind a separator, and its value up to the next separator."""
    separator, assign = kept.separator or " ", kept.assign or "="
    sign = {"\t": r"\t", "|": r"\|"}.get(separator, separator)
    return portable_pattern(f"(?:^|{sign}){name}{assign}([^{sign}]*)").text


def _groups(names: list[str], kept: ParseOperation, path: str, faults: list[Fault]) -> tuple[tuple[str, int], ...]:
    at = join_path(path, "pattern")
    if kept.pattern is None:
        faults.append(Fault(at, "pattern is missing; a parse as 'regex' needs it"))
        return ()
    try:
        pattern, groups = portable_pattern(kept.pattern)
    except PatternError as error:
        faults.append(Fault(at, f"pattern is {value_words(kept.pattern)}: {error}"))
        return ()
    if missing := [name for name in names if name not in groups]:
        named = ", ".join(name for name in groups if name) or "none"
        pattern_words, also = value_words(kept.pattern), ", ".join(missing)
        faults.append(Fault(at, f"pattern is {pattern_words} with the named groups {named}; allowed: also {also}"))
        return ()
    return tuple((pattern, groups.index(name) + 1) for name in names)


def bind_aggregate(
    compute: Mapping[str, str], keys: Columns, columns: Columns, path: str, faults: list[Fault]
) -> tuple[AggregateSpec, dict[str, Type]] | None:
    """The spec of an aggregate over `columns`, grouped by `keys`, with the columns that it puts out."""
    calls: dict[str, AggregateCall] = {}
    for name in sorted(compute):
        at = join_path(join_path(path, "compute"), name)
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
        self.made: dict[str, AggregateState] = {}
        self._arguments: list[Node] = []

    def state(self, kind: str, argument: Node | None) -> str:
        if argument is None:
            name = "_rows"
        else:
            if argument not in self._arguments:
                self._arguments.append(argument)
            name = f"_{kind}_{self._arguments.index(argument)}"
        self.made.setdefault(name, AggregateState(name, kind, argument, _state_type(kind, argument)))
        return name


def _state_type(kind: str, argument: Node | None) -> pa.DataType:
    if kind == "sketch":
        return SKETCH_TYPE
    return pa.int64() if argument is None or kind == "count" else ARROW[argument.type]


#: Of the records and of the other side, by the former's names.
_Pairs = tuple[tuple[str, str], ...]
Bound = tuple[Spec, dict[str, Type]] | None


def bind(kept: Any, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    """The spec and the columns after the operation, or None after noting why there are none."""
    if not kept.is_whole:
        return None
    before = len(faults)
    bound = _BINDERS[kept.OP](kept, scope, path, faults)
    if bound is not None:
        _check_names(bound[1], path, faults)
    return bound if len(faults) == before else None


def _check_names(columns: Columns, path: str, faults: list[Fault]) -> None:
    seen: dict[str, str] = {}
    for name in columns:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            faults.append(Fault(path, f"columns {other!r} and {name!r} differ in case alone; allowed: other names"))


def _window(kept: WindowOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    size_us = round(kept.size_s * _MICRO)
    slide_us = round((kept.slide_s or kept.size_s) * _MICRO)
    if size_us % slide_us or size_us // slide_us > 1_000:
        allowed = f"size_s ({kept.size_s:g}) divided by a whole number from 1 to 1000"
        faults.append(Fault(join_path(path, "slide_s"), f"slide_s is {kept.slide_s:g}; allowed: {allowed}"))
    if WINDOW_START in scope.columns:
        faults.append(Fault(path, "op is 'window', but records have window_start already; allowed: one window"))
    if scope.time not in scope.columns:
        faults.append(
            Fault(path, f"op is 'window', but the time {scope.time!r} is gone; allowed: before the aggregate")
        )
    return WindowSpec(scope.time, size_us, slide_us), {**scope.columns, WINDOW_START: Type.TIMESTAMP}


def _filter(kept: FilterOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    where = read_expression(kept.where, scope.columns, join_path(path, "where"), "where", faults)
    if where is None:
        return None
    if where.type != Type.BOOL:
        text = f"where is {value_words(kept.where)}, a {where.type}; allowed: a condition"
        faults.append(Fault(join_path(path, "where"), text))
    return FilterSpec(where), dict(scope.columns)


def _expressions(
    given: Mapping[str, str], scope: OperationScope, path: str, faults: list[Fault]
) -> tuple[tuple[str, Node], ...] | None:
    """Names in the order of the alphabet: an object has none of its own, and databases change it."""
    read = [
        (name, read_expression(given[name], scope.columns, join_path(path, name), name, faults))
        for name in sorted(given)
    ]
    made = tuple((name, node) for name, node in read if node is not None)
    return made if len(made) == len(read) else None


def _map(kept: MapOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    at = join_path(path, "set")
    for name in kept.set:
        check_free(name, scope, at, faults)
    made = _expressions(kept.set, scope, at, faults)
    if made is None:
        return None
    return MapSpec(made), {**scope.columns, **{name: node.type for name, node in made}}


def _project(kept: ProjectOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    at = join_path(path, "columns")
    given = {name: text for name, text in kept.columns.items() if not (name in scope.kept and text == name)}
    for name in given:
        check_free(name, scope, at, faults)
    made = _expressions(given, scope, at, faults)
    if made is None:
        return None
    columns = {name: scope.columns[name] for name in scope.kept}
    return ProjectSpec(scope.kept, made), columns | {name: node.type for name, node in made}


def _join(kept: JoinOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    if (kept.table is None) == (kept.stream is None):
        faults.append(Fault(path, "a join has a table or a stream; allowed: exactly one of both"))
        return None
    if kept.stream is not None:
        return _stream_join(kept, scope, path, faults)
    faults.extend(
        Fault(join_path(path, name), f"{name} is given; allowed: for a join with a stream")
        for name in _OF_STREAMS
        if getattr(kept, name) is not None
    )
    table = _table(kept.table, scope, path, faults)
    if table is None:
        return None
    on, take, taken = _join_pairs(kept, table.columns, scope, path, faults)
    _unique(table, [theirs for _, theirs in on if theirs in table.columns], path, faults)
    return JoinSpec(table, None, on, take, kept.how == "inner"), {**scope.columns, **taken}


def _join_pairs(
    kept: JoinOperation, columns: Columns, scope: OperationScope, path: str, faults: list[Fault]
) -> tuple[_Pairs, _Pairs, dict[str, Type]]:
    """_Pairs of `on` and of `take`, and the columns that the latter makes."""
    on = tuple(sorted(kept.on.items()))
    take = tuple(sorted(kept.take.items()))
    for mine, theirs in on:
        pair = (type_of(mine, scope.columns, path, "on", faults), type_of(theirs, columns, path, "on", faults))
        if None not in pair and (pair[0] != pair[1] or pair[0] == Type.FLOAT64):
            text = f"on pairs {mine!r} ({pair[0]}) with {theirs!r} ({pair[1]}); allowed: one type, and not float64"
            faults.append(Fault(join_path(path, "on"), text))
    taken: dict[str, Type] = {}
    for name, theirs in take:
        check_free(name, scope, join_path(path, "take"), faults)
        taken[name] = type_of(theirs, columns, path, "take", faults) or Type.STRING
    return on, take, taken


def _stream_join(
    kept: JoinOperation, scope: OperationScope, path: str, faults: list[Fault]
) -> tuple[StreamJoinSpec, dict[str, Type]] | None:
    """The spec of a join with another stream, and the columns after it."""
    _check_place(scope, path, faults)
    columns = _stream_columns(kept, path, faults)
    if columns is None or kept.stream is None or kept.time is None or scope.window is None:
        return None
    on, take, taken = _join_pairs(kept, columns, scope, path, faults)
    needed = sorted({kept.time, *(theirs for _, theirs in (*on, *take))} & columns.keys())
    spec = StreamJoinSpec(
        table=None,
        stream=kept.stream,
        on=on,
        take=take,
        inner=kept.how == "inner",
        columns=tuple((name, columns[name]) for name in needed),
        window=WindowSpec(kept.time, scope.window.size_us, scope.window.slide_us),
        most=kept.most or _DEFAULT_MATCHES,
        within_agent=kept.within == "agent",
    )
    return spec, {**scope.columns, **taken}


def _check_place(scope: OperationScope, path: str, faults: list[Fault]) -> None:
    """Streams have no end: what matches is sought in one window, and once."""
    what = "op is 'join' with a stream"
    if scope.aggregate is not None:
        text = f"{what}, after the aggregate {scope.aggregate!r}; allowed: behind the window, before the aggregate"
        faults.append(Fault(path, text))
    elif scope.window is None:
        faults.append(Fault(path, f"{what}, but there is no window before it; allowed: a window, then the join"))
    if scope.stream_join is not None:
        text = f"{what}, as is {scope.stream_join!r} before it; allowed: one stream besides the source"
        faults.append(Fault(path, text))


def _stream_columns(kept: JoinOperation, path: str, faults: list[Fault]) -> Columns | None:
    """Columns of the other stream, with its time among them."""
    missing = [name for name in ("time", "columns") if getattr(kept, name) is None]
    faults.extend(Fault(join_path(path, name), f"{name} is missing; a join with a stream needs it") for name in missing)
    if kept.time is None or kept.columns is None:
        return None
    columns = {name: Type(kind) for name, kind in kept.columns.items()}
    if WINDOW_START in columns:
        faults.append(
            Fault(join_path(join_path(path, "columns"), WINDOW_START), "window_start is a window's; allowed: another")
        )
    kind = columns.get(kept.time)
    if kind != Type.TIMESTAMP:
        listed = ", ".join(name for name, type_ in columns.items() if type_ == Type.TIMESTAMP)
        is_what = "no column" if kind is None else f"a {kind}"
        text = f"time is {kept.time!r}, {is_what}; allowed: {listed or 'a column of type timestamp'}"
        faults.append(Fault(join_path(path, "time"), text))
    return columns


def _table(name: str | None, scope: OperationScope, path: str, faults: list[Fault]) -> StaticTable | None:
    if name is None or name not in scope.tables:
        known = ", ".join(scope.tables) or "none: tables is empty"
        text = f"table is {name!r}; allowed: {known}{suggestion(name or '', list(scope.tables))}"
        faults.append(Fault(join_path(path, "table"), text))
        return None
    return scope.tables[name]


def _unique(table: StaticTable, keys: list[str], path: str, faults: list[Fault]) -> None:
    """A key that stands twice would multiply records, and the order of the copies would differ between engines."""
    if not keys:
        return
    counted = table.data.group_by(keys, use_threads=False).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))
    if twice.num_rows:
        row = {name: twice[name][0].as_py() for name in keys}
        text = (
            f"table is {table.name!r}, where {row} stands {twice['count_all'][0]} times; allowed: keys that are unique"
        )
        faults.append(Fault(join_path(path, "table"), text))


def _parse(kept: ParseOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    kind = type_of(kept.column, scope.columns, path, "column", faults)
    if kind not in (None, Type.STRING):
        text = f"column is {kept.column!r}, a {kind}; allowed: a string"
        faults.append(Fault(join_path(path, "column"), text))
    into = tuple((name, Type(kept.into[name])) for name in sorted(kept.into))
    for name, _ in into:
        check_free(name, scope, join_path(path, "into"), faults)
    patterns = parse_patterns(kept, path, faults)
    columns = {name: type_ for name, type_ in scope.columns.items() if name != kept.column}
    spec = ParseSpec(kept.column, kept.form, patterns, into, kept.on_error == "drop")
    return spec, columns | dict(into)


def _buckets(kept: BucketsOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    kind = type_of(kept.column, scope.columns, path, "column", faults)
    if kind is not None and kind not in NUMERIC:
        text = f"column is {kept.column!r}, a {kind}; allowed: int64 or float64"
        faults.append(Fault(join_path(path, "column"), text))
    check_free(kept.into, scope, path, faults)
    bounds = _bounds(kept, path, faults)
    return BucketsSpec(kept.column, bounds, kept.into), {**scope.columns, kept.into: Type.INT64}


def _bounds(kept: BucketsOperation, path: str, faults: list[Fault]) -> tuple[float, ...]:
    start, to, width = kept.start, kept.to, kept.width
    even = [value for value in (start, to, width) if value is not None]
    if (kept.bounds is not None) == bool(even) or len(even) not in (0, 3):
        faults.append(Fault(path, "buckets have bounds, or from, to and width; allowed: one of both"))
        return ()
    if kept.bounds is not None:
        bounds = tuple(kept.bounds)
        if any(not low < high for low, high in pairwise(bounds)):
            faults.append(
                Fault(join_path(path, "bounds"), "bounds do not increase; allowed: each above the one before")
            )
        return bounds
    assert start is not None and to is not None and width is not None
    count = (to - start) / width
    if not 1 <= round(count) < 1_000 or abs(count - round(count)) > 1e-9:
        text = f"width is {width:g}; allowed: from ({start:g}) to to ({to:g}) in 1 to 999 steps"
        faults.append(Fault(join_path(path, "width"), text))
        return ()
    return tuple(start + i * width for i in range(round(count) + 1))


def _aggregate(kept: AggregateOperation, scope: OperationScope, path: str, faults: list[Fault]) -> Bound:
    keys = [WINDOW_START] * (WINDOW_START in scope.columns)
    for name in kept.by:
        kind = type_of(name, scope.columns, path, "by", faults)
        if kind == Type.FLOAT64:
            text = (
                f"by names {name!r}, a float64; allowed: int64, string, bool, timestamp (round() or buckets make one)"
            )
            faults.append(Fault(join_path(path, "by"), text))
        if name in keys:
            faults.append(Fault(join_path(path, "by"), f"by names {name!r} twice; allowed: once, window_start unasked"))
        else:
            keys.append(name)
    if not keys:
        faults.append(
            Fault(join_path(path, "by"), "by is empty; allowed: at least one column where there is no window")
        )
    known = {name: scope.columns[name] for name in keys if name in scope.columns}
    return bind_aggregate(kept.compute, known, scope.columns, path, faults)


_BINDERS: Final[Mapping[str, Callable[[Any, OperationScope, str, list[Fault]], Bound]]] = {
    "window": _window,
    "filter": _filter,
    "map": _map,
    "project": _project,
    "join": _join,
    "aggregate": _aggregate,
    "parse": _parse,
    "buckets": _buckets,
}
