"""The field tables of a pipeline document: which fields there are and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.dataflow.types import Type
from engine.errors import Fault
from engine.fields import BAD, Anything, Choice, Field, Kind, Listed, Mapped, Number, Table, Text
from engine.wording import join, key_name, show

__all__ = ["KINDS", "NAME_PATTERN", "OPERATIONS", "PIPELINE"]

NAME_PATTERN: Final = r"[A-Za-z][A-Za-z0-9_]{0,62}"
MOST_OPERATORS = 32
MOST_TABLE_ROWS = 100_000
MOST_BOUNDS = 1_000
MOST_MATCHES = 1_000

_ID = Text()
_SQL = Text()
_NAME = Text(NAME_PATTERN, "a letter, then letters, digits and _, at most 63 in all")
_TYPE = Choice(tuple(kind.value for kind in Type))
_SECONDS = Number(least=0.001, most=31_536_000)


class Named(Mapped):
    """An object whose keys are names of columns."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if isinstance(value, Mapping):
            for name in value:
                _NAME.read(name, join(parent, key), str(name), faults)
            if not value:
                faults.append(Fault(join(parent, key), f"{key_name(key)} is empty; allowed: at least one column"))
        return super().read(value, parent, key, faults)


_TYPES = Named(_TYPE)
_JOIN = (
    Field("on", Named(_NAME), required=True, help="column of the records: column of the table that equals it"),
    Field("take", Named(_NAME), required=True, help="new column: column of the table"),
    Field("how", Choice(("inner", "left"))),
)

#: What an expression holds, by its `op`.
OPERATIONS: Final[Mapping[str, Table]] = {
    "window": Table(
        "a window",
        Field("size_s", _SECONDS, required=True),
        Field("slide_s", _SECONDS, nullable=True, help="a whole part of size_s; without it windows do not overlap"),
    ),
    "filter": Table("a filter", Field("where", _SQL, required=True)),
    "map": Table("a map", Field("set", Named(_SQL), required=True, help="column: expression over the columns before")),
    "project": Table("a project", Field("columns", Named(_SQL), required=True, help="all that is kept")),
    "join": Table(
        "a join",
        Field("table", _ID, help="a static table of the document"),
        Field("stream", _ID, help="another stream, whose records match in the same window"),
        Field("time", _NAME, help="of the other stream: the column with the time of the event"),
        Field("columns", _TYPES, help="of the other stream"),
        Field("within", Choice(("query", "agent")), help="whose records match: of all agents, or of the same one"),
        Field("most", Number(least=1, most=MOST_MATCHES, whole=True), help="matches of a record; 100"),
        *_JOIN,
    ),
    "aggregate": Table(
        "an aggregate",
        Field("by", Listed(_NAME), help="besides window_start"),
        Field("compute", Named(_SQL), required=True),
    ),
    "parse": Table(
        "a parse",
        Field("column", _NAME, required=True),
        Field("as", Choice(("regex", "kv", "json")), required=True),
        Field("pattern", Text(), help="for regex: one named group for each column"),
        Field("separator", Text(r"[ ,;|&\t]", "one of space , ; | & and tab"), help="for kv: between two pairs"),
        Field("assign", Text(r"[=:]", "= or :"), help="for kv: between key and value"),
        Field("into", _TYPES, required=True),
        Field("on_error", Choice(("drop", "null"))),
    ),
    "buckets": Table(
        "buckets",
        Field("column", _NAME, required=True),
        Field("bounds", Listed(Number(), least=1, most=MOST_BOUNDS)),
        Field("from", Number()),
        Field("to", Number()),
        Field("width", Number(above=0)),
        Field("into", _NAME, required=True),
    ),
}

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


class Operation(Kind):
    """An expression: an object whose field `op` says which other fields it has."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join(parent, key)
        if not isinstance(value, Mapping):
            faults.append(Fault(path, f"{key_name(key)} is {show(value)}; allowed: an object with op"))
            return BAD
        if "op" not in value:
            faults.append(Fault(join(path, "op"), f"op is missing; allowed: {', '.join(OPERATIONS)}"))
            return BAD
        op = Choice(tuple(OPERATIONS)).read(value["op"], path, "op", faults)
        if op is BAD:
            return BAD
        rest = {name: item for name, item in value.items() if name != "op"}
        return {"op": op} | OPERATIONS[op].read(rest, parent, key, faults)

    def schema(self) -> dict[str, Any]:
        forms = []
        for op, table in OPERATIONS.items():
            form = table.schema()
            form["properties"] = {"op": {"const": op}} | form["properties"]
            forms.append(form | {"required": ["op", *form.get("required", [])]})
        return {"oneOf": forms}


_SOURCE = Table(
    "a source",
    Field("id", _ID, required=True),
    Field("time", _NAME, required=True, help="the column with the time of the event"),
    Field("columns", _TYPES, required=True),
)
_TABLE = Table(
    "a static table",
    Field("columns", _TYPES, required=True),
    Field("rows", Listed(Listed(Anything()), most=MOST_TABLE_ROWS), required=True),
    Field("order", Listed(_NAME), help="columns in the order of a row; without it, the order of the alphabet"),
)
_OPERATOR = Table(
    "an operator",
    Field("id", _ID, required=True),
    Field("kind", Text(), nullable=True),
    Field("expression", Operation(), required=True),
    Field("copies", Number(least=1, most=10_000, whole=True), help="physical copies of the operator"),
)
PIPELINE = Table(
    "a pipeline",
    Field("source", _SOURCE, required=True),
    Field("tables", Mapped(_TABLE)),
    Field("operators", Listed(_OPERATOR, least=1, most=MOST_OPERATORS), required=True),
)
