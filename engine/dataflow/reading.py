"""Parsing of text columns by pyarrow: regular expressions and key-value pairs column-wise, JSON line by line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.casts import cast
from engine.dataflow.operators import ParseSpec
from engine.dataflow.patterns import named
from engine.dataflow.times import timestamp_us
from engine.dataflow.types import ARROW, Type

__all__ = ["reader"]

_Read = Callable[[pa.Array], tuple[list[pa.Array], pa.Array]]


def reader(spec: ParseSpec, schema: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The parse as a function from batch to batch of `schema`."""
    read = _json(spec) if spec.form == "json" else _patterns(spec)
    names = [name for name, _ in spec.into]

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns, sound = read(batch.column(spec.column))
        made = dict(zip(names, columns, strict=True))
        arrays = [made[one] if one in made else batch.column(one) for one in schema.names]
        parsed = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return parsed.filter(sound) if spec.drop_faulty else parsed

    return run


def _patterns(spec: ParseSpec) -> _Read:
    """Each distinct pattern is run once; a record is sound if one of them is found."""
    texts = list(dict.fromkeys(text for text, _ in spec.patterns))
    arrow = [named(text) for text in texts]
    wanted = [
        (texts.index(text), group - 1, _converter(kind))
        for (text, group), (_, kind) in zip(spec.patterns, spec.into, strict=True)
    ]
    nothing = pa.scalar(None, pa.string())

    def read(lines: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        found = [pc.extract_regex(lines, pattern) for pattern in arrow]
        valid = [pc.is_valid(one) for one in found]
        columns = []
        for which, group, convert in wanted:
            values = pc.struct_field(found[which], group)
            columns.append(
                convert(values if not found[which].null_count else pc.if_else(valid[which], values, nothing))
            )
        return columns, reduce(pc.or_, valid)

    return read


def _converter(kind: Type) -> Callable[[pa.Array], pa.Array]:
    return cast(Type.STRING, kind) if kind != Type.STRING else lambda values: values


def _json(spec: ParseSpec) -> _Read:
    """Line by line: no reader of whole columns forgives a single bad line."""
    wanted = [(name, _JSON[kind], ARROW[kind]) for name, kind in spec.into]

    def read(lines: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        objects = [_object(line) for line in lines.to_pylist()]
        found = [{} if one is None else one for one in objects]
        columns = [pa.array([value(one.get(name)) for one in found], kind) for name, value, kind in wanted]
        return columns, pa.array([one is not None for one in objects], pa.bool_())

    return read


def _refuse(_: str) -> None:
    raise ValueError("NaN and Infinity are no JSON")


def _object(line: str | None) -> dict[str, Any] | None:
    try:
        value = None if line is None else _decode(line.lstrip(_BLANK))[0]
        if line is not None and "\\u" in line:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_BLANK: Final = " \t\n\r"
#: Reads the value that a text begins with. What follows is not looked at: Spark does not either.
_decode = json.JSONDecoder(parse_constant=_refuse).raw_decode


def _whole(value: Any) -> int | None:
    fits = type(value) is int and -(2**63) <= value < 2**63
    return value if fits else None


def _number(value: Any) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) != float("inf") else None


#: A value of another type than the column's is null, whatever it could be converted to.
_JSON: Final[Mapping[Type, Callable[[Any], Any]]] = {
    Type.INT64: _whole,
    Type.FLOAT64: _number,
    Type.STRING: lambda value: value if isinstance(value, str) else None,
    Type.BOOL: lambda value: value if isinstance(value, bool) else None,
    Type.TIMESTAMP: lambda value: timestamp_us(value) if isinstance(value, str) else None,
}
