"""Typed expressions as text of Spark SQL (non-ANSI mode, UTC). The meaning is stated in ``docs/models/dataflow.md``.

No form writes an argument twice: texts would double with every level of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from engine.dataflow.expressions.nodes import Call, CaseWhen, Cast, ColumnRef, In, Literal, Node
from engine.dataflow.types import FLOAT_PATTERN, INT_PATTERN, TIMESTAMP_PATTERN, Type

__all__ = ["SQL_TYPES", "column", "converted", "expression", "finite", "text"]

SQL_TYPES: Final[Mapping[Type, str]] = {
    Type.INT64: "BIGINT",
    Type.FLOAT64: "DOUBLE",
    Type.STRING: "STRING",
    Type.BOOL: "BOOLEAN",
    Type.TIMESTAMP: "TIMESTAMP",
}
_INFINITY: Final = "CAST('Infinity' AS DOUBLE)"
#: The least float above 64 bits, and the largest below.
_ABOVE, _BELOW = "9.223372036854775808E18D", "-9.223372036854777856E18D"
_MIN_BIGINT: Final = f"CAST('{-(2**63)}' AS BIGINT)"


def expression(node: Node) -> str:
    """The expression as SQL over columns of the same names."""
    match node:
        case ColumnRef(name, _):
            return column(name)
        case Literal():
            return _literal(node)
        case Call(function, arguments, _):
            return _call(function, arguments)
        case Cast(argument, kind):
            return _CASTS[argument.type, kind](expression(argument))
        case CaseWhen(branches, otherwise, _):
            listed = " ".join(f"WHEN {expression(when)} THEN {expression(then)}" for when, then in branches)
            return f"(CASE {listed} ELSE {expression(otherwise)} END)"
        case In(argument, options, _):
            # Spark looks a long list up by bits, and those of -0.0 are others than those of 0.0
            form = "({0} + 0.0D)" if argument.type == Type.FLOAT64 else "{0}"
            listed = ", ".join(form.format(_literal(option)) for option in options)
            return f"({form.format(expression(argument))} IN ({listed}))"


def finite(value: str) -> str:
    """The float, with null for infinities and what is not a number: both leave no number when divided by infinity."""
    return f"nanvl({value} % {_INFINITY}, CAST(NULL AS DOUBLE))"


def converted(source: Type, target: Type, value: str) -> str:
    """The value of one type as one of another; null where that cannot be."""
    return value if source == target else _CASTS[source, target](value)


def column(name: str) -> str:
    """A column's name, quoted."""
    return f"`{name}`"


def text(value: str) -> str:
    """A string literal."""
    kept = {"\\": "\\\\", "'": "\\'", "$": "\\u0024"}  # ${name} would be replaced by a setting of the session
    return "'" + "".join(kept.get(sign, sign) if sign >= " " else f"\\u{ord(sign):04x}" for sign in value) + "'"


def _literal(node: Literal) -> str:
    value = node.value
    if value is None:
        return f"CAST(NULL AS {SQL_TYPES[node.type]})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if node.type == Type.FLOAT64:
        return f"{float(value)!r}D"
    if node.type == Type.TIMESTAMP:
        return f"timestamp_micros({value}L)"
    return text(value) if isinstance(value, str) else f"{value}L"


def _call(function: str, arguments: tuple[Node, ...]) -> str:
    given = [expression(argument) for argument in arguments]
    if arguments[0].type == Type.FLOAT64 and function in _FLOATS:
        return _FLOATS[function](*given)
    return _CALLS[function](*given)


_Form = Callable[..., str]


def _infix(sign: str) -> _Form:
    return lambda left, right: f"({left} {sign} {right})"


def _plain(name: str) -> _Form:
    return lambda *arguments: f"{name}({', '.join(arguments)})"


def _finite(form: _Form) -> _Form:
    return lambda *arguments: finite(form(*arguments))


def _number(form: str) -> _Form:
    """A whole number of Spark's own narrower types as one of 64 bits."""
    return lambda value: f"CAST({form.format(value)} AS BIGINT)"


def _whole(form: str) -> _Form:
    """A float made whole; null where that leaves 64 bits."""

    def made(value: str) -> str:
        low_enough = f"nullif(least({value}, {_ABOVE}), {_ABOVE})"
        return f"CAST({form.format(f'nullif(greatest({low_enough}, {_BELOW}), {_BELOW})')} AS BIGINT)"

    return made


