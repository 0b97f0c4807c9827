"""Random batches with values that engines treat differently, and the comparison of two results."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from engine.dataflow.types import ARROW, Type

__all__ = ["COLUMNS", "batch", "differences", "pipeline_of"]

COLUMNS: Mapping[str, Type] = {
    "at": Type.TIMESTAMP,
    "b": Type.BOOL,
    "c": Type.BOOL,
    "i": Type.INT64,
    "j": Type.INT64,
    "later": Type.TIMESTAMP,
    "n": Type.INT64,  # the row's own number: results are compared in its order
    "s": Type.STRING,
    "t": Type.STRING,
    "x": Type.FLOAT64,
    "y": Type.FLOAT64,
}
_INTS = [0, 1, -1, 2, 3, 7, 10, -10, 100, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
_FLOATS = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    2.5,
    -2.5,
    3.0,
    0.1,
    1e-9,
    1e9,
    0.49999999999999994,
    1e15 + 0.5,
    9.2e18,
    2.0**63,
    -(2.0**63),
    1e300,
    -1e300,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
]
_TEXTS = [
    "",
    " ",
    "a",
    "A",
    "abc",
    "ABC",
    "aXbXc",
    "  padded ",
    "\tTab\t",
    "a b c",
    "err=1",
    "status=200 ms=1.5 path=/x",
    *(
        "Zürich",
        "ÄÖÜß",
        "İstanbul",
        "日本語",
        "emoji 🙂 end",
        "e\u0301",
        "line\nbreak",
        "a\r\nb",
        "x\u00a0y",
        "100%",
        "a_b",
    ),
    *(
        "$1",
        "\\d",
        "${user}",
        "it's",
        '"quoted"',
        "12",
        "-12",
        "+12",
        " 12",
        "12 ",
        "1.5",
        "1.",
        ".5",
        "-1e3",
        "1e400",
        "0x10",
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "00012",
        "1_000",
        "１２",
        "NaN",
        "Infinity",
    ),
    "true",
    "false",
    "TRUE",
    "t",
    "yes",
    "2020-01-02 03:04:05",
    "2020-01-02T03:04:05.123456Z",
    "2020-02-30 00:00:00",
    *(
        "2020-01-02",
        "1969-12-31 23:59:59.9",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
        "2020-01-02 24:00:00",
    ),
]
_TIMES = [0, 1, -1, 999_999, -1_000_000, 86_400_000_000, 1_577_934_245_123_456, -62_135_596_800_000_000]
_SOME_NULLS = 0.1


def batch(
    seed: int, rows: int, columns: Mapping[str, Type] = COLUMNS, texts: Sequence[str] = (), *, huge: bool = True
) -> pa.Table:
    """A table of random values, the nasty ones among them; about a tenth is null.

    Without `huge` floats, sums come out alike in any order to rounding: nothing cancels that is far larger than they.
    """
    draw = random.Random(seed)
    made = {}
    for name, kind in columns.items():
        value = _DRAWS[kind]
        if texts and kind == Type.STRING:
            values = [draw.choice(texts) if draw.random() < 0.9 else None for _ in range(rows)]
        else:
            values = [None if draw.random() < _SOME_NULLS else value(draw) for _ in range(rows)]
            if kind == Type.FLOAT64 and not huge:
                values = [None if value is None or 1e6 < abs(value) < math.inf else value for value in values]
        made[name] = pa.array(range(rows) if name == "n" else values, ARROW[kind])
    return pa.table(made)


def pipeline_of(*expressions: Mapping[str, Any], columns: Mapping[str, Type] = COLUMNS, **more: Any) -> dict[str, Any]:
    """The document of a chain over `columns`."""
    return {
        "source": {"id": "records", "time": "at", "columns": {name: str(kind) for name, kind in columns.items()}},
        "operators": [{"id": f"o{k}", "expression": dict(expression)} for k, expression in enumerate(expressions)],
        **more,
    }


def differences(expected: pa.Table, found: pa.Table, keys: Sequence[str], shown: int = 10) -> list[str]:
    """Where two tables differ, in words: columns, number of rows, then values of rows in the order of `keys`."""
    if expected.schema.names != found.schema.names:
        return [f"columns {expected.schema.names} and {found.schema.names}"]
    kinds = {one.name: (one.type, other.type) for one, other in zip(expected.schema, found.schema, strict=True)}
    wrong = [f"{name}: type {mine} and {theirs}" for name, (mine, theirs) in kinds.items() if not _alike(mine, theirs)]
    if expected.num_rows != found.num_rows:
        wrong.append(f"{expected.num_rows} and {found.num_rows} rows")
    if wrong:
        return wrong
    order = [(name, "ascending") for name in keys]
    pairs = zip(_rows(expected.sort_by(order)), _rows(found.sort_by(order)), strict=True)
    for mine, theirs in pairs:
        at = {name: mine[name] for name in keys}
        wrong += [
            f"{name} at {at}: {mine[name]!r} and {theirs[name]!r}"
            for name in mine
            if not _same(mine[name], theirs[name])
        ]
    return wrong[:shown] + ([f"and {len(wrong) - shown} more"] if len(wrong) > shown else [])


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with instants as numbers: Python's own end with the year 9999."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    return table.to_pylist()


def _alike(mine: pa.DataType, theirs: pa.DataType) -> bool:
    return mine == theirs or (pa.types.is_list(mine) and pa.types.is_list(theirs))


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=0.0) or (math.isnan(mine) and math.isnan(theirs))
    return bool(mine == theirs)


def _int(draw: random.Random) -> int:
    return draw.choice(_INTS) if draw.random() < 0.5 else draw.randint(-50, 50)


def _float(draw: random.Random) -> float:
    return draw.choice(_FLOATS) if draw.random() < 0.5 else draw.uniform(-100, 100)


def _time(draw: random.Random) -> int:
    return draw.choice(_TIMES) if draw.random() < 0.3 else draw.randint(-(10**15), 2 * 10**15)


_DRAWS: Mapping[Type, Callable[[random.Random], Any]] = {
    Type.BOOL: lambda draw: draw.random() < 0.5,
    Type.FLOAT64: _float,
    Type.INT64: _int,
    Type.STRING: lambda draw: draw.choice(_TEXTS),
    Type.TIMESTAMP: _time,
}
