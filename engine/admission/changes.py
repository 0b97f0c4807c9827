"""Changes that an alternative carries and a later decision applies: read, checked, and joined.

Every change is a small record, which a page, a REST client or a job can keep as JSON and hand back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Discriminator

from engine.document.candidate import Candidate
from engine.document.deployment import Deployment, Replica
from engine.document.kinds import CAPACITY, CORES, ID, INDEX, POSITIVE, STATISTIC
from engine.document.open_hosts import OpenHosts
from engine.errors import DocumentError, Fault, suggestion, value_words
from engine.kinds import Enumeration, Number
from engine.records import BAD, Record, Words

__all__ = [
    "Change",
    "LaterStart",
    "NewNode",
    "ObjectiveChange",
    "OperatorMove",
    "RateChange",
    "join_changes",
    "moves_in",
    "nodes_in",
    "rate_share_in",
    "read_changes",
    "start_p_in",
    "start_s_in",
    "stored_changes",
    "without_moves",
]


@dataclass(frozen=True)
class RateChange(Record):
    """A share of its sources' events, with which the candidate is admitted."""

    TITLE: ClassVar[str] = "a change of rate"
    IDENTITY: ClassVar[tuple[str, ...]] = ()  #: fields whose values a later change that replaces it has in common

    kind: Literal["scale_rate"] = field(default="scale_rate", kw_only=True)
    query: Annotated[str, ID]
    share: Annotated[float, POSITIVE]


@dataclass(frozen=True)
class NewNode(Record):
    """A node more, with the links of another one."""

    TITLE: ClassVar[str] = "a new node"
    IDENTITY: ClassVar[tuple[str, ...]] = ("id",)

    kind: Literal["add_node"] = field(default="add_node", kw_only=True)
    id: Annotated[str, ID]
    like: Annotated[str, ID]
    capacity_cps: Annotated[float, CAPACITY]
    cores: Annotated[int | None, CORES] = None  #: None: as many as the other one


@dataclass(frozen=True)
class ObjectiveChange(Record):
    """Another objective of the candidate."""

    TITLE: ClassVar[str] = "a change of objective"
    IDENTITY: ClassVar[tuple[str, ...]] = ()

    kind: Literal["objective"] = field(default="objective", kw_only=True)
    query: Annotated[str, ID]
    statistic: Annotated[str, STATISTIC]
    bound_s: Annotated[float, POSITIVE]


@dataclass(frozen=True)
class OperatorMove(Record):
    """Another place of an operator."""

    TITLE: ClassVar[str] = "a move"
    IDENTITY: ClassVar[tuple[str, ...]] = ("operator",)

    kind: Literal["move"] = field(default="move", kw_only=True)
    operator: Annotated[str, ID]
    node: Annotated[str, ID]
    core: Annotated[int, INDEX] = 0


@dataclass(frozen=True)
class LaterStart(Record):
    """A later start of the candidate."""

    TITLE: ClassVar[str] = "a later start"
    IDENTITY: ClassVar[tuple[str, ...]] = ()

    kind: Literal["start_at"] = field(default="start_at", kw_only=True)
    p: Annotated[int, Number(least=1, whole=True), Words("first subinterval in which it reads")]
    seconds: Annotated[float | None, Number(least=0)] = None  #: None: where `p` begins


Change = Annotated[RateChange | NewNode | ObjectiveChange | OperatorMove | LaterStart, Discriminator("kind")]
_KINDS: dict[str, type[Record]] = {
    "scale_rate": RateChange,
    "add_node": NewNode,
    "objective": ObjectiveChange,
    "move": OperatorMove,
    "start_at": LaterStart,
}
_KIND = Enumeration(tuple(_KINDS))


def stored_changes(items: Iterable[Any]) -> tuple[Change, ...]:
    """Changes that a decision or a request keeps."""
    return tuple(cast("Change", _KINDS[item["kind"]].parse(item)) for item in items)


def moves_in(changes: Iterable[Change]) -> dict[str, Replica]:
    """Where changes move operators."""
    return {c.operator: Replica(c.node, c.core) for c in changes if isinstance(c, OperatorMove)}


def without_moves(changes: Iterable[Change], operators: Collection[str]) -> tuple[Change, ...]:
    """Changes that leave some operators where they are."""
    return tuple(c for c in changes if not (isinstance(c, OperatorMove) and c.operator in operators))


def nodes_in(changes: Iterable[Change]) -> list[NewNode]:
    """Nodes that changes add."""
    return [change for change in changes if isinstance(change, NewNode)]


def rate_share_in(changes: Iterable[Change]) -> float:
    """Share of its sources' events that the candidate reads with changes."""
    return next((change.share for change in changes if isinstance(change, RateChange)), 1.0)


def start_p_in(changes: Iterable[Change]) -> int:
    """First subinterval (from 1) in which the candidate reads with changes."""
    return max((change.p for change in changes if isinstance(change, LaterStart)), default=1)


def start_s_in(changes: Iterable[Change]) -> float:
    """Seconds into the horizon at which it starts to read."""
    return max((change.seconds or 0.0 for change in changes if isinstance(change, LaterStart)), default=0.0)


def join_changes(changes: Sequence[Change], more: Sequence[Change]) -> tuple[Change, ...]:
    """`changes` with `more` applied after them: a new rate, objective, start or place replaces the old one."""
    replaced = {_identity(change) for change in more}
    return (*(change for change in changes if _identity(change) not in replaced), *more)


