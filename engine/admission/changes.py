"""Changes that an alternative carries and a later decision applies: read, checked, and joined.

Every change is a small JSON object, so that a page, a REST client or a job can keep it and hand it back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from engine.admission.candidate import Candidate
from engine.document.deployment import Deployment
from engine.document.tables import CAPACITY, CORES, ID, INDEX, POSITIVE, STATISTIC
from engine.errors import DocumentError, Fault, suggestion, value_words
from engine.fields import BAD, Enumeration, Field, FieldTable, Number, String

__all__ = ["Change", "join_changes", "read_changes"]

Change = dict[str, Any]

_TABLES = {
    "scale_rate": FieldTable(
        "a change of rate",
        Field("kind", String(), required=True),
        Field("query", ID, required=True),
        Field("share", POSITIVE, required=True),
    ),
    "add_node": FieldTable(
        "a new node",
        Field("kind", String(), required=True),
        Field("id", ID, required=True),
        Field("like", ID, required=True),
        Field("capacity_cps", CAPACITY, required=True),
        Field("cores", CORES),
    ),
    "objective": FieldTable(
        "a change of objective",
        Field("kind", String(), required=True),
        Field("query", ID, required=True),
        Field("statistic", STATISTIC, required=True),
        Field("bound_s", POSITIVE, required=True),
    ),
    "move": FieldTable(
        "a move",
        Field("kind", String(), required=True),
        Field("operator", ID, required=True),
        Field("node", ID, required=True),
        Field("core", INDEX),
    ),
    "start_at": FieldTable(
        "a later start",
        Field("kind", String(), required=True),
        Field("p", Number(least=1, whole=True), required=True, help="first subinterval in which it reads"),
        Field("seconds", Number(least=0)),
    ),
}
_KIND = Enumeration(tuple(_TABLES))
# What a later change of the same kind stands in for, rather than adding to it.
_IDENTITY = {"scale_rate": (), "objective": (), "start_at": (), "move": ("operator",), "add_node": ("id",)}


def join_changes(changes: Sequence[Change], more: Sequence[Change]) -> tuple[Change, ...]:
    """`changes` with `more` applied after them: a new rate, objective, start or place replaces the old one."""
    replaced = {_identity(change) for change in more}
    return (*(change for change in changes if _identity(change) not in replaced), *more)


def _identity(change: Change) -> tuple[Any, ...]:
    return (change["kind"], *(change[name] for name in _IDENTITY[change["kind"]]))


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
    read = [_read(item, f"changes[{i}]", i, faults) for i, item in enumerate(items)]
    checker = _Checker(running, candidate, may_move_neighbours, closed_nodes, faults)
    for i, change in enumerate(read):
        if change is not None and change["kind"] == "add_node":
            checker.node(change, f"changes[{i}]")
    for i, change in enumerate(read):
        if change is not None:
            checker.check(change, f"changes[{i}]")
    if faults:
        raise DocumentError(faults, "list of changes")
    return tuple(change for change in read if change is not None)


def _read(item: Any, path: str, index: int, faults: list[Fault]) -> Change | None:
    """One change of known kind without a fault in its fields, or None."""
    kind = item.get("kind") if isinstance(item, dict) else None
    if kind is None:
        faults.append(Fault(f"{path}.kind", f"kind is missing; allowed: {', '.join(_TABLES)}"))
        return None
    if _KIND.read(kind, path, "kind", faults) is BAD:
        return None
    record = _TABLES[kind].read(item, "changes", index, faults)
    return None if record is BAD or any(value is BAD for value in record.values()) else record


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
        self.may_move, self.closed = may_move, closed
        self.cores = {node.id: node.cores for node in running.nodes}
        self.own = {operator.id for operator in candidate.operators}
        self.seen: set[tuple[Any, ...]] = set()

    def fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))

    def unknown(self, path: str, name: str, what: str, known: Sequence[str]) -> None:
        field = path.rsplit(".", 1)[-1]
        self.fault(path, f"{field} names {name!r}, which is no {what}{suggestion(name, known)}")

    def node(self, change: Change, path: str) -> None:
        """Make a new node known, so that moves in the same list can use it."""
        like = self.running.node_index.get(change["like"])
        if like is None:
            self.unknown(f"{path}.like", change["like"], "node", list(self.running.node_index))
        elif change["id"] in self.running.node_index:
            self.fault(f"{path}.id", f"id {change['id']!r} is a node already; allowed: a new name")
        else:
            change.setdefault("cores", self.running.nodes[like].cores)
        self.cores.setdefault(change["id"], change.get("cores", 1))

    def check(self, change: Change, path: str) -> None:
        identity = _identity(change)
        if identity in self.seen:
            self.fault(path, f"{change['kind']} is given twice for the same thing; allowed: once")
        self.seen.add(identity)
        getattr(self, f"_{change['kind']}")(change, path)

    def _query(self, change: Change, path: str) -> None:
        if change["query"] != self.candidate.query:
            allowed = f"allowed: {self.candidate.query!r}, the candidate"
            self.fault(f"{path}.query", f"query is {change['query']!r}; {allowed}")

    def _scale_rate(self, change: Change, path: str) -> None:
        self._query(change, path)
        if change["share"] > 1.0:
            self.fault(f"{path}.share", f"share is {change['share']:g}; allowed: a number above 0 and up to 1")

    def _add_node(self, change: Change, path: str) -> None:
        """Checked before all others."""

    def _objective(self, change: Change, path: str) -> None:
        self._query(change, path)

    def _move(self, change: Change, path: str) -> None:
        name, node = change["operator"], change["node"]
        change.setdefault("core", 0)
        if name not in self.own and name not in self.running.operator_index:
            self.unknown(f"{path}.operator", name, "operator", [*self.own, *self.running.operator_index])
        elif name not in self.own and not self.may_move:
            self.fault(f"{path}.operator", f"operator is {name!r}; the policy leaves running queries where they are")
        if node not in self.cores:
            self.unknown(f"{path}.node", node, "node", list(self.cores))
        elif why := self._closed_to(name, node):
            self.fault(f"{path}.node", f"node is {node!r}; {why}")
        elif change["core"] >= self.cores[node]:
            allowed = f"a number from 0 to {self.cores[node] - 1} on node {node!r}"
            self.fault(f"{path}.core", f"core is {change['core']}; allowed: {allowed}")

    def _closed_to(self, operator: str, node: str) -> str:
        """Reason why an operator may not go to a node; empty if it may."""
        limits = self.running.constraints
        pin = limits.pin.get(operator, node)
        if node in self.closed:
            return "it takes nothing new"
        if pin != node:
            return f"operator {operator!r} is pinned to {pin!r}"
        return f"it is forbidden to operator {operator!r}" if node in limits.forbid.get(operator, ()) else ""

    def _start_at(self, change: Change, path: str) -> None:
        if change["p"] > self.running.subintervals:
            allowed = f"a whole number from 1 to {self.running.subintervals}"
            self.fault(f"{path}.p", f"p is {change['p']}; allowed: {allowed}")
        width_s = self.running.subinterval_s
        seconds = (change["p"] - 1) * width_s
        if abs(change.setdefault("seconds", seconds) - seconds) > width_s / 2:
            seconds_words = f"seconds is {change['seconds']:g}"
            self.fault(
                f"{path}.seconds", f"{seconds_words}; allowed: {seconds:g}, where subinterval {change['p']} begins"
            )
