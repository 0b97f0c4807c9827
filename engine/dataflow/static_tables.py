"""Static tables of a pipeline document, read into Arrow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from engine.dataflow.operators import StaticTable
from engine.dataflow.times import timestamp_us
from engine.dataflow.types import ARROW, Type, arrow_schema
from engine.errors import Fault
from engine.fields import BAD
from engine.wording import join, show

__all__ = ["read_tables"]

_LISTED_FAULTS = 10


def read_tables(given: Mapping[str, Any], path: str, faults: list[Fault]) -> dict[str, StaticTable | None]:
    """The tables by name; None for one that is faulty."""
    return {name: _table(name, kept, join(path, name), faults) for name, kept in given.items()}


def _table(name: str, kept: Any, path: str, faults: list[Fault]) -> StaticTable | None:
    if kept is BAD or any(part is BAD for part in kept.values()):
        return None
    if BAD in [*kept["columns"].values(), *kept["rows"], *kept.get("order", [])]:
        return None
    order = _order(kept, path, faults)
    if order is None:
        return None
    columns = {column: Type(kept["columns"][column]) for column in order}
    rows = _rows(kept["rows"], columns, join(path, "rows"), faults)
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
        faults.append(Fault(join(path, "order"), f"order is {', '.join(order)}; allowed: each of {', '.join(columns)}"))
        return None
    if "order" not in kept and columns != sorted(columns):
        text = f"order is missing; columns ({', '.join(columns)}) are not in the order of the alphabet"
        faults.append(Fault(join(path, "order"), text))
        return None
    return list(order)


def _rows(
    given: list[list[Any]], columns: Mapping[str, Type], path: str, faults: list[Fault]
) -> list[list[Any]] | None:
    wrong: list[Fault] = []
    rows: list[list[Any]] = []
    for number, row in enumerate(given):
        at = join(path, number)
        if len(row) != len(columns):
            wrong.append(Fault(at, f"item {number} has {len(row)} values; allowed: {len(columns)}"))
            continue
        rows.append([_value(one, column, columns[column], at, wrong) for column, one in zip(columns, row, strict=True)])
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
        faults.append(Fault(path, f"{column} is {show(value)}; allowed: {allowed}, or null"))
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
