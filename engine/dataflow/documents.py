"""The field tables of a pipeline document, and its static tables read into Arrow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from pydantic.json_schema import JsonSchemaValue

from engine.dataflow.operators import StaticTable
from engine.dataflow.types import ARROW, Type, arrow_schema, timestamp_us
from engine.errors import Fault, join_path, key_name, value_words
from engine.fields import BAD, Anything, Enumeration, Field, FieldKind, FieldTable, ListOf, MapOf, Number, String

__all__ = ["KINDS", "NAME_PATTERN", "OPERATIONS", "PIPELINE", "read_tables"]

NAME_PATTERN: Final = r"[A-Za-z][A-Za-z0-9_]{0,62}"
MAX_OPERATORS = 32
MAX_TABLE_ROWS = 100_000
MAX_BOUNDS = 1_000
MAX_MATCHES = 1_000

_ID = String()
_SQL = String()
_NAME = String(NAME_PATTERN, "a letter, then letters, digits and _, at most 63 in all")
_TYPE = Enumeration(tuple(kind.value for kind in Type))
_SECONDS = Number(least=0.001, most=31_536_000)

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


class Named(MapOf):
    """An object whose keys are names of columns."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if isinstance(value, Mapping):
            for name in value:
                _NAME.read(name, join_path(parent, key), str(name), faults)
            if not value:
                faults.append(Fault(join_path(parent, key), f"{key_name(key)} is empty; allowed: at least one column"))
        return super().read(value, parent, key, faults)


_TYPES = Named(_TYPE)
_JOIN = (
    Field("on", Named(_NAME), required=True, help="column of the records: column of the table that equals it"),
    Field("take", Named(_NAME), required=True, help="new column: column of the table"),
    Field("how", Enumeration(("inner", "left"))),
)

#: What an expression holds, by its `op`.
OPERATIONS: Final[Mapping[str, FieldTable]] = {
    "window": FieldTable(
        "a window",
        Field("size_s", _SECONDS, required=True),
        Field("slide_s", _SECONDS, nullable=True, help="a whole part of size_s; without it windows do not overlap"),
    ),
    "filter": FieldTable("a filter", Field("where", _SQL, required=True)),
    "map": FieldTable(
        "a map", Field("set", Named(_SQL), required=True, help="column: expression over the columns before")
    ),
    "project": FieldTable("a project", Field("columns", Named(_SQL), required=True, help="all that is kept")),
    "join": FieldTable(
        "a join",
        Field("table", _ID, help="a static table of the document"),
        Field("stream", _ID, help="another stream, whose records match in the same window"),
        Field("time", _NAME, help="of the other stream: the column with the time of the event"),
        Field("columns", _TYPES, help="of the other stream"),
        Field("within", Enumeration(("query", "agent")), help="whose records match: of all agents, or of the same one"),
        Field("most", Number(least=1, most=MAX_MATCHES, whole=True), help="matches of a record; 100"),
        *_JOIN,
    ),
    "aggregate": FieldTable(
        "an aggregate",
        Field("by", ListOf(_NAME), help="besides window_start"),
        Field("compute", Named(_SQL), required=True),
    ),
    "parse": FieldTable(
        "a parse",
        Field("column", _NAME, required=True),
        Field("as", Enumeration(("regex", "kv", "json")), required=True),
        Field("pattern", String(), help="for regex: one named group for each column"),
        Field("separator", String(r"[ ,;|&\t]", "one of space , ; | & and tab"), help="for kv: between two pairs"),
        Field("assign", String(r"[=:]", "= or :"), help="for kv: between key and value"),
        Field("into", _TYPES, required=True),
        Field("on_error", Enumeration(("drop", "null"))),
    ),
    "buckets": FieldTable(
        "buckets",
        Field("column", _NAME, required=True),
        Field("bounds", ListOf(Number(), least=1, most=MAX_BOUNDS)),
        Field("from", Number()),
        Field("to", Number()),
        Field("width", Number(above=0)),
        Field("into", _NAME, required=True),
    ),
}


