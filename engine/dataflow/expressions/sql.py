"""SQL text to typed expressions: sqlglot reads, `engine.dataflow.expressions.sql_nodes` checks and types.

Functions are kept away from sqlglot's own table, which renames and rearranges them: what is not listed in
`engine.dataflow.expressions.functions` is refused, whatever other dialects know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from sqlglot import exp, parser
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from engine.dataflow.expressions.functions import AGGREGATES, ExpressionError, constant, require_type
from engine.dataflow.expressions.nodes import Node
from engine.dataflow.expressions.sql_nodes import Typing
from engine.dataflow.types import NUMERIC, Columns, Type
from engine.errors import Fault, value_words

__all__ = ["AggregateCall", "read_aggregate", "read_expression"]

MAX_TEXT = 4_000
_T = TypeVar("_T")
_DEEPEST = 100
_TOO_DEEP = f"it is nested too deeply; allowed: {_DEEPEST} levels, fewer of parentheses"


class _Parser(parser.Parser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS = {name: parser.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")}


class _Subset(Dialect):
    Parser = _Parser


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate as written: ``count(*)`` has no argument, quantile and percentile have `share`."""

    function: str
    argument: Node | None
    type: Type
    share: float | None = None
    distinct: bool = False


def read_expression(text: str, columns: Columns, path: str, name: str, faults: list[Fault]) -> Node | None:
    """The typed expression of `text`, or None after noting what is wrong with it."""
    return _guarded(text, path, name, faults, lambda tree: _read(tree, Typing(columns)))


def read_aggregate(text: str, columns: Columns, path: str, name: str, faults: list[Fault]) -> AggregateCall | None:
    """The typed aggregate of `text`, or None after noting what is wrong with it."""
    return _guarded(text, path, name, faults, lambda tree: _aggregate(tree, Typing(columns)))


def _guarded(text: str, path: str, name: str, faults: list[Fault], read: Callable[[Any], _T]) -> _T | None:
    try:
        return read(_tree(text))
    except ExpressionError as refused:
        faults.append(Fault(path, f"{name} is {value_words(text)}: {refused}"))
    except RecursionError:
        faults.append(Fault(path, f"{name} is {value_words(text)}: {_TOO_DEEP}"))
    return None


def _read(tree: Any, typing: Typing) -> Node:
    typing.check_columns(tree)
    return typing.node(tree)


def _tree(text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"it has {len(text)} characters; allowed: {MAX_TEXT}")
    try:
        trees = _Subset().parse(text)
    except SqlglotError as error:
        raise ExpressionError(f"it cannot be read{_place(error)}; allowed: one SQL expression") from None
    if len(trees) != 1 or trees[0] is None:
        raise ExpressionError("allowed: one SQL expression")
    _check_depth(trees[0])
    return trees[0]


def _check_depth(tree: Any) -> None:
    """Level by level: what one process could still walk down, another with more on its stack could not."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise ExpressionError(_TOO_DEEP)
        level = [child for node in level for child in node.iter_expressions()]


def _place(error: SqlglotError) -> str:
    listed: list[Mapping[str, Any]] = getattr(error, "errors", [])
    if not listed or not listed[0].get("highlight"):
        return ""
    return f" at {listed[0]['highlight']!r}, column {listed[0].get('col')}"


def _aggregate(tree: Any, typing: Typing) -> AggregateCall:
    name = str(tree.this).lower() if isinstance(tree, exp.Anonymous) else ""
    if name not in AGGREGATES:
        allowed = "count(*), count(x), sum(x), min(x), max(x), avg(x), quantile(x, q)"
        raise ExpressionError(f"it is no aggregate; allowed: {allowed}; a map after the aggregate computes with them")
    given = list(tree.expressions)
    if name == "count" and len(given) == 1 and isinstance(given[0], exp.Star):
        return AggregateCall("count", None, Type.INT64)
    distinct = name == "count" and len(given) == 1 and isinstance(given[0], exp.Distinct)
    if distinct:
        given = list(given[0].expressions)
    wanted = 2 if name in ("quantile", "percentile") else 1
    if len(given) != wanted:
        raise ExpressionError(f"{name} is given {len(given)} arguments; allowed: {wanted}")
    typing.check_columns(tree)
    argument = typing.node(given[0])
    require_type(argument, _aggregated(name), name)
    share = _share(name, typing.node(given[1])) if wanted == 2 else None
    return AggregateCall(name, argument, _result(name, argument.type), share, distinct)


def _aggregated(name: str) -> frozenset[Type]:
    if name == "count":
        return frozenset(Type)
    return NUMERIC if name not in ("min", "max") else NUMERIC | {Type.STRING, Type.TIMESTAMP}


def _result(name: str, kind: Type) -> Type:
    if name == "count":
        return Type.INT64
    return kind if name in ("sum", "min", "max") else Type.FLOAT64


def _share(name: str, node: Node) -> float:
    value = constant(node)
    if node.type not in NUMERIC or value is None or not 0 <= value <= 1:
        raise ExpressionError(f"{name} is given a share of {value_words(value)}; allowed: a constant from 0 to 1")
    return float(value)
