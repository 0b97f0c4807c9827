"""Functions and operators of expressions by pyarrow, by their names in `engine.dataflow.functions`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.numbers import checked, div, divide, finite, mod, to_whole
from engine.dataflow.patterns import named

__all__ = ["CALLS"]


def _rounded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda values: to_whole(kernel(values))


def _real(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: finite(kernel(*values))


def _extract(texts: Any, pattern: pa.Scalar, group: pa.Scalar) -> Any:
    """The text of a group, empty for one that took no part; null without a match."""
    number = group.as_py() + 1
    found = pc.extract_regex(texts, named(f"({pattern.as_py()})"))
    return pc.if_else(pc.is_valid(found), pc.struct_field(found, number - 1), pa.scalar(None, pa.string()))


def _substring(texts: Any, start: pa.Scalar, length: pa.Scalar | None = None) -> Any:
    begin = start.as_py() - 1
    return pc.utf8_slice_codeunits(texts, begin, None if length is None else begin + length.as_py())


def _trim(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda texts: kernel(texts, characters=" ")


def _constant(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose second argument and on are constants."""
    return lambda values, *given: kernel(values, *[one.as_py() for one in given])


CALLS: Final[Mapping[str, Callable[..., Any]]] = {
    "add": checked(pc.add_checked, operator.add),
    "subtract": checked(pc.subtract_checked, operator.sub),
    "multiply": checked(pc.multiply_checked, operator.mul),
    "negate": checked(pc.negate_checked, operator.neg),
    "abs": checked(pc.abs_checked, operator.abs),
    "divide": divide,
    "div": div,
    "mod": mod,
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "is_null": pc.is_null,
    "like": _constant(pc.match_like),
    "ceil": _rounded(pc.ceil),
    "floor": _rounded(pc.floor),
    "round": _rounded(lambda values: pc.round(values, round_mode="half_towards_infinity")),
    "concat": lambda *texts: pc.binary_join_element_wise(*texts, ""),
    "contains": _constant(pc.match_substring),
    "starts_with": _constant(pc.starts_with),
    "ends_with": _constant(pc.ends_with),
    "exp": _real(pc.exp),
    "ln": _real(pc.ln),
    "log10": _real(pc.log10),
    "power": _real(pc.power),
    "sqrt": _real(pc.sqrt),
    "greatest": pc.max_element_wise,
    "least": pc.min_element_wise,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "unix_micros": lambda values: pc.cast(values, pa.int64()),
    "timestamp_micros": lambda values: pc.cast(values, pa.timestamp("us", "UTC")),
    "length": lambda texts: pc.cast(pc.utf8_length(texts), pa.int64()),
    "lower": pc.ascii_lower,
    "upper": pc.ascii_upper,
    "trim": _trim(pc.utf8_trim),
    "ltrim": _trim(pc.utf8_ltrim),
    "rtrim": _trim(pc.utf8_rtrim),
    "regexp_extract": _extract,
    "regexp_like": _constant(pc.match_substring_regex),
    "regexp_replace": _constant(pc.replace_substring_regex),
    "replace": _constant(pc.replace_substring),
    "substring": _substring,
}
