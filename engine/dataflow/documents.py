"""Records of a pipeline document, and its static tables read into Arrow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from engine.dataflow.operators import StaticTable
from engine.dataflow.types import ARROW, Type, arrow_schema, timestamp_us
from engine.errors import Fault, join_path, key_name, value_words
from engine.kinds import Anything, Enumeration, FieldKind, ListOf, Number, String
from engine.records import BAD, ItemCount, Record, RecordOf, Words

__all__ = [
    "KINDS",
    "NAME_PATTERN",
    "OPERATIONS",
    "AggregateOperation",
    "BucketsOperation",
    "FilterOperation",
    "JoinOperation",
    "MapOperation",
    "ParseOperation",
    "PipelineOperatorRecord",
    "PipelineRecord",
    "PipelineSourceRecord",
    "ProjectOperation",
    "StaticTableRecord",
    "WindowOperation",
    "read_table",
]

NAME_PATTERN: Final = r"[A-Za-z][A-Za-z0-9_]{0,62}"
MAX_OPERATORS = 32
MAX_TABLE_ROWS = 100_000
MAX_BOUNDS = 1_000
MAX_MATCHES = 1_000

_NAME = String(NAME_PATTERN, "a letter, then letters, digits and _, at most 63 in all")
_TYPE = Enumeration(tuple(kind.value for kind in Type))

#: The kinds that an operator with an expression may have in a deployment document; the first says what it is best.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "window": ("window",),
    "filter": ("filter",),
    "map": ("map", "other"),
    "project": ("project", "map", "other"),
    "join": ("join",),
    "aggregate": ("aggregate",),
    "parse": ("parse", "map", "filter", "other"),
    "buckets": ("buckets", "map", "other"),
}
_LISTED_FAULTS = 10


@dataclass(frozen=True)
class Named(FieldKind):
    """An object whose keys are names of columns."""

    item: FieldKind

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join_path(parent, key)
        if not isinstance(value, Mapping):
            faults.append(Fault(path, f"{key_name(key)} is {value_words(value)}; allowed: an object"))
            return BAD
        for name in value:
            _NAME.read(name, path, str(name), faults)
        if not value:
            faults.append(Fault(path, f"{key_name(key)} is empty; allowed: at least one column"))
        return {name: self.item.read(item, path, name, faults) for name, item in value.items()}

    def schema(self) -> JsonSchemaValue:
        return {"type": "object", "additionalProperties": self.item.schema()}


_Name = Annotated[str, _NAME]
_Sql = Annotated[str, String()]
_Names = Annotated[Mapping[str, str], Named(_NAME)]
_Expressions = Annotated[Mapping[str, str], Named(String())]
_Types = Annotated[Mapping[str, str], Named(_TYPE)]
_Seconds = Annotated[float, Number(least=0.001, most=31_536_000)]


@dataclass(frozen=True, kw_only=True)
class _Operation(Record):
    OP: ClassVar[str]
    JUDGES_PARTS: ClassVar[bool] = True

    @property
    def is_whole(self) -> bool:
        """Whether every part of it could be read."""
        return not any(map(_has_fault, vars(self).values()))


def _has_fault(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(item is BAD for item in value.values())
    return value is BAD or (isinstance(value, tuple) and any(item is BAD for item in value))


@dataclass(frozen=True, kw_only=True)
class WindowOperation(_Operation):
    """Windows of event time."""

    OP: ClassVar[str] = "window"
    TITLE: ClassVar[str] = "a window"

    size_s: _Seconds
    slide_s: Annotated[_Seconds | None, Words("a whole part of size_s; without it windows do not overlap")] = None


@dataclass(frozen=True, kw_only=True)
class FilterOperation(_Operation):
    """Records that meet a condition."""

    OP: ClassVar[str] = "filter"
    TITLE: ClassVar[str] = "a filter"

    where: _Sql


@dataclass(frozen=True, kw_only=True)
class MapOperation(_Operation):
    """New columns beside those of before."""

    OP: ClassVar[str] = "map"
    TITLE: ClassVar[str] = "a map"

    set: Annotated[_Expressions, Words("column: expression over the columns before")]


@dataclass(frozen=True, kw_only=True)
class ProjectOperation(_Operation):
    """New columns in place of those of before."""

    OP: ClassVar[str] = "project"
    TITLE: ClassVar[str] = "a project"

    columns: Annotated[_Expressions, Words("all that is kept")]


@dataclass(frozen=True, kw_only=True)
class JoinOperation(_Operation):
    """A join with a static table or with another stream."""

    OP: ClassVar[str] = "join"
    TITLE: ClassVar[str] = "a join"

    table: Annotated[str | None, String(), Words("a static table of the document")] = None
    stream: Annotated[str | None, String(), Words("another stream, whose records match in the same window")] = None
    time: Annotated[str | None, _NAME, Words("of the other stream: the column with the time of the event")] = None
    columns: Annotated[Mapping[str, str] | None, Named(_TYPE), Words("of the other stream")] = None
    within: Annotated[
        str | None, Enumeration(("query", "agent")), Words("whose records match: of all agents, or of the same one")
    ] = None
    most: Annotated[int | None, Number(least=1, most=MAX_MATCHES, whole=True), Words("matches of a record; 100")] = None
    on: Annotated[_Names, Words("column of the records: column of the table that equals it")]
    take: Annotated[_Names, Words("new column: column of the table")]
    how: Annotated[str, Enumeration(("inner", "left"))] = "inner"


@dataclass(frozen=True, kw_only=True)
class AggregateOperation(_Operation):
    """Results of groups."""

    OP: ClassVar[str] = "aggregate"
    TITLE: ClassVar[str] = "an aggregate"

    by: Annotated[tuple[_Name, ...], Words("besides window_start")] = ()
    compute: _Expressions


@dataclass(frozen=True, kw_only=True)
class ParseOperation(_Operation):
    """Columns out of a text."""

    OP: ClassVar[str] = "parse"
    TITLE: ClassVar[str] = "a parse"

    column: _Name
    form: Annotated[str, Enumeration(("regex", "kv", "json")), Field(alias="as")]
    pattern: Annotated[str | None, String(), Words("for regex: one named group for each column")] = None
    separator: Annotated[
        str | None, String(r"[ ,;|&\t]", "one of space , ; | & and tab"), Words("for kv: between two pairs")
    ] = None
    assign: Annotated[str | None, String(r"[=:]", "= or :"), Words("for kv: between key and value")] = None
    into: _Types
    on_error: Annotated[str, Enumeration(("drop", "null"))] = "drop"


@dataclass(frozen=True, kw_only=True)
class BucketsOperation(_Operation):
    """The number of the bucket that a value is in."""

    OP: ClassVar[str] = "buckets"
    TITLE: ClassVar[str] = "buckets"

    column: _Name
    bounds: Annotated[tuple[float, ...] | None, ListOf(Number(), least=1, most=MAX_BOUNDS)] = None
    start: Annotated[float | None, Number(), Field(alias="from")] = None
    to: Annotated[float | None, Number()] = None
    width: Annotated[float | None, Number(above=0)] = None
    into: _Name


#: What an expression holds, by its `op`.
OPERATIONS: Final[Mapping[str, type[_Operation]]] = {
    operation.OP: operation
    for operation in (
        WindowOperation,
        FilterOperation,
        MapOperation,
        ProjectOperation,
        JoinOperation,
        AggregateOperation,
        ParseOperation,
        BucketsOperation,
    )
}


@dataclass(frozen=True, kw_only=True)
class PipelineSourceRecord(Record):
    """The source of a pipeline."""

    TITLE: ClassVar[str] = "a source"

    id: Annotated[str, String()]
    time: Annotated[_Name, Words("the column with the time of the event")]
    columns: _Types


@dataclass(frozen=True, kw_only=True)
class StaticTableRecord(Record):
    """A static table of a pipeline."""

    TITLE: ClassVar[str] = "a static table"

    columns: _Types
    rows: Annotated[tuple[tuple[Annotated[Any, Anything()], ...], ...], ItemCount(most=MAX_TABLE_ROWS)]
    order: Annotated[
        tuple[_Name, ...] | None,
        Words("columns in the order of a row; without it, the order of the alphabet"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PipelineOperatorRecord(Record):
    """An operator of a pipeline."""

    TITLE: ClassVar[str] = "an operator"
    JUDGES_PARTS: ClassVar[bool] = True

    id: Annotated[str, String()]
    kind: Annotated[str, String()] | None = None
    expression: Annotated[Any, RecordOf(OPERATIONS, "op")]
    copies: Annotated[int, Number(least=1, most=10_000, whole=True), Words("physical copies of the operator")] = 1


@dataclass(frozen=True, kw_only=True)
class PipelineRecord(Record):
    """A pipeline."""

    TITLE: ClassVar[str] = "a pipeline"
    JUDGES_PARTS: ClassVar[bool] = True

    source: PipelineSourceRecord
    tables: Mapping[str, StaticTableRecord] = field(default_factory=dict)
    operators: Annotated[tuple[PipelineOperatorRecord, ...], ItemCount(1, MAX_OPERATORS)]


def read_table(name: str, record: StaticTableRecord, path: str, faults: list[Fault]) -> StaticTable | None:
    """A static table; None where it has faults."""
    order = _order(record, path, faults)
    if order is None:
        return None
    columns = {column: Type(record.columns[column]) for column in order}
    rows = _rows(record.rows, columns, join_path(path, "rows"), faults)
    if rows is None:
        return None
    arrays = [pa.array([row[i] for row in rows], ARROW[kind]) for i, kind in enumerate(columns.values())]
    text = json.dumps([list(columns.items()), rows], separators=(",", ":"))
    data = pa.Table.from_arrays(arrays, schema=arrow_schema(columns))
    return StaticTable(name, columns, data, hashlib.sha256(text.encode()).hexdigest())


def _order(record: StaticTableRecord, path: str, faults: list[Fault]) -> list[str] | None:
    """Columns in the order of a row. Databases reorder objects, so an order of the alphabet alone may go without."""
    columns = list(record.columns)
    order = columns if record.order is None else record.order
    if sorted(order) != sorted(columns):
        faults.append(
            Fault(join_path(path, "order"), f"order is {', '.join(order)}; allowed: each of {', '.join(columns)}")
        )
        return None
    if record.order is None and columns != sorted(columns):
        text = f"order is missing; columns ({', '.join(columns)}) are not in the order of the alphabet"
        faults.append(Fault(join_path(path, "order"), text))
        return None
    return list(order)


def _rows(
    given: Sequence[Sequence[Any]], columns: Mapping[str, Type], path: str, faults: list[Fault]
) -> list[list[Any]] | None:
    wrong: list[Fault] = []
    rows: list[list[Any]] = []
    for number, row in enumerate(given):
        at = join_path(path, number)
        if len(row) != len(columns):
            wrong.append(Fault(at, f"item {number} has {len(row)} values; allowed: {len(columns)}"))
            continue
        rows.append(
            [_value(value, column, columns[column], at, wrong) for column, value in zip(columns, row, strict=True)]
        )
    faults.extend(wrong[:_LISTED_FAULTS])
    if len(wrong) > _LISTED_FAULTS:
        faults.append(Fault(path, f"{len(wrong) - _LISTED_FAULTS} more values are wrong in the same way"))
    return None if wrong else rows


def _value(value: Any, column: str, kind: Type, path: str, faults: list[Fault]) -> Any:
    if value is None:
        return None
    read, allowed = _READERS[kind]
    made = read(value)
    if made is None:
        faults.append(Fault(path, f"{column} is {value_words(value)}; allowed: {allowed}, or null"))
    return made


def _whole(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if fits else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


_READERS: Final[Mapping[Type, tuple[Callable[[Any], Any], str]]] = {
    Type.INT64: (_whole, "a whole number of 64 bits"),
    Type.FLOAT64: (_number, "a number"),
    Type.STRING: (lambda value: value if isinstance(value, str) else None, "a text"),
    Type.BOOL: (lambda value: value if isinstance(value, bool) else None, "true or false"),
    Type.TIMESTAMP: (
        lambda value: timestamp_us(value) if isinstance(value, str) else None,
        "YYYY-MM-DD hh:mm:ss[.ffffff][Z]",
    ),
}
