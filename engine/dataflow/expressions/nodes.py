"""Nodes of typed expressions: a closed set of six, made from SQL by `engine.dataflow.expressions.sql`.

A tree is explicit: every implied conversion stands in it as a `Cast`, ``between``, ``if``, ``coalesce`` and ``nullif``
as what they are short for, regular expressions in the form that RE2 and Java read alike. What each function means is
in ``docs/models/dataflow.md``; the functions are listed in `engine.dataflow.expressions.functions`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.dataflow.types import Type

__all__ = ["Call", "CaseWhen", "Cast", "ColumnRef", "In", "Literal", "Node", "canonical", "is_larger"]


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The value of a column."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; a timestamp is given in microseconds since 1970. `value` None is a null of the type."""

    value: bool | int | float | str | None
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator, by its name in `functions.FUNCTIONS` or `functions.OPERATORS`."""

    function: str
    arguments: tuple[Node, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion; what cannot be converted becomes null."""

    argument: Node
    type: Type


@dataclass(frozen=True, slots=True)
class CaseWhen:
    """The value of the first branch whose condition is true, or `otherwise`."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node
    type: Type


@dataclass(frozen=True, slots=True)
class In:
    """Whether the argument is one of some constants (none of them null); null where it is null."""

    argument: Node
    options: tuple[Literal, ...]
    type: Type = Type.BOOL


Node = ColumnRef | Literal | Call | Cast | CaseWhen | In


def canonical(node: Node) -> str:
    """One text for all spellings of an expression: the same tree gives the same text."""
    match node:
        case ColumnRef(name, kind):
            return f"{name}:{kind}"
        case Literal(value, kind):
            return f"{value!r}:{kind}"
        case Call(function, arguments, _):
            return f"{function}({','.join(map(canonical, arguments))})"
        case Cast(argument, kind):
            return f"cast({canonical(argument)},{kind})"
        case CaseWhen(branches, otherwise, _):
            listed = ",".join(f"{canonical(when)}?{canonical(then)}" for when, then in branches)
            return f"case({listed},{canonical(otherwise)})"
        case In(argument, options, _):
            return f"in({canonical(argument)},{','.join(map(canonical, options))})"


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case ColumnRef() | Literal():
            return ()
        case Call(_, arguments, _):
            return arguments
        case Cast(argument, _) | In(argument, _, _):
            return (argument,)
        case CaseWhen(branches, otherwise, _):
            return (*(part for branch in branches for part in branch), otherwise)


def is_larger(node: Node, most: int) -> bool:
    """Whether the tree has more nodes than that, those that stand in it several times counted as often."""
    waiting, count = [node], 0
    while waiting and count <= most:
        count += 1
        waiting += _parts(waiting.pop())
    return count > most