def _matching(pattern: str, kind: str) -> _Form:
    """A text that looks as it must, converted; null for the others, for which the empty text stands."""
    return lambda value: f"CAST(regexp_extract({value}, {text(pattern)}, 0) AS {kind})"


def _extract(value: str, pattern: str, group: str) -> str:
    return f"get(regexp_extract_all({value}, {pattern}, CAST({group} AS INT)), 0)"


def _substring(value: str, start: str, *length: str) -> str:
    return f"substring({', '.join([value, *(f'CAST({number} AS INT)' for number in (start, *length))])})"


def _div(left: str, right: str) -> str:
    quotient = "CASE WHEN pair.r = -1L THEN try_subtract(0L, pair.l) ELSE pair.l div pair.r END"
    return f"transform(array(named_struct('l', {left}, 'r', {right})), pair -> {quotient})[0]"


#: What floats need beyond, or instead of, the form for whole numbers.
_FLOATS: Final[Mapping[str, _Form]] = {
    "abs": _plain("abs"),
    "add": _finite(_infix("+")),
    "ceil": _whole("ceil({0})"),
    "divide": _finite(_infix("/")),
    "exp": _finite(_plain("exp")),
    "floor": _whole("floor({0})"),
    "ln": _finite(_plain("ln")),
    "log10": _finite(_plain("log10")),
    "multiply": _finite(_infix("*")),
    "negate": lambda value: f"(- {value})",
    "power": _finite(_plain("power")),
    "round": _whole("round({0})"),
    "sqrt": _finite(_plain("sqrt")),
    "subtract": _finite(_infix("-")),
}

_CALLS: Final[Mapping[str, _Form]] = {
    "abs": lambda value: f"nullif(abs({value}), {_MIN_BIGINT})",
    "add": _plain("try_add"),
    "subtract": _plain("try_subtract"),
    "multiply": _plain("try_multiply"),
    "negate": lambda value: f"try_subtract(0L, {value})",
    "div": _div,
    "mod": _infix("%"),
    "eq": _infix("="),
    "ne": _infix("<>"),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "and": _infix("AND"),
    "or": _infix("OR"),
    "not": lambda value: f"(NOT {value})",
    "is_null": lambda value: f"({value} IS NULL)",
    "like": _infix("LIKE"),
    "concat": _plain("concat"),
    "contains": _plain("contains"),
    "ends_with": _plain("endswith"),
    "greatest": _plain("greatest"),
    "hour": _number("hour({0})"),
    "least": _plain("least"),
    "length": _number("char_length({0})"),
    "lower": lambda value: f"translate({value}, '{ascii_uppercase}', '{ascii_lowercase}')",
    "ltrim": _plain("ltrim"),
    "minute": _number("minute({0})"),
    "regexp_extract": _extract,
    "regexp_like": _infix("RLIKE"),
    "regexp_replace": _plain("regexp_replace"),
    "replace": _plain("replace"),
    "rtrim": _plain("rtrim"),
    "second": _number("second({0})"),
    "starts_with": _plain("startswith"),
    "substring": _substring,
    "timestamp_micros": _plain("timestamp_micros"),
    "trim": _plain("trim"),
    "unix_micros": _plain("unix_micros"),
    "upper": lambda value: f"translate({value}, '{ascii_lowercase}', '{ascii_uppercase}')",
}

_CASTS: Final[Mapping[tuple[Type, Type], _Form]] = {
    (Type.INT64, Type.FLOAT64): lambda value: f"CAST({value} AS DOUBLE)",
    (Type.INT64, Type.STRING): lambda value: f"CAST({value} AS STRING)",
    (Type.FLOAT64, Type.INT64): _whole("{0}"),
    (Type.BOOL, Type.INT64): lambda value: f"CAST({value} AS BIGINT)",
    (Type.BOOL, Type.STRING): lambda value: f"CAST({value} AS STRING)",
    (Type.STRING, Type.INT64): _matching(INT_PATTERN, "BIGINT"),
    (Type.STRING, Type.FLOAT64): _finite(_matching(FLOAT_PATTERN, "DOUBLE")),
    (Type.STRING, Type.BOOL): lambda value: f"(CASE {value} WHEN 'true' THEN true WHEN 'false' THEN false END)",
    (Type.STRING, Type.TIMESTAMP): _matching(TIMESTAMP_PATTERN, "TIMESTAMP"),
}
