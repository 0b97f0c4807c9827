"""Expressions over batches by pyarrow: every result is a value that fits, or null."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.dataflow.expressions.nodes import Call, CaseWhen, Cast, ColumnRef, In, Literal, Node
from engine.dataflow.expressions.patterns import name_groups
from engine.dataflow.types import ARROW, FLOAT_PATTERN, INT_PATTERN, TIMESTAMP_PATTERN, Type, timestamp_us

__all__ = [
    "CALLS",
    "Evaluator",
    "array_of",
    "cast",
    "checked",
    "div",
    "divide",
    "evaluator",
    "finite",
    "mod",
    "to_whole",
]

_MIN_INT64, _LIMIT = -(2.0**63), 2.0**63


def finite(values: Any) -> Any:
    """The values, with null for infinities and what is not a number."""
    total = pc.sum(values).as_py()  # infinite or NaN if any value is; one pass where nothing is wrong
    if total is None or math.isfinite(total):
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))


def checked(fast: Callable[..., Any], exact: Callable[..., int]) -> Callable[..., Any]:
    """A function of numbers: whole ones by `fast`, which raises on overflow, floats by `fast` and `finite`."""

    def run(*values: Any) -> Any:
        try:
            made = fast(*values)
        except pa.ArrowInvalid:
            return _one_by_one(exact, *values)
        return finite(made) if pa.types.is_floating(made.type) else made

    return run


def _one_by_one(exact: Callable[..., int], *values: Any) -> Any:
    """The slow way, for a batch in which at least one result leaves 64 bits."""
    length = next((len(column) for column in values if not isinstance(column, pa.Scalar)), None)
    columns = [
        [column.as_py()] * (length or 1) if isinstance(column, pa.Scalar) else column.to_pylist() for column in values
    ]
    made = [None if None in row else _fitting(exact(*row)) for row in zip(*columns, strict=True)]
    return pa.scalar(made[0], pa.int64()) if length is None else pa.array(made, pa.int64())


def _fitting(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def divide(left: Any, right: Any) -> Any:
    """left / right; null for a divisor of 0."""
    return finite(pc.divide(left, right))


def _but(values: Any, bad: int, instead: int | None) -> Any:
    return pc.if_else(pc.equal(values, bad), pa.scalar(instead, pa.int64()), values)


def div(left: Any, right: Any) -> Any:
    """The whole part of left / right, towards 0; null for a divisor of 0."""
    return _divided(left, _but(right, 0, None))


def _exact_div(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


_divided = checked(pc.divide_checked, _exact_div)


def mod(left: Any, right: Any) -> Any:
    """Remainder of `div`, with the sign of `left`; null for a divisor of 0."""
    divisor = _but(_but(right, 0, None), -1, 1)  # nothing is left by 1 either, and 1 cannot overflow
    return pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))


def to_whole(values: Any) -> Any:
    """The whole part of floats, towards 0; null where it leaves 64 bits."""
    fits = pc.and_(pc.greater_equal(values, _MIN_INT64), pc.less(values, _LIMIT))
    return pc.cast(pc.if_else(fits, values, pa.scalar(None, pa.float64())), pa.int64(), safe=False)


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


def _read(values: Any, target: Type, convert: Callable[[str], int | None]) -> Any:
    """All at once; where a text that looks right is none (a 30th of February, 20 digits), one by one."""
    try:
        return pc.cast(values, ARROW[target])
    except pa.ArrowInvalid:
        if isinstance(values, pa.Scalar):
            return pa.scalar(convert(values.as_py()), ARROW[target])
        return pa.array([None if text is None else convert(text) for text in values.to_pylist()], ARROW[target])


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


def _rounded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda values: to_whole(kernel(values))


def _real(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: finite(kernel(*values))


def _extract(texts: Any, pattern: pa.Scalar, group: pa.Scalar) -> Any:
    """The text of a group, empty for one that took no part; null without a match."""
    number = group.as_py() + 1
    groups = pc.extract_regex(texts, name_groups(f"({pattern.as_py()})"))
    return pc.if_else(pc.is_valid(groups), pc.struct_field(groups, number - 1), pa.scalar(None, pa.string()))


def _substring(texts: Any, start: pa.Scalar, length: pa.Scalar | None = None) -> Any:
    begin = start.as_py() - 1
    return pc.utf8_slice_codeunits(texts, begin, None if length is None else begin + length.as_py())


def _trim(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda texts: kernel(texts, characters=" ")


def _constant(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose second argument and on are constants."""
    return lambda values, *given: kernel(values, *[argument.as_py() for argument in given])


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

#: Gives an array of the batch's length, or a scalar where no column is read.
Evaluator = Callable[[pa.RecordBatch], Any]


def evaluator(node: Node) -> Evaluator:
    """The function that computes an expression over a batch."""
    match node:
        case ColumnRef(name, _):
            return lambda batch: batch.column(name)
        case Literal(value, kind):
            constant = pa.scalar(value, ARROW[kind])
            return lambda _: constant
        case Call(function, arguments, _):
            return _call(CALLS[function], [evaluator(item) for item in arguments])
        case Cast(argument, kind):
            inner, convert = evaluator(argument), cast(argument.type, kind)
            return lambda batch: convert(inner(batch))
        case CaseWhen():
            return _case(node)
        case In(argument, options, _):
            return _in(evaluator(argument), pa.array([item.value for item in options], ARROW[argument.type]))


def array_of(value: Any, batch: pa.RecordBatch) -> pa.Array:
    """The value as one array for the batch."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, batch.num_rows)
    return value


def _call(function: Callable[..., Any], arguments: list[Evaluator]) -> Evaluator:
    if len(arguments) == 1:
        (only,) = arguments
        return lambda batch: function(only(batch))
    if len(arguments) == 2:
        left, right = arguments
        return lambda batch: function(left(batch), right(batch))
    return lambda batch: function(*[argument(batch) for argument in arguments])


def _case(node: CaseWhen) -> Evaluator:
    branches = [(evaluator(when), evaluator(then)) for when, then in reversed(node.branches)]
    otherwise = evaluator(node.otherwise)

    def run(batch: pa.RecordBatch) -> Any:
        value = otherwise(batch)
        for when, then in branches:  # from the last to the first, so that the first true one prevails
            value = pc.if_else(pc.fill_null(when(batch), False), then(batch), value)
        return value

    return run


def _in(argument: Evaluator, options: pa.Array) -> Evaluator:
    is_float = pa.types.is_floating(options.type)
    if is_float:
        options = pc.add(options, 0.0)  # values are looked up by their bits, and -0.0 equals 0.0

    def run(batch: pa.RecordBatch) -> Any:
        value = argument(batch)
        if is_float:
            value = pc.add(value, 0.0)
        return pc.if_else(pc.is_valid(value), pc.is_in(value, value_set=options), pa.scalar(None, pa.bool_()))

    return run
