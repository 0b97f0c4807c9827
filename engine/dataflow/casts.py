"""Conversions by pyarrow; what cannot be converted becomes null."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.numbers import finite, to_whole
from engine.dataflow.times import TIMESTAMP_PATTERN, timestamp_us
from engine.dataflow.types import ARROW, Type

__all__ = ["FLOAT_PATTERN", "INT_PATTERN", "cast"]

#: What a text must look like to be converted to a number.
INT_PATTERN: Final = r"^-?[0-9]{1,19}\z"
FLOAT_PATTERN: Final = r"^-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\z"
_Convert = Callable[[Any], Any]


def cast(source: Type, target: Type) -> _Convert:
    """The function that converts arrays and scalars of one type to another."""
    return _CASTS[source, target]


def _plain(target: Type) -> _Convert:
    return lambda values: pc.cast(values, ARROW[target], safe=False)


def _text_to_whole(values: Any) -> Any:
    return _read(_matching(values, INT_PATTERN), Type.INT64, _whole)


def _whole(text: str) -> int | None:
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _text_to_float(values: Any) -> Any:
    return finite(pc.cast(_matching(values, FLOAT_PATTERN), pa.float64()))


def _text_to_bool(values: Any) -> Any:
    nothing = pa.scalar(None, pa.bool_())
    return pc.if_else(pc.equal(values, "true"), True, pc.if_else(pc.equal(values, "false"), False, nothing))


def _text_to_time(values: Any) -> Any:
    fitting = _matching(values, TIMESTAMP_PATTERN)
    utc = pc.binary_join_element_wise(pc.utf8_rtrim(fitting, characters="Z"), "Z", "")
    return _read(utc, Type.TIMESTAMP, timestamp_us)


def _matching(values: Any, pattern: str) -> Any:
    """The texts that look right, null for the others."""
    return pc.if_else(pc.match_substring_regex(values, pattern), values, pa.scalar(None, pa.string()))


def _read(values: Any, target: Type, one: Callable[[str], int | None]) -> Any:
    """All at once; where a text that looks right is none (a 30th of February, 20 digits), one by one."""
    try:
        return pc.cast(values, ARROW[target])
    except pa.ArrowInvalid:
        if isinstance(values, pa.Scalar):
            return pa.scalar(one(values.as_py()), ARROW[target])
        return pa.array([None if text is None else one(text) for text in values.to_pylist()], ARROW[target])


_CASTS: Final[Mapping[tuple[Type, Type], _Convert]] = {
    (Type.INT64, Type.FLOAT64): _plain(Type.FLOAT64),
    (Type.INT64, Type.STRING): _plain(Type.STRING),
    (Type.FLOAT64, Type.INT64): to_whole,
    (Type.BOOL, Type.INT64): _plain(Type.INT64),
    (Type.BOOL, Type.STRING): _plain(Type.STRING),
    (Type.STRING, Type.INT64): _text_to_whole,
    (Type.STRING, Type.FLOAT64): _text_to_float,
    (Type.STRING, Type.BOOL): _text_to_bool,
    (Type.STRING, Type.TIMESTAMP): _text_to_time,
}
