"""Functions that an expression may call, and the conversions of their arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.dataflow.expressions.nodes import Call, CaseWhen, Cast, Literal, Node, is_larger
from engine.dataflow.expressions.patterns import PatternError, fits_nothing, portable_pattern
from engine.dataflow.types import NUMERIC, Type, timestamp_us
from engine.errors import value_words
from engine.words import listed

__all__ = [
    "AGGREGATES",
    "FUNCTIONS",
    "OPERATORS",
    "Argument",
    "ExpressionError",
    "Signature",
    "call_function",
    "check_size",
    "coalesce_nodes",
    "common_type",
    "compare_nodes",
    "constant",
    "convert_node",
    "negation",
    "number",
    "regex",
    "require_type",
    "timestamp",
]

#: Aggregates by whether a small state of theirs can be updated record by record, and merged (rule 1).
AGGREGATES: Final[Mapping[str, bool]] = {
    "avg": True,
    "count": True,
    "max": True,
    "min": True,
    "quantile": True,
    "sum": True,
    "median": False,
    "percentile": False,
}
_LARGEST: Final = 2**63 - 1
_MAX_NODES: Final = 2_000
_MAX_PLACE: Final = 4_000  # of a position in a text


@dataclass(frozen=True)
class Argument:
    """Allowed types of one argument. `constant` names the kind of constant needed: text, regex, plain, or a number."""

    types: frozenset[Type]
    constant: str = ""

    def allowed(self) -> str:
        kinds = " or ".join(sorted(self.types))
        return f"a constant {kinds}" if self.constant else kinds


@dataclass(frozen=True)
class Signature:
    """Arguments of a function; the last `optional` ones may be left out, the last one of a `repeated` may be many.

    `result` None: the type of the first argument.
    """

    arguments: tuple[Argument, ...]
    result: Type | None
    optional: int = 0
    repeated: bool = False


_TEXT = Argument(frozenset({Type.STRING}))
_PLAIN = Argument(frozenset({Type.STRING}), constant="text")
_PATTERN = Argument(frozenset({Type.STRING}), constant="regex")
_FLOAT = Argument(frozenset({Type.FLOAT64}))
_NUMBER = Argument(NUMERIC)
_TIME = Argument(frozenset({Type.TIMESTAMP}))
_WHOLE = Argument(frozenset({Type.INT64}))
_COUNT = Argument(frozenset({Type.INT64}), constant="a number of at least 0")
_PLACE = Argument(frozenset({Type.INT64}), constant="a number of at least 1")


def _same(argument: Argument) -> Signature:
    return Signature((argument,), None)


FUNCTIONS: Final[Mapping[str, Signature]] = {
    "abs": _same(_NUMBER),
    "ceil": Signature((_NUMBER,), Type.INT64),
    "concat": Signature((_TEXT,), Type.STRING, repeated=True),
    "contains": Signature((_TEXT, _PLAIN), Type.BOOL),
    "ends_with": Signature((_TEXT, _PLAIN), Type.BOOL),
    "exp": Signature((_FLOAT,), Type.FLOAT64),
    "floor": Signature((_NUMBER,), Type.INT64),
    "greatest": Signature((_NUMBER,), None, repeated=True),
    "hour": Signature((_TIME,), Type.INT64),
    "least": Signature((_NUMBER,), None, repeated=True),
    "length": Signature((_TEXT,), Type.INT64),
    "ln": Signature((_FLOAT,), Type.FLOAT64),
    "log10": Signature((_FLOAT,), Type.FLOAT64),
    "lower": _same(_TEXT),
    "ltrim": _same(_TEXT),
    "minute": Signature((_TIME,), Type.INT64),
    "power": Signature((_FLOAT, _FLOAT), Type.FLOAT64),
    "regexp_extract": Signature((_TEXT, _PATTERN, _COUNT), Type.STRING),
    "regexp_like": Signature((_TEXT, _PATTERN), Type.BOOL),
    "regexp_replace": Signature((_TEXT, _PATTERN, _PLAIN), Type.STRING),
    "replace": Signature((_TEXT, _PLAIN, _PLAIN), Type.STRING),
    "round": Signature((_NUMBER,), Type.INT64),
    "rtrim": _same(_TEXT),
    "second": Signature((_TIME,), Type.INT64),
    "sqrt": Signature((_FLOAT,), Type.FLOAT64),
    "starts_with": Signature((_TEXT, _PLAIN), Type.BOOL),
    "substring": Signature((_TEXT, _PLACE, _COUNT), Type.STRING, optional=1),
    "timestamp_micros": Signature((_WHOLE,), Type.TIMESTAMP),
    "trim": _same(_TEXT),
    "unix_micros": Signature((_TIME,), Type.INT64),
    "upper": _same(_TEXT),
}

#: Names of the calls that operators of SQL stand for. Both sides of a binary one have one type.
OPERATORS: Final = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "div", "mod", "negate"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
        *("and", "or", "not", "is_null", "like"),
    }
)


class ExpressionError(Exception):
    """Fault of an expression, in words; `allowed` may be empty."""


def check_size(node: Node) -> Node:
    """The node, if it is not too large: what is short for something longer doubles with every nesting."""
    if is_larger(node, _MAX_NODES):
        raise ExpressionError(
            f"it is too large once written out; allowed: {_MAX_NODES} columns, constants and functions"
        )
    return node


def compare_nodes(name: str, left: Node, right: Node) -> Node:
    """A comparison of two values, as values of one type."""
    kind = common_type([left, right], "a comparison")
    if kind == Type.BOOL and name not in ("eq", "ne"):
        raise ExpressionError("truth values have no order; allowed: = and <>")
    return Call(name, (convert_node(left, kind, name), convert_node(right, kind, name)), Type.BOOL)


def negation(node: Node) -> Node:
    """Negation of a condition."""
    return Call("not", (node,), Type.BOOL)


def number(text: str) -> Literal:
    """A constant as written; with a point or an exponent it is a float."""
    if text.lstrip("-").isdigit():
        value = int(text)
        if not -_LARGEST - 1 <= value <= _LARGEST:
            raise ExpressionError(f"{text} is out of range; allowed: whole numbers of 64 bits")
        return Literal(value, Type.INT64)
    if math.isinf(real := float(text)):
        raise ExpressionError(f"{text} is out of range; allowed: numbers up to 1.79e308")
    return Literal(real, Type.FLOAT64)


def timestamp(text: str) -> Literal:
    """A constant instant."""
    value = timestamp_us(text)
    if value is None:
        raise ExpressionError(f"timestamp {text!r} cannot be read; allowed: YYYY-MM-DD hh:mm:ss[.ffffff][Z], in UTC")
    return Literal(value, Type.TIMESTAMP)


def require_type(node: Node, kinds: frozenset[Type], by: str) -> None:
    """Refuse a node of another type."""
    if node.type not in kinds:
        raise ExpressionError(f"{by} is given a {node.type}; allowed: {' or '.join(sorted(kinds))}")


def common_type(nodes: list[Node], by: str) -> Type:
    """The type that all can be converted to without being told: whole numbers become floats beside floats."""
    kinds = {node.type for node in nodes}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == NUMERIC:
        return Type.FLOAT64
    if not kinds:
        raise ExpressionError(f"{by} has null alone; allowed: at least one typed value")
    raise ExpressionError(f"{by} is given {listed(sorted(kinds))}; allowed: values of one type")


def convert_node(node: Node, kind: Type, by: str) -> Node:
    """The node as one of that type, if that conversion is made unasked."""
    if node.type == kind:
        return node
    if node.type == Type.INT64 and kind == Type.FLOAT64:
        if isinstance(node, Literal) and isinstance(node.value, int):
            return Literal(float(node.value), kind)
        return Cast(node, kind)
    raise ExpressionError(f"{by} is given {node.type} for {kind}")


def coalesce_nodes(values: list[Node], kind: Type) -> Node:
    """The first of the values that is not null."""
    *earlier, last = values
    if not earlier:
        return last
    branches = tuple((negation(Call("is_null", (node,), Type.BOOL)), node) for node in earlier)
    return CaseWhen(branches, last, kind)


def regex(node: Node, *, group: int = 0) -> Literal:
    """A constant pattern in its portable form, which has at least that many groups."""
    if not isinstance(node, Literal) or not isinstance(node.value, str):
        raise ExpressionError("a regular expression must be a constant text")
    try:
        made = portable_pattern(node.value)
    except PatternError as error:
        raise ExpressionError(f"the pattern {value_words(node.value)}: {error}") from None
    if group > len(made.names):
        raise ExpressionError(f"the pattern has {len(made.names)} groups; allowed: a group from 0 to {len(made.names)}")
    return Literal(made.text, Type.STRING)


def call_function(name: str, signature: Signature, given: list[Node]) -> Node:
    """A call of a function with what it is given, checked."""
    wanted = list(signature.arguments)
    if signature.repeated and len(given) > len(wanted):
        wanted += [wanted[-1]] * (len(given) - len(wanted))
    if not len(wanted) - signature.optional <= len(given) <= len(wanted):
        allowed = " or ".join(str(n) for n in range(len(wanted) - signature.optional, len(wanted) + 1))
        raise ExpressionError(f"{name} is given {len(given)} arguments; allowed: {allowed}")
    if signature.result is None and len(given) > 1:
        kind = common_type(given, name)
        given = [convert_node(argument_node, kind, name) for argument_node in given]
    made = [_fitted(name, argument_node, argument) for argument_node, argument in zip(given, wanted, strict=False)]
    if name == "regexp_extract":
        made[1] = regex(given[1], group=int(constant(made[2])))
    if name == "regexp_replace" and set("\\$") & set(str(constant(made[2]))):
        raise ExpressionError(
            f"regexp_replace puts in {value_words(constant(made[2]))}; allowed: a text without \\ and $"
        )
    if name == "regexp_replace" and fits_nothing(str(constant(made[1]))):
        pattern = value_words(constant(given[1]))
        raise ExpressionError(
            f"regexp_replace looks for {pattern}, which fits nothing too; allowed: a pattern that needs a character"
        )
    if name == "replace" and not constant(made[1]):
        raise ExpressionError("replace looks for an empty text; allowed: at least one character")
    if name in ("floor", "ceil", "round") and made[0].type == Type.INT64:
        return made[0]
    return Call(name, tuple(made), signature.result or made[0].type)


def constant(node: Node) -> Any:
    """The value of a constant, None for anything else."""
    return node.value if isinstance(node, Literal) else None


def _fitted(name: str, node: Node, argument: Argument) -> Node:
    """The argument as the function takes it."""
    if argument.types == {Type.FLOAT64} and node.type == Type.INT64:
        node = convert_node(node, Type.FLOAT64, name)
    require_type(node, argument.types, name)
    if argument.constant == "regex":
        return regex(node)
    if argument.constant and constant(node) is None:
        raise ExpressionError(f"{name} needs {argument.allowed()}")
    least = {"a number of at least 0": 0, "a number of at least 1": 1}.get(argument.constant)
    if least is not None and not least <= constant(node) <= _MAX_PLACE:
        raise ExpressionError(f"{name} is given {constant(node)}; allowed: a whole number from {least} to {_MAX_PLACE}")
    return node
