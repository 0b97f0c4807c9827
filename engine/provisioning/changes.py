"""Changes of a what-if: their forms, read strictly, and a deployment with them applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.arrays import frozen_array
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment, Objective, Source, private_name, rename_inputs
from engine.document.tables import CAPACITY, CORES, CYCLE_UNIT, ID, MEMORY, NOT_NEGATIVE, POSITIVE, PRICE, STATISTIC
from engine.errors import DocumentError, Fault, suggestion, value_words
from engine.fields import BAD, Anything, Field, FieldTable, Number, NumberSeries, String
from engine.provisioning import nodes
from engine.words import listed

__all__ = [
    "FORMS",
    "MAX_LOAD",
    "MAX_NODES",
    "AppliedChanges",
    "Change",
    "apply_changes",
    "apply_with_words",
    "read_change",
    "read_changes",
    "read_list",
    "scale_loads",
    "unplaced_operators",
]

Change = dict[str, Any]

MAX_NODES = 1024  # of one change: each core is a server with a series of its own
MAX_LOAD = 1e6  # times the present one, all changes of it together

FORMS = {
    "scale_source": FieldTable(
        "a scaled source",
        Field("scale_source", String(), required=True, help="a source, or * for all"),
        Field("by", NOT_NEGATIVE, required=True),
    ),
    "scale_query": FieldTable(
        "a scaled query",
        Field("scale_query", ID, required=True),
        Field("by", NOT_NEGATIVE, required=True),
    ),
    "arrivals": FieldTable(
        "other arrivals",
        Field("arrivals", ID, required=True, help="a source"),
        Field("factors", NumberSeries(), help="what to multiply each subinterval by"),
        Field("values", NumberSeries(), help="events in every subinterval"),
    ),
    "add_nodes": FieldTable(
        "new nodes",
        Field("add_nodes", Number(least=1, most=MAX_NODES, whole=True), required=True),
        Field("like", ID, help="a node; not needed with capacity_cps"),
        Field("capacity_cps", CAPACITY),
        Field("cores", CORES),
        Field("price_per_hour", PRICE, nullable=True),
        Field("memory_bytes", MEMORY, nullable=True, help="of a node; that of `like` unless given"),
        Field("cycle_unit", CYCLE_UNIT, help="what the capacity counts; as the node it is like, or as all nodes"),
    ),
    "lose_node": FieldTable("a lost node", Field("lose_node", ID, required=True)),
    "capacity": FieldTable(
        "another capacity",
        Field("capacity", ID, required=True, help="a node"),
        Field("by", Number(least=1e-6, most=1e6)),
        Field("capacity_cps", CAPACITY),
    ),
    "resize_pool": FieldTable(
        "a resized pool",
        Field("resize_pool", ID, required=True),
        Field("nodes", Number(least=0, most=MAX_NODES, whole=True), required=True),
    ),
    "objective": FieldTable(
        "another objective",
        Field("objective", ID, required=True, help="a query"),
        Field("statistic", STATISTIC, help="as it is, or worst, unless given"),
        Field("bound_s", POSITIVE, required=True),
    ),
    "add_query": FieldTable("a new query", Field("add_query", Anything(), required=True, help="a candidate")),
    "remove_query": FieldTable("a removed query", Field("remove_query", ID, required=True)),
}
# Fields of which a change has exactly one.
_ONE_OF = {"arrivals": ("factors", "values"), "capacity": ("by", "capacity_cps")}

WHAT = "list of changes"


def read_list(items: Any, path: str, faults: list[Fault]) -> list[Change | None]:
    """The changes of a list in their places; None where one is faulty."""
    if not isinstance(items, (list, tuple)):
        faults.append(Fault(path, f"changes is {value_words(items)}; allowed: a list"))
        return []
    return [read_change(item, path, i, faults) for i, item in enumerate(items)]


def read_change(item: Any, parent: str, index: int, faults: list[Fault]) -> Change | None:
    """One change of a known form without a fault in its fields, or None."""
    path = f"{parent}[{index}]"
    if not isinstance(item, dict):
        faults.append(Fault(path, f"item {index} is {value_words(item)}; allowed: an object"))
        return None
    named = [name for name in FORMS if name in item]
    if not named:
        near = next((words for key in item if (words := suggestion(str(key), list(FORMS)))), "")
        faults.append(Fault(path, f"item {index} names no change; allowed: {', '.join(FORMS)}{near}"))
        return None
    count = len(faults)
    record: Any = FORMS[named[0]].read(item, parent, index, faults)
    choices = _ONE_OF.get(named[0], ())
    given = [name for name in choices if name in item]
    if choices and len(given) != 1:
        faults.append(Fault(path, f"{listed(given) or 'neither'} is given; allowed: one of {', '.join(choices)}"))
    if named[0] == "add_nodes" and "like" not in item and "capacity_cps" not in item:
        faults.append(Fault(f"{path}.like", "like is missing; new nodes need a node to be like, or capacity_cps"))
    return None if record is BAD or len(faults) > count else record


@dataclass(frozen=True, eq=False)
class AppliedChanges:
    """A changed deployment and what changed, in words; operators of lost nodes and new queries may lack a place."""

    deployment: Deployment
    changes: tuple[Change, ...]
    words: tuple[str, ...]


def apply_changes(deployment: Deployment, changes: Any, *, path: str = "changes") -> Deployment:
    """The deployment with `changes`; operators whose node is gone, and new ones that name none, have no place.

    Parameters
    ----------
    deployment : Deployment
        What runs.
    changes : list of dict
        See docs/models/provisioning.md for the forms.
    path : str
        What the paths of faults begin with.

    Raises
    ------
    DocumentError
        With every fault, each with its path.

    Examples
    --------
    >>> one = Deployment.parse({
    ...     "subinterval_s": 1.0, "sources": [{"id": "s", "arrivals": [10, 20]}],
    ...     "nodes": [{"id": "a", "capacity_cps": 50.0}],
    ...     "operators": [{"id": "f", "node": "a",
    ...                    "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 5}]}]})
    >>> two = apply_changes(one, [{"scale_source": "s", "by": 1.5}, {"add_nodes": 1, "like": "a"}])
    >>> two.arrivals.tolist(), [node.id for node in two.nodes]
    ([[15.0, 30.0]], ['a', 'new-1'])
    """
    return apply_with_words(deployment, changes, path=path).deployment


def read_changes(changes: Any, deployment: Deployment, *, path: str = "changes") -> tuple[Change, ...]:
    """The changes as they were understood, checked against the deployment they would be applied to.

    Raises
    ------
    DocumentError
        With every fault, each with its path.
    """
    return apply_with_words(deployment, changes, path=path).changes


def apply_with_words(deployment: Deployment, changes: Any, *, path: str = "changes") -> AppliedChanges:
    """Apply changes like `apply_changes`; keep the changes as read and their words."""
    faults: list[Fault] = []
    walk = _Application(deployment, faults)
    read = read_list(changes, path, faults)
    for i, change in enumerate(read):
        if change is not None:
            walk.apply(change, f"{path}[{i}]")
    if faults:
        raise DocumentError(faults, WHAT)
    return AppliedChanges(walk.finished(), tuple(change for change in read if change), tuple(walk.words))


def scale_loads(deployment: Deployment, factor: float | Mapping[str, float]) -> Deployment:
    """The deployment at `factor` times its load, of all sources or by source."""
    factors = {"*": factor} if isinstance(factor, (int, float)) else factor
    changes = [{"scale_source": name, "by": by} for name, by in factors.items() if by != 1.0]
    return apply_changes(deployment, changes, path="factor") if changes else deployment


def unplaced_operators(deployment: Deployment) -> tuple[str, ...]:
    """Operators that have no place."""
    return tuple(operator.id for operator in deployment.operators if not operator.replicas)


@dataclass
class _Application:
    """The deployment so far. Sources are kept as they were given; factors wait until the end."""

    deployment: Deployment
    faults: list[Fault]
    words: list[str] = field(default_factory=list)
    factors: dict[str, float] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)  # private source: its origin and its query
    shares: dict[str, float] = field(default_factory=dict)  # factors of queries

    def apply(self, change: Change, path: str) -> None:
        form = next(name for name in FORMS if name in change)
        getattr(self, f"_{form}")(change, path)

    def finished(self) -> Deployment:
        """The deployment with all loads scaled; sources that only private copies stand in for are dropped."""
        if not self.factors and not self.copies:
            return self.deployment
        sources = {source.id: source for source in self.deployment.sources}
        read = {entry.source for operator in self.deployment.operators for entry in operator.inputs}
        origins = {origin for origin, _ in self.copies.values()}
        scaled = []
        for name, source in sources.items():
            origin, query = self.copies.get(name, (name, ""))
            if name in origins - read or (name in self.copies and name not in read):
                continue
            factor = self.factors.get(origin, 1.0) * self.shares.get(query, 1.0)
            scaled.append(_scaled(source.id, sources[origin], factor))
        return replace(self.deployment, sources=tuple(scaled))

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))

    def _known(self, path: str, name: str, what: str, known: Sequence[str]) -> bool:
        if name in known:
            return True
        allowed = suggestion(name, list(known)) or f"; allowed: {', '.join(known[:8]) or 'none, there is no ' + what}"
        self._fault(path, f"{path.rsplit('.', 1)[-1]} names {name!r}, which is no {what}{allowed}")
        return False

    def _source_ids(self) -> list[str]:
        return [source.id for source in self.deployment.sources if source.id not in self.copies]

    def _scale_source(self, change: Change, path: str) -> None:
        name, by = change["scale_source"], change["by"]
        if name != "*" and not self._known(f"{path}.scale_source", name, "source", self._source_ids()):
            return
        for source in self._source_ids() if name == "*" else [name]:
            self._grow(self.factors, source, by, f"{path}.by")
        every = f"every source at {by:g} times its load"
        self.words.append(every if name == "*" else f"source {name} at {by:g} times its load")

    def _scale_query(self, change: Change, path: str) -> None:
        query, by = change["scale_query"], change["by"]
        if not self._known(f"{path}.scale_query", query, "query", list(self.deployment.queries)):
            return
        self._make_private(query)
        if query not in {owner for _, owner in self.copies.values()}:
            self._fault(f"{path}.scale_query", f"query {query!r} reads no source of its own, only other queries")
            return
        self._grow(self.shares, query, by, f"{path}.by")
        self.words.append(f"query {query} at {by:g} times its load")

    def _grow(self, factors: dict[str, float], name: str, by: float, path: str) -> None:
        factors[name] = factors.get(name, 1.0) * by
        if factors[name] > MAX_LOAD:
            self._fault(path, f"by makes {name} {factors[name]:g} times its load; allowed: up to {MAX_LOAD:g} times")

    def _make_private(self, query: str) -> None:
        """Give the query copies of the sources it reads, so that nobody else's load changes with its own."""
        base = self.deployment
        own = base.operators_of(query)
        known = {source.id: source for source in base.sources}
        read = dict.fromkeys(e.source for i in own for e in base.operators[i].inputs if e.source in known)
        fresh = [name for name in read if name not in self.copies]
        names: dict[str, str] = {}
        taken = {*known, *(operator.id for operator in base.operators)}
        for name in fresh:
            names[name] = private_name(name, query, (), taken)
            taken.add(names[name])
            self.copies[names[name]] = (name, query)
        operators = list(base.operators)
        for i in own:
            operators[i] = rename_inputs(operators[i], names.get)
        copies = tuple(replace(known[name], id=names[name]) for name in fresh)
        self.deployment = replace(base, operators=tuple(operators), sources=base.sources + copies)

    def _arrivals(self, change: Change, path: str) -> None:
        name = change["arrivals"]
        if not self._known(f"{path}.arrivals", name, "source", self._source_ids()):
            return
        form = "values" if "values" in change else "factors"
        given, d = change[form], self.deployment.subintervals
        if len(given) != d:
            self._fault(f"{path}.{form}", f"{form} has {len(given)} numbers; allowed: {d}, the number of subintervals")
            return
        sources = list(self.deployment.sources)
        i = next(i for i, source in enumerate(sources) if source.id == name)
        if form == "factors" and given.max(initial=0.0) > MAX_LOAD:
            self._fault(f"{path}.factors", f"factors has {given.max():g}; allowed: up to {MAX_LOAD:g}")
            return
        values = given if form == "values" else frozen_array(sources[i].arrivals * given)
        sources[i] = Source(name, values) if form == "values" else replace(sources[i], arrivals=values)
        self.deployment = replace(self.deployment, sources=tuple(sources))
        self.words.append(f"source {name} with other arrivals")

    def _add_nodes(self, change: Change, path: str) -> None:
        like = change.get("like")
        if like is None or self._known(f"{path}.like", like, "node", list(self.deployment.node_index)):
            self._step(nodes.add_nodes(self.deployment, change))

    def _lose_node(self, change: Change, path: str) -> None:
        name = change["lose_node"]
        if self._known(f"{path}.lose_node", name, "node", list(self.deployment.node_index)):
            self._step((nodes.lose_nodes(self.deployment, {name}), f"node {name} lost"))

    def _capacity(self, change: Change, path: str) -> None:
        if self._known(f"{path}.capacity", change["capacity"], "node", list(self.deployment.node_index)):
            self._step(nodes.resize_node(self.deployment, change))

    def _resize_pool(self, change: Change, path: str) -> None:
        pools = dict.fromkeys(node.pool for node in self.deployment.nodes if node.pool)
        if self._known(f"{path}.resize_pool", change["resize_pool"], "pool with nodes", list(pools)):
            self._step(nodes.resize_pool(self.deployment, change["resize_pool"], change["nodes"]))

    def _step(self, step: tuple[Deployment, str]) -> None:
        self.deployment = step[0]
        self.words.append(step[1])

    def _objective(self, change: Change, path: str) -> None:
        query = change["objective"]
        if not self._known(f"{path}.objective", query, "query", list(self.deployment.queries)):
            return
        old = self.deployment.objective_of(query)
        new = Objective(query, change.get("statistic") or (old.statistic if old else "worst"), change["bound_s"])
        others = [entry for entry in self.deployment.objectives if entry.query != query]
        at = self.deployment.objectives.index(old) if old else len(others)
        others.insert(at, new)
        self.deployment = replace(self.deployment, objectives=tuple(others))
        self.words.append(f"objective of {query}: {new.statistic} at most {new.bound_s:g} s")

    def _add_query(self, change: Change, path: str) -> None:
        base = self.deployment
        try:
            candidate = read_candidate(change["add_query"], base, path=f"{path}.add_query")
        except DocumentError as error:
            self.faults.extend(error.faults)
            return
        objective = (candidate.objective,) if candidate.objective else ()
        self.deployment = replace(
            base,
            operators=base.operators + candidate.operators,
            sources=base.sources + candidate.sources,
            objectives=base.objectives + objective,
            priorities={**base.priorities, candidate.query: candidate.priority},
        )
        self.words.append(f"query {candidate.query} added")

    def _remove_query(self, change: Change, path: str) -> None:
        query = change["remove_query"]
        if not self._known(f"{path}.remove_query", query, "query", list(self.deployment.queries)):
            return
        readers = _readers(self.deployment, query)
        if readers:
            allowed = "allowed: a query that nobody else reads"
            self._fault(f"{path}.remove_query", f"query {query!r} is read by {', '.join(readers[:4])}; {allowed}")
            return
        self.deployment = _without(self.deployment, query)
        self.words.append(f"query {query} removed")


def _scaled(name: str, origin: Source, factor: float) -> Source:
    arrivals = origin.arrivals if factor == 1.0 else frozen_array(origin.arrivals * factor)
    return replace(origin, id=name, arrivals=arrivals)


def _readers(deployment: Deployment, query: str) -> list[str]:
    """Operators of others that read operators of `query`."""
    own = {deployment.operators[i].id for i in deployment.operators_of(query)}
    return [op.id for op in deployment.operators if op.query != query and own & {e.source for e in op.inputs}]


def _without(deployment: Deployment, query: str) -> Deployment:
    """The deployment without a query; pins to lost nodes, which name no node any more, are kept for the others."""
    limits = deployment.constraints
    lost = {name: node for name, node in limits.pin.items() if node not in deployment.node_index}
    known = {name: node for name, node in limits.pin.items() if name not in lost}
    left = replace(deployment, constraints=replace(limits, pin=known)).without_query(query)
    lost = {name: node for name, node in lost.items() if name in left.operator_index}
    return replace(left, constraints=replace(left.constraints, pin={**left.constraints.pin, **lost}))
