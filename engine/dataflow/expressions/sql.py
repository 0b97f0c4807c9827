"""SQL text to typed expressions: sqlglot reads, and what it has read is checked and typed.

Functions are kept away from sqlglot's own table, which renames and rearranges them: what is not listed in
`engine.dataflow.expressions.functions` is refused, whatever other dialects know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from sqlglot import exp, parser
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from engine.dataflow.expressions.functions import (
    AGGREGATES,
    FUNCTIONS,
    ExpressionError,
    call_function,
    check_size,
    coalesce_nodes,
    common_type,
    compare_nodes,
    constant,
    convert_node,
    negation,
    number,
    regex,
    require_type,
    timestamp,
)
from engine.dataflow.expressions.nodes import Call, CaseWhen, Cast, ColumnRef, In, Literal, Node
from engine.dataflow.types import NUMERIC, Columns, Type
from engine.errors import Fault, suggestion, value_words

__all__ = [
    "AggregateCall",
    "Typing",
    "read_aggregate",
    "read_expression",
]

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
    listed: list[Mapping[str, object]] = getattr(error, "errors", [])
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


_Signs = Mapping[Any, str]
_ARITHMETIC: _Signs = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}
_WHOLE: _Signs = {exp.IntDiv: "div", exp.Mod: "mod"}
_COMPARISONS: _Signs = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}
_LOGIC: _Signs = {exp.And: "and", exp.Or: "or"}
_BINARY: Final = (*_ARITHMETIC, *_WHOLE, *_COMPARISONS, *_LOGIC, exp.Div, exp.DPipe)
_CASTS: Final = {
    "bigint": Type.INT64,
    "int64": Type.INT64,
    "double": Type.FLOAT64,
    "float64": Type.FLOAT64,
    "text": Type.STRING,
    "string": Type.STRING,
    "boolean": Type.BOOL,
    "timestamp": Type.TIMESTAMP,
}
#: Conversions there are. The others would print floats or count seconds, and engines do that differently.
_CONVERTS: Final = frozenset(
    {
        *((Type.INT64, to) for to in (Type.FLOAT64, Type.STRING)),
        (Type.FLOAT64, Type.INT64),
        *((Type.BOOL, to) for to in (Type.INT64, Type.STRING)),
        *((Type.STRING, to) for to in Type if to != Type.STRING),
    }
)

_KNOWN: Final = (
    "columns, numbers, texts, + - * / % div ||, comparisons, and, or, not, in, between, like, rlike, is null, case, "
    "cast, and functions"
)


class Typing:
    """Translator of sqlglot's tree into typed nodes, over given columns."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def node(self, tree: Any) -> Node:
        made = self._leaf(tree) or self._logic(tree) or self._operation(tree) or self._choice(tree)
        if made is None:
            raise ExpressionError(f"{_words(tree)} is not known here; allowed: {_KNOWN}")
        return made

    def check_columns(self, tree: Any) -> None:
        """Refuse all unknown columns at once."""
        unknown = {column.sql(): None for column in tree.find_all(exp.Column) if not self._is_column(column)}
        if unknown:
            near = suggestion(next(iter(unknown)), list(self.columns))
            raise ExpressionError(f"{', '.join(unknown)} is no column here; allowed: {', '.join(self.columns)}{near}")

    def _is_column(self, tree: Any) -> bool:
        return set(_given(tree)) == {"this"} and tree.name in self.columns

    def _leaf(self, tree: Any) -> Node | None:
        if isinstance(tree, exp.Column):
            return ColumnRef(tree.name, self.columns[tree.name])
        if isinstance(tree, exp.Boolean):
            return Literal(bool(tree.this), Type.BOOL)
        if isinstance(tree, exp.Literal):
            return Literal(tree.this, Type.STRING) if tree.is_string else number(tree.this)
        if isinstance(tree, exp.Null):
            raise ExpressionError(
                "null has no type here; allowed: is null, null as a result of case, or cast(null as a type)"
            )
        return self.node(tree.this) if isinstance(tree, exp.Paren) else None

    def _logic(self, tree: Any) -> Node | None:
        if isinstance(tree, exp.Not):
            return negation(self._typed(tree.this, Type.BOOL, "not"))
        if isinstance(tree, exp.Is):
            return self._is(tree)
        if isinstance(tree, exp.In):
            return self._in(tree)
        if isinstance(tree, exp.Between):
            _only(tree, "this", "low", "high")
            value = self.node(tree.this)
            low = compare_nodes("ge", value, self.node(tree.args["low"]))
            high = compare_nodes("le", value, self.node(tree.args["high"]))
            return check_size(Call("and", (low, high), Type.BOOL))
        if isinstance(tree, (exp.Like, exp.RegexpLike)):
            return self._matched(tree)
        return None

    def _is(self, tree: Any) -> Node:
        _only(tree, "this", "expression", "negate")
        if not isinstance(tree.expression, exp.Null):
            raise ExpressionError("is takes null; allowed: is null, is not null")
        return _negated(tree, Call("is_null", (self.node(tree.this),), Type.BOOL))

    def _in(self, tree: Any) -> Node:
        _only(tree, "this", "expressions", "negate")
        argument = self.node(tree.this)
        options = [convert_node(self.node(option), argument.type, "in") for option in tree.expressions]
        constants = tuple(option for option in options if isinstance(option, Literal))
        if len(constants) != len(options) or not options:
            raise ExpressionError("in takes a list of constants of the type of what is looked up")
        return _negated(tree, In(argument, constants))

    def _matched(self, tree: Any) -> Node:
        _only(tree, "this", "expression", "negate")
        text = self._typed(tree.this, Type.STRING, "like")
        pattern = self.node(tree.expression)
        if isinstance(tree, exp.RegexpLike):
            return _negated(tree, Call("regexp_like", (text, regex(pattern)), Type.BOOL))
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str) or "\\" in pattern.value:
            raise ExpressionError(
                "like takes a constant text with % and _ and without backslash; see regexp_like for more"
            )
        return _negated(tree, Call("like", (text, pattern), Type.BOOL))

    def _operation(self, tree: Any) -> Node | None:
        if isinstance(tree, exp.Neg):
            return self._negative(tree)
        if not isinstance(tree, _BINARY):
            return None
        if type(tree) in _COMPARISONS:
            return compare_nodes(_COMPARISONS[type(tree)], self.node(tree.left), self.node(tree.right))
        if type(tree) in _LOGIC:
            name = _LOGIC[type(tree)]
            sides = (self._typed(tree.left, Type.BOOL, name), self._typed(tree.right, Type.BOOL, name))
            return Call(name, sides, Type.BOOL)
        if isinstance(tree, exp.DPipe):
            sides = (self._typed(tree.left, Type.STRING, "||"), self._typed(tree.right, Type.STRING, "||"))
            return Call("concat", sides, Type.STRING)
        return self._arithmetic(tree)

    def _negative(self, tree: Any) -> Node:
        if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            return number("-" + tree.this.this)
        argument = self.node(tree.this)
        require_type(argument, NUMERIC, "-")
        return Call("negate", (argument,), argument.type)

    def _arithmetic(self, tree: Any) -> Node:
        left, right = self.node(tree.left), self.node(tree.right)
        sign = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "div"}.get(type(tree), "%")
        whole = type(tree) in _WHOLE
        for side in (left, right):
            require_type(side, frozenset({Type.INT64}) if whole else NUMERIC, sign)
        if whole:
            return Call(_WHOLE[type(tree)], (left, right), Type.INT64)
        kind = Type.FLOAT64 if isinstance(tree, exp.Div) else common_type([left, right], sign)
        sides = (convert_node(left, kind, sign), convert_node(right, kind, sign))
        return Call(_ARITHMETIC.get(type(tree), "divide"), sides, kind)

    def _choice(self, tree: Any) -> Node | None:
        if isinstance(tree, (exp.Cast, exp.TryCast)):
            return self._cast(tree)
        if isinstance(tree, exp.Case):
            branches = tree.args["ifs"]
            subject = None if tree.this is None else self.node(tree.this)
            whens = [self._when(subject, branch.this) for branch in branches]
            return self._case(whens, [*(branch.args["true"] for branch in branches), tree.args.get("default")])
        if isinstance(tree, exp.If):
            return self._case([self._when(None, tree.this)], [tree.args["true"], tree.args.get("false")])
        if isinstance(tree, exp.Anonymous):
            return self._call(str(tree.this).lower(), tree.expressions)
        return None

    def _when(self, subject: Node | None, condition: Any) -> Node:
        if subject is None:
            return self._typed(condition, Type.BOOL, "when")
        return compare_nodes("eq", subject, self.node(condition))

    def _case(self, whens: list[Node], results: list[Any]) -> Node:
        """A case; a result that is null or left out takes the type of the others."""
        typed = [None if result is None or isinstance(result, exp.Null) else self.node(result) for result in results]
        kind = common_type([result for result in typed if result is not None], "case")
        values = [Literal(None, kind) if result is None else convert_node(result, kind, "case") for result in typed]
        return check_size(CaseWhen(tuple(zip(whens, values[:-1], strict=True)), values[-1], kind))

    def _cast(self, tree: Any) -> Node:
        target = tree.args["to"]
        name = (str(target.args.get("kind") or "") or target.this.value).lower()
        kind = _CASTS.get(name)
        if kind is None:
            raise ExpressionError(f"cast to {name} is not known; allowed: {', '.join(sorted(Type))}")
        if isinstance(tree.this, exp.Null):
            return Literal(None, kind)
        argument = self.node(tree.this)
        if kind == Type.TIMESTAMP and isinstance(argument, Literal) and isinstance(argument.value, str):
            return timestamp(argument.value)
        if argument.type == kind:
            return argument
        if (argument.type, kind) not in _CONVERTS:
            raise ExpressionError(
                f"cast from {argument.type} to {kind} is not known{_INSTEAD.get((argument.type, kind), '')}"
            )
        return Cast(argument, kind)

    def _call(self, name: str, given: list[Any]) -> Node:
        if name == "coalesce" and given:
            values = [self.node(tree) for tree in given]
            kind = common_type(values, name)
            return check_size(coalesce_nodes([convert_node(tree, kind, name) for tree in values], kind))
        if name == "nullif" and len(given) == 2:
            first = self.node(given[0])
            same = compare_nodes("eq", first, self.node(given[1]))
            return check_size(CaseWhen(((same, Literal(None, first.type)),), first, first.type))
        signature = FUNCTIONS.get(name)
        if signature is None:
            hint = "; aggregates stand in compute alone" if name in AGGREGATES else ""
            raise ExpressionError(
                f"{name} is not a function here; allowed: {_ALLOWED}{hint}{suggestion(name, list(FUNCTIONS))}"
            )
        return call_function(name, signature, [self.node(tree) for tree in given])

    def _typed(self, tree: Any, kind: Type, by: str) -> Node:
        made = self.node(tree)
        require_type(made, frozenset({kind}), by)
        return made


_ALLOWED: Final = ", ".join([*FUNCTIONS, "coalesce", "nullif", "if", "cast"])
_INSTEAD: Final = {
    (Type.INT64, Type.TIMESTAMP): "; allowed: timestamp_micros()",
    (Type.TIMESTAMP, Type.INT64): "; allowed: unix_micros()",
    (Type.INT64, Type.BOOL): "; allowed: a comparison",
    (Type.FLOAT64, Type.STRING): "; engines print such numbers differently",
}


def _given(tree: Any) -> dict[str, object]:
    return {name: value for name, value in tree.args.items() if value}


def _only(tree: Any, *names: str) -> None:
    """Refuse the parts of a construct besides its plain form, such as an escape character."""
    if extra := set(_given(tree)) - set(names):
        raise ExpressionError(f"{_words(tree)} with {', '.join(sorted(extra))} is not known here")


def _words(tree: Any) -> str:
    return value_words(tree.sql())


def _negated(tree: Any, node: Node) -> Node:
    return negation(node) if tree.args.get("negate") else node
