"""SQL text to typed expressions: sqlglot reads, this module checks, types and makes everything implied explicit.

Functions are kept away from sqlglot's own table, which renames and rearranges them: what is not listed in
`engine.dataflow.functions` is refused, whatever other dialects know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from sqlglot import exp, parser
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from engine.dataflow.expressions import Call, Case, Cast, Column, In, Literal, Node
from engine.dataflow.functions import AGGREGATES, FUNCTIONS, Argument, Signature
from engine.dataflow.patterns import PatternError, fits_nothing, portable
from engine.dataflow.times import timestamp_us
from engine.dataflow.types import NUMERIC, Columns, Type
from engine.errors import Fault
from engine.wording import show, suggest

__all__ = ["AggregateCall", "read_aggregate", "read_expression"]

MOST_TEXT = 4_000
_LARGEST = 2**63 - 1
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


class _Refused(Exception):
    """What is wrong with an expression, in words; `allowed` may be empty."""


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


def read_expression(text: str, columns: Columns, path: str, name: str, faults: list[Fault]) -> Node | None:
    """The typed expression of `text`, or None after noting what is wrong with it."""
    return _guarded(text, path, name, faults, lambda tree: _read(tree, _Typing(columns)))


def read_aggregate(text: str, columns: Columns, path: str, name: str, faults: list[Fault]) -> AggregateCall | None:
    """The typed aggregate of `text`, or None after noting what is wrong with it."""
    return _guarded(text, path, name, faults, lambda tree: _aggregate(tree, _Typing(columns)))


def _guarded(text: str, path: str, name: str, faults: list[Fault], read: Callable[[Any], _T]) -> _T | None:
    try:
        return read(_tree(text))
    except _Refused as refused:
        faults.append(Fault(path, f"{name} is {show(text)}: {refused}"))
    except RecursionError:
        faults.append(Fault(path, f"{name} is {show(text)}: {_TOO_DEEP}"))
    return None


def _read(tree: Any, typing: _Typing) -> Node:
    typing.check_columns(tree)
    return typing.node(tree)


def _tree(text: str) -> Any:
    if len(text) > MOST_TEXT:
        raise _Refused(f"it has {len(text)} characters; allowed: {MOST_TEXT}")
    try:
        trees = _Subset().parse(text)
    except SqlglotError as error:
        raise _Refused(f"it cannot be read{_place(error)}; allowed: one SQL expression") from None
    if len(trees) != 1 or trees[0] is None:
        raise _Refused("allowed: one SQL expression")
    _check_depth(trees[0])
    return trees[0]


def _check_depth(tree: Any) -> None:
    """Level by level: what one process could still walk down, another with more on its stack could not."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise _Refused(_TOO_DEEP)
        level = [child for node in level for child in node.iter_expressions()]


def _place(error: SqlglotError) -> str:
    listed: list[Mapping[str, Any]] = getattr(error, "errors", [])
    if not listed or not listed[0].get("highlight"):
        return ""
    return f" at {listed[0]['highlight']!r}, column {listed[0].get('col')}"