class Operation(FieldKind):
    """An expression: an object whose field `op` says which other fields it has."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join_path(parent, key)
        if not isinstance(value, Mapping):
            faults.append(Fault(path, f"{key_name(key)} is {value_words(value)}; allowed: an object with op"))
            return BAD
        if "op" not in value:
            faults.append(Fault(join_path(path, "op"), f"op is missing; allowed: {', '.join(OPERATIONS)}"))
            return BAD
        op = Enumeration(tuple(OPERATIONS)).read(value["op"], path, "op", faults)
        if op is BAD:
            return BAD
        rest = {name: item for name, item in value.items() if name != "op"}
        return {"op": op} | OPERATIONS[op].read(rest, parent, key, faults)

    def schema(self) -> JsonSchemaValue:
        forms = []
        for op, table in OPERATIONS.items():
            form = table.schema()
            form["properties"] = {"op": {"const": op}} | form["properties"]
            forms.append(form | {"required": ["op", *form.get("required", [])]})
        return {"oneOf": forms}


_SOURCE = FieldTable(
    "a source",
    Field("id", _ID, required=True),
    Field("time", _NAME, required=True, help="the column with the time of the event"),
    Field("columns", _TYPES, required=True),
)
_TABLE = FieldTable(
    "a static table",
    Field("columns", _TYPES, required=True),
    Field("rows", ListOf(ListOf(Anything()), most=MAX_TABLE_ROWS), required=True),
    Field("order", ListOf(_NAME), help="columns in the order of a row; without it, the order of the alphabet"),
)
_OPERATOR = FieldTable(
    "an operator",
    Field("id", _ID, required=True),
    Field("kind", String(), nullable=True),
    Field("expression", Operation(), required=True),
    Field("copies", Number(least=1, most=10_000, whole=True), help="physical copies of the operator"),
)
PIPELINE = FieldTable(
    "a pipeline",
    Field("source", _SOURCE, required=True),
    Field("tables", MapOf(_TABLE)),
    Field("operators", ListOf(_OPERATOR, least=1, most=MAX_OPERATORS), required=True),
)


def read_tables(given: Mapping[str, object], path: str, faults: list[Fault]) -> dict[str, StaticTable | None]:
    """The tables by name; None for one that is faulty."""
    return {name: _table(name, kept, join_path(path, name), faults) for name, kept in given.items()}


def _table(name: str, kept: Any, path: str, faults: list[Fault]) -> StaticTable | None:
    if kept is BAD or any(part is BAD for part in kept.values()):
        return None
    if BAD in [*kept["columns"].values(), *kept["rows"], *kept.get("order", [])]:
        return None
    order = _order(kept, path, faults)
    if order is None:
        return None
    columns = {column: Type(kept["columns"][column]) for column in order}
    rows = _rows(kept["rows"], columns, join_path(path, "rows"), faults)
    if rows is None:
        return None
    arrays = [pa.array([row[i] for row in rows], ARROW[kind]) for i, kind in enumerate(columns.values())]
    text = json.dumps([list(columns.items()), rows], separators=(",", ":"))
    data = pa.Table.from_arrays(arrays, schema=arrow_schema(columns))
    return StaticTable(name, columns, data, hashlib.sha256(text.encode()).hexdigest())


def _order(kept: dict[str, Any], path: str, faults: list[Fault]) -> list[str] | None:
    """Columns in the order of a row. Databases reorder objects, so an order of the alphabet alone may go without."""
    columns = list(kept["columns"])
    order = kept.get("order", columns)
    if sorted(order) != sorted(columns):
        faults.append(
            Fault(join_path(path, "order"), f"order is {', '.join(order)}; allowed: each of {', '.join(columns)}")
        )
        return None
    if "order" not in kept and columns != sorted(columns):
        text = f"order is missing; columns ({', '.join(columns)}) are not in the order of the alphabet"
        faults.append(Fault(join_path(path, "order"), text))
        return None
    return list(order)


def _rows(
    given: list[list[Any]], columns: Mapping[str, Type], path: str, faults: list[Fault]
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