def _identity(change: Change) -> tuple[Any, ...]:
    return (change.kind, *(getattr(change, name) for name in change.IDENTITY))


def read_changes(
    items: Any,
    running: Deployment,
    candidate: Candidate,
    *,
    may_move_neighbours: bool = True,
    closed_nodes: Collection[str] = (),
) -> tuple[Change, ...]:
    """Check changes against what they refer to; nothing moves to `closed_nodes`, which take nothing new.

    Raises
    ------
    DocumentError
        With every fault, each with its path under ``changes[i]``.
    """
    faults: list[Fault] = []
    if not isinstance(items, (list, tuple)):
        raise DocumentError([Fault("changes", f"changes is {value_words(items)}; allowed: a list")], "list of changes")
    read = [_read(item, i, faults) for i, item in enumerate(items)]
    checker = _Checker(running, candidate, may_move_neighbours, closed_nodes, faults)
    for i, change in enumerate(read):
        if isinstance(change, NewNode):
            read[i] = checker.node(change, f"changes[{i}]")
    checked = [checker.check(change, f"changes[{i}]") for i, change in enumerate(read) if change is not None]
    if faults:
        raise DocumentError(faults, "list of changes")
    return tuple(checked)


def _read(item: Any, index: int, faults: list[Fault]) -> Change | None:
    """One change of known kind without a fault in its fields, or None."""
    path = f"changes[{index}]"
    kind = item.get("kind") if isinstance(item, dict) else getattr(item, "kind", None)
    if kind is None:
        faults.append(Fault(f"{path}.kind", f"kind is missing; allowed: {', '.join(_KINDS)}"))
        return None
    if _KIND.read(kind, path, "kind", faults) is BAD:
        return None
    return cast("Change | None", _KINDS[kind].read(item, "changes", index, faults))


class _Checker:
    """Checker of changes: names, ranges, and no change given twice."""

    def __init__(
        self,
        running: Deployment,
        candidate: Candidate,
        may_move: bool,
        closed: Collection[str],
        faults: list[Fault],
    ) -> None:
        self.running, self.candidate, self.faults = running, candidate, faults
        self.may_move, self.hosts = may_move, OpenHosts(running, closed)
        self.cores = {node.id: node.cores for node in running.nodes}
        self.own = {operator.id for operator in candidate.operators}
        self.seen: set[tuple[Any, ...]] = set()

    def fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))

    def unknown(self, path: str, name: str, what: str, known: Sequence[str]) -> None:
        field = path.rsplit(".", 1)[-1]
        self.fault(path, f"{field} names {name!r}, which is no {what}{suggestion(name, known)}")

    def node(self, change: NewNode, path: str) -> NewNode:
        """Make a new node known, so that moves in the same list can use it."""
        like = self.running.node_index.get(change.like)
        if like is None:
            self.unknown(f"{path}.like", change.like, "node", list(self.running.node_index))
        elif change.id in self.running.node_index:
            self.fault(f"{path}.id", f"id {change.id!r} is a node already; allowed: a new name")
        elif change.cores is None:
            change = replace(change, cores=self.running.nodes[like].cores)
        self.cores.setdefault(change.id, change.cores or 1)
        return change

    def check(self, change: Change, path: str) -> Change:
        """The change with what it leaves open filled in."""
        identity = _identity(change)
        if identity in self.seen:
            self.fault(path, f"{change.kind} is given twice for the same thing; allowed: once")
        self.seen.add(identity)
        match change:
            case RateChange():
                self._query(change.query, path)
                if change.share > 1.0:
                    message = f"share is {change.share:g}; allowed: a number above 0 and up to 1"
                    self.fault(f"{path}.share", message)
            case ObjectiveChange():
                self._query(change.query, path)
            case OperatorMove():
                self._move(change, path)
            case LaterStart():
                return self._start_at(change, path)
        return change

    def _query(self, query: str, path: str) -> None:
        if query != self.candidate.query:
            self.fault(f"{path}.query", f"query is {query!r}; allowed: {self.candidate.query!r}, the candidate")

    def _move(self, change: OperatorMove, path: str) -> None:
        name, node = change.operator, change.node
        if name not in self.own and name not in self.running.operator_index:
            self.unknown(f"{path}.operator", name, "operator", [*self.own, *self.running.operator_index])
        elif name not in self.own and not self.may_move:
            self.fault(f"{path}.operator", f"operator is {name!r}; the policy leaves running queries where they are")
        if node not in self.cores:
            self.unknown(f"{path}.node", node, "node", list(self.cores))
        elif refusal := self.hosts.refusal(name, node):
            self.fault(f"{path}.node", f"node is {node!r}; {refusal}")
        elif change.core >= self.cores[node]:
            allowed = f"a number from 0 to {self.cores[node] - 1} on node {node!r}"
            self.fault(f"{path}.core", f"core is {change.core}; allowed: {allowed}")

    def _start_at(self, change: LaterStart, path: str) -> LaterStart:
        if change.p > self.running.subintervals:
            allowed = f"a whole number from 1 to {self.running.subintervals}"
            self.fault(f"{path}.p", f"p is {change.p}; allowed: {allowed}")
        width_s = self.running.subinterval_s
        seconds = (change.p - 1) * width_s
        if change.seconds is None:
            return replace(change, seconds=seconds)
        if abs(change.seconds - seconds) > width_s / 2:
            allowed = f"{seconds:g}, where subinterval {change.p} begins"
            self.fault(f"{path}.seconds", f"seconds is {change.seconds:g}; allowed: {allowed}")
        return change