class _Typing:
    """Makes typed nodes of sqlglot's tree, over given columns."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def node(self, tree: Any) -> Node:
        made = self._leaf(tree) or self._logic(tree) or self._operation(tree) or self._choice(tree)
        if made is None:
            raise _Refused(f"{_words(tree)} is not known here; allowed: {_KNOWN}")
        return made

    def check_columns(self, tree: Any) -> None:
        """All unknown columns at once."""
        unknown = {column.sql(): None for column in tree.find_all(exp.Column) if not self._is_column(column)}
        if unknown:
            near = suggest(next(iter(unknown)), list(self.columns))
            raise _Refused(f"{', '.join(unknown)} is no column here; allowed: {', '.join(self.columns)}{near}")

    def _is_column(self, tree: Any) -> bool:
        return set(_given(tree)) == {"this"} and tree.name in self.columns

    def _leaf(self, tree: Any) -> Node | None:
        if isinstance(tree, exp.Column):
            return Column(tree.name, self.columns[tree.name])
        if isinstance(tree, exp.Boolean):
            return Literal(bool(tree.this), Type.BOOL)
        if isinstance(tree, exp.Literal):
            return Literal(tree.this, Type.STRING) if tree.is_string else _number(tree.this)
        if isinstance(tree, exp.Null):
            raise _Refused("null has no type here; allowed: is null, null as a result of case, or cast(null as a type)")
        return self.node(tree.this) if isinstance(tree, exp.Paren) else None

    def _logic(self, tree: Any) -> Node | None:
        if isinstance(tree, exp.Not):
            return _not(self._typed(tree.this, Type.BOOL, "not"))
        if isinstance(tree, exp.Is):
            return self._is(tree)
        if isinstance(tree, exp.In):
            return self._in(tree)
        if isinstance(tree, exp.Between):
            _only(tree, "this", "low", "high")
            low = self._compared("ge", tree.this, tree.args["low"])
            high = self._compared("le", tree.this, tree.args["high"])
            return Call("and", (low, high), Type.BOOL)
        if isinstance(tree, (exp.Like, exp.RegexpLike)):
            return self._matched(tree)
        return None

    def _is(self, tree: Any) -> Node:
        _only(tree, "this", "expression", "negate")
        if not isinstance(tree.expression, exp.Null):
            raise _Refused("is takes null; allowed: is null, is not null")
        return _negated(tree, Call("is_null", (self.node(tree.this),), Type.BOOL))

    def _in(self, tree: Any) -> Node:
        _only(tree, "this", "expressions", "negate")
        argument = self.node(tree.this)
        options = [_converted(self.node(option), argument.type, "in") for option in tree.expressions]
        constants = tuple(option for option in options if isinstance(option, Literal))
        if len(constants) != len(options) or not options:
            raise _Refused("in takes a list of constants of the type of what is looked up")
        return _negated(tree, In(argument, constants))

    def _matched(self, tree: Any) -> Node:
        _only(tree, "this", "expression", "negate")
        text = self._typed(tree.this, Type.STRING, "like")
        pattern = self.node(tree.expression)
        if isinstance(tree, exp.RegexpLike):
            return _negated(tree, Call("regexp_like", (text, _regex(pattern)), Type.BOOL))
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str) or "\\" in pattern.value:
            raise _Refused("like takes a constant text with % and _ and without backslash; see regexp_like for more")
        return _negated(tree, Call("like", (text, pattern), Type.BOOL))

    def _operation(self, tree: Any) -> Node | None:
        if isinstance(tree, exp.Neg):
            return self._negative(tree)
        if not isinstance(tree, _BINARY):
            return None
        if type(tree) in _COMPARISONS:
            return self._compared(_COMPARISONS[type(tree)], tree.left, tree.right)
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
            return _number("-" + tree.this.this)
        argument = self.node(tree.this)
        _must(argument, NUMERIC, "-")
        return Call("negate", (argument,), argument.type)

    def _arithmetic(self, tree: Any) -> Node:
        left, right = self.node(tree.left), self.node(tree.right)
        sign = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "div"}.get(type(tree), "%")
        whole = type(tree) in _WHOLE
        for side in (left, right):
            _must(side, frozenset({Type.INT64}) if whole else NUMERIC, sign)
        if whole:
            return Call(_WHOLE[type(tree)], (left, right), Type.INT64)
        kind = Type.FLOAT64 if isinstance(tree, exp.Div) else _common([left, right], sign)
        sides = (_converted(left, kind, sign), _converted(right, kind, sign))
        return Call(_ARITHMETIC.get(type(tree), "divide"), sides, kind)

    def _compared(self, name: str, left: Any, right: Any) -> Node:
        sides = [self.node(left), self.node(right)]
        kind = _common(sides, "a comparison")
        if kind == Type.BOOL and name not in ("eq", "ne"):
            raise _Refused("truth values have no order; allowed: = and <>")
        return Call(name, (_converted(sides[0], kind, name), _converted(sides[1], kind, name)), Type.BOOL)

    def _choice(self, tree: Any) -> Node | None:
        if isinstance(tree, (exp.Cast, exp.TryCast)):
            return self._cast(tree)
        if isinstance(tree, exp.Case):
            subject, branches = tree.this, tree.args["ifs"]
            whens = [self._when(subject, branch.this) for branch in branches]
            return self._case(whens, [*(branch.args["true"] for branch in branches), tree.args.get("default")])
        if isinstance(tree, exp.If):
            return self._case([self._when(None, tree.this)], [tree.args["true"], tree.args.get("false")])
        if isinstance(tree, exp.Anonymous):
            return self._call(str(tree.this).lower(), tree.expressions)
        return None

    def _when(self, subject: Any, condition: Any) -> Node:
        return (
            self._typed(condition, Type.BOOL, "when") if subject is None else self._compared("eq", subject, condition)
        )

    def _case(self, whens: list[Node], results: list[Any]) -> Node:
        """A case; a result that is null or left out takes the type of the others."""
        typed = [None if one is None or isinstance(one, exp.Null) else self.node(one) for one in results]
        kind = _common([one for one in typed if one is not None], "case")
        values = [Literal(None, kind) if one is None else _converted(one, kind, "case") for one in typed]
        return Case(tuple(zip(whens, values[:-1], strict=True)), values[-1], kind)

    def _cast(self, tree: Any) -> Node:
        target = tree.args["to"]
        name = (str(target.args.get("kind") or "") or target.this.value).lower()
        kind = _CASTS.get(name)
        if kind is None:
            raise _Refused(f"cast to {name} is not known; allowed: {', '.join(sorted(Type))}")
        if isinstance(tree.this, exp.Null):
            return Literal(None, kind)
        argument = self.node(tree.this)
        if kind == Type.TIMESTAMP and isinstance(argument, Literal) and isinstance(argument.value, str):
            return _timestamp(argument.value)
        if argument.type == kind:
            return argument
        if (argument.type, kind) not in _CONVERTS:
            raise _Refused(f"cast from {argument.type} to {kind} is not known{_INSTEAD.get((argument.type, kind), '')}")
        return Cast(argument, kind)

    def _call(self, name: str, given: list[Any]) -> Node:
        if name == "coalesce" and given:
            values = [self.node(one) for one in given]
            kind = _common(values, name)
            return _coalesced([_converted(one, kind, name) for one in values], kind)
        if name == "nullif" and len(given) == 2:
            first, same = self.node(given[0]), self._compared("eq", given[0], given[1])
            return Case(((same, Literal(None, first.type)),), first, first.type)
        signature = FUNCTIONS.get(name)
        if signature is None:
            hint = "; aggregates stand in compute alone" if name in AGGREGATES else ""
            raise _Refused(f"{name} is not a function here; allowed: {_ALLOWED}{hint}{suggest(name, list(FUNCTIONS))}")
        return _called(name, signature, [self.node(one) for one in given])

    def _typed(self, tree: Any, kind: Type, by: str) -> Node:
        made = self.node(tree)
        _must(made, frozenset({kind}), by)
        return made


_ALLOWED: Final = ", ".join([*FUNCTIONS, "coalesce", "nullif", "if", "cast"])
_KNOWN: Final = (
    "columns, numbers, texts, + - * / % div ||, comparisons, and, or, not, in, between, like, rlike, is null, case, "
    "cast, and functions"
)
_INSTEAD: Final = {
    (Type.INT64, Type.TIMESTAMP): "; allowed: timestamp_micros()",
    (Type.TIMESTAMP, Type.INT64): "; allowed: unix_micros()",
    (Type.INT64, Type.BOOL): "; allowed: a comparison",
    (Type.FLOAT64, Type.STRING): "; engines print such numbers differently",
}


def _given(tree: Any) -> dict[str, Any]:
    return {name: value for name, value in tree.args.items() if value}


def _only(tree: Any, *names: str) -> None:
    """Refuse what a construct has besides its plain form, such as an escape character."""
    if extra := set(_given(tree)) - set(names):
        raise _Refused(f"{_words(tree)} with {', '.join(sorted(extra))} is not known here")


def _words(tree: Any) -> str:
    return show(tree.sql())


def _not(node: Node) -> Node:
    return Call("not", (node,), Type.BOOL)


def _negated(tree: Any, node: Node) -> Node:
    return _not(node) if tree.args.get("negate") else node


def _number(text: str) -> Literal:
    if text.lstrip("-").isdigit():
        value = int(text)
        if not -_LARGEST - 1 <= value <= _LARGEST:
            raise _Refused(f"{text} is out of range; allowed: whole numbers of 64 bits")
        return Literal(value, Type.INT64)
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _Refused(f"{text} is out of range; allowed: numbers up to 1.79e308")
    return Literal(number, Type.FLOAT64)


def _timestamp(text: str) -> Literal:
    value = timestamp_us(text)
    if value is None:
        raise _Refused(f"timestamp {text!r} cannot be read; allowed: YYYY-MM-DD hh:mm:ss[.ffffff][Z], in UTC")
    return Literal(value, Type.TIMESTAMP)


def _must(node: Node, kinds: frozenset[Type], by: str) -> None:
    if node.type not in kinds:
        raise _Refused(f"{by} is given a {node.type}; allowed: {' or '.join(sorted(kinds))}")


def _common(nodes: list[Node], by: str) -> Type:
    """The type that all can be converted to without being told: whole numbers become floats beside floats."""
    kinds = {node.type for node in nodes}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == NUMERIC:
        return Type.FLOAT64
    if not kinds:
        raise _Refused(f"{by} has null alone; allowed: at least one typed value")
    raise _Refused(f"{by} is given {' and '.join(sorted(kinds))}; allowed: values of one type")


def _converted(node: Node, kind: Type, by: str) -> Node:
    if node.type == kind:
        return node
    if node.type == Type.INT64 and kind == Type.FLOAT64:
        if isinstance(node, Literal) and isinstance(node.value, int):
            return Literal(float(node.value), kind)
        return Cast(node, kind)
    raise _Refused(f"{by} is given {node.type} for {kind}")


def _coalesced(values: list[Node], kind: Type) -> Node:
    *earlier, last = values
    if not earlier:
        return last
    branches = tuple((_not(Call("is_null", (one,), Type.BOOL)), one) for one in earlier)
    return Case(branches, last, kind)


def _regex(node: Node, *, group: int = 0) -> Literal:
    if not isinstance(node, Literal) or not isinstance(node.value, str):
        raise _Refused("a regular expression must be a constant text")
    try:
        made = portable(node.value)
    except PatternError as error:
        raise _Refused(f"the pattern {show(node.value)}: {error}") from None
    if group > len(made.names):
        raise _Refused(f"the pattern has {len(made.names)} groups; allowed: a group from 0 to {len(made.names)}")
    return Literal(made.text, Type.STRING)


def _called(name: str, signature: Signature, given: list[Node]) -> Node:
    wanted = list(signature.arguments)
    if signature.repeated and len(given) > len(wanted):
        wanted += [wanted[-1]] * (len(given) - len(wanted))
    if not len(wanted) - signature.optional <= len(given) <= len(wanted):
        allowed = " or ".join(str(n) for n in range(len(wanted) - signature.optional, len(wanted) + 1))
        raise _Refused(f"{name} is given {len(given)} arguments; allowed: {allowed}")
    if signature.result is None and len(given) > 1:
        kind = _common(given, name)
        given = [_converted(one, kind, name) for one in given]
    made = [_fitted(name, one, argument) for one, argument in zip(given, wanted, strict=False)]
    if name == "regexp_extract":
        made[1] = _regex(given[1], group=int(_constant(made[2])))
    if name == "regexp_replace" and set("\\$") & set(str(_constant(made[2]))):
        raise _Refused(f"regexp_replace puts in {show(_constant(made[2]))}; allowed: a text without \\ and $")
    if name == "regexp_replace" and fits_nothing(str(_constant(made[1]))):
        pattern = show(_constant(given[1]))
        raise _Refused(
            f"regexp_replace looks for {pattern}, which fits nothing too; allowed: a pattern that needs a character"
        )
    if name == "replace" and not _constant(made[1]):
        raise _Refused("replace looks for an empty text; allowed: at least one character")
    if name in ("floor", "ceil", "round") and made[0].type == Type.INT64:
        return made[0]
    return Call(name, tuple(made), signature.result or made[0].type)


def _constant(node: Node) -> Any:
    return node.value if isinstance(node, Literal) else None


def _fitted(name: str, node: Node, argument: Argument) -> Node:
    """The argument as the function takes it."""
    if argument.types == {Type.FLOAT64} and node.type == Type.INT64:
        node = _converted(node, Type.FLOAT64, name)
    _must(node, argument.types, name)
    if argument.constant == "regex":
        return _regex(node)
    if argument.constant and _constant(node) is None:
        raise _Refused(f"{name} needs {argument.allowed()}")
    least = {"a number of at least 0": 0, "a number of at least 1": 1}.get(argument.constant)
    if least is not None and not least <= _constant(node) <= MOST_TEXT:
        raise _Refused(f"{name} is given {_constant(node)}; allowed: a whole number from {least} to {MOST_TEXT}")
    return node


def _aggregate(tree: Any, typing: _Typing) -> AggregateCall:
    name = str(tree.this).lower() if isinstance(tree, exp.Anonymous) else ""
    if name not in AGGREGATES:
        allowed = "count(*), count(x), sum(x), min(x), max(x), avg(x), quantile(x, q)"
        raise _Refused(f"it is no aggregate; allowed: {allowed}; a map after the aggregate computes with them")
    given = list(tree.expressions)
    if name == "count" and len(given) == 1 and isinstance(given[0], exp.Star):
        return AggregateCall("count", None, Type.INT64)
    distinct = name == "count" and len(given) == 1 and isinstance(given[0], exp.Distinct)
    if distinct:
        given = list(given[0].expressions)
    wanted = 2 if name in ("quantile", "percentile") else 1
    if len(given) != wanted:
        raise _Refused(f"{name} is given {len(given)} arguments; allowed: {wanted}")
    typing.check_columns(tree)
    argument = typing.node(given[0])
    _must(argument, _aggregated(name), name)
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
    value = _constant(node)
    if node.type not in NUMERIC or value is None or not 0 <= value <= 1:
        raise _Refused(f"{name} is given a share of {show(value)}; allowed: a constant from 0 to 1")
    return float(value)
