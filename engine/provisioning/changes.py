"""Changes of a what-if: their forms, read strictly, and a deployment with them applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from pydantic import PlainSerializer

from engine.arrays import FloatArray, frozen_array
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment, Objective, Source, private_name, rename_inputs
from engine.document.elements import MarginalCost, Operator
from engine.document.kinds import CAPACITY, CORES, CYCLE_UNIT, ID, MEMORY, NOT_NEGATIVE, POSITIVE, PRICE, STATISTIC
from engine.errors import DocumentError, Fault, suggestion, value_words
from engine.kinds import Anything, Number, NumberSeries, String
from engine.provisioning import nodes
from engine.records import Fact, Record, Words
from engine.words import listed

__all__ = [
    "MAX_LOAD",
    "MAX_NODES",
    "AppliedChange",
    "AppliedChanges",
    "Change",
    "apply_changes",
    "apply_each",
    "read_change",
    "read_changes",
    "read_list",
    "scale_loads",
    "unplaced_operators",
]

MAX_NODES = 1024  # of one change: each core is a server with a series of its own
MAX_LOAD = 1e6  # times the present one, all changes of it together


class Change(Record):
    """A change of a what-if; its first field names its form, as the document does."""

    FORM: ClassVar[str]

    def to_dict(self) -> dict[str, object]:
        """JSON of the fields that are given."""
        return {name: value for name, value in super().to_dict().items() if value is not None}


_Series = Annotated[
    FloatArray | None, NumberSeries(), PlainSerializer(lambda values: None if values is None else values.tolist())
]


@dataclass(frozen=True)
class ScaledSource(Change):
    """Another load of a source, or of all of them."""

    TITLE: ClassVar[str] = "a scaled source"
    FORM: ClassVar[str] = "scale_source"

    scale_source: Annotated[str, String(), Words("a source, or * for all")]
    by: Annotated[float, NOT_NEGATIVE]


@dataclass(frozen=True)
class ScaledQuery(Change):
    """Another load of a query, and of nobody else."""

    TITLE: ClassVar[str] = "a scaled query"
    FORM: ClassVar[str] = "scale_query"

    scale_query: Annotated[str, ID]
    by: Annotated[float, NOT_NEGATIVE]


@dataclass(frozen=True, eq=False)
class OtherArrivals(Change):
    """Other arrivals of a source, in each subinterval."""

    TITLE: ClassVar[str] = "other arrivals"
    FORM: ClassVar[str] = "arrivals"

    arrivals: Annotated[str, ID, Words("a source")]
    factors: Annotated[_Series, Words("what to multiply each subinterval by")] = None
    values: Annotated[_Series, Words("events in every subinterval")] = None

    def find_faults(self) -> Iterator[Fault]:
        yield from _one_of({"factors": self.factors, "values": self.values})


@dataclass(frozen=True)
class AddedNodes(Change):
    """Nodes more."""

    TITLE: ClassVar[str] = "new nodes"
    FORM: ClassVar[str] = "add_nodes"

    add_nodes: Annotated[int, Number(least=1, most=MAX_NODES, whole=True)]
    like: Annotated[str | None, ID, Words("a node; not needed with capacity_cps")] = None
    capacity_cps: Annotated[float | None, CAPACITY] = None
    cores: Annotated[int | None, CORES] = None
    price_per_hour: Annotated[float, PRICE] | None = None
    memory_bytes: Annotated[float, MEMORY, Words("of a node; that of `like` unless given")] | None = None
    cycle_unit: Annotated[
        str | None, CYCLE_UNIT, Words("what the capacity counts; as the node it is like, or as all nodes")
    ] = None

    def find_faults(self) -> Iterator[Fault]:
        if self.like is None and self.capacity_cps is None:
            yield Fault("like", "like is missing; new nodes need a node to be like, or capacity_cps")


@dataclass(frozen=True)
class NodeWithdrawal(Change):
    """A node less."""

    TITLE: ClassVar[str] = "a lost node"
    FORM: ClassVar[str] = "lose_node"

    lose_node: Annotated[str, ID]


@dataclass(frozen=True)
class OtherCapacity(Change):
    """Another capacity of a node."""

    TITLE: ClassVar[str] = "another capacity"
    FORM: ClassVar[str] = "capacity"

    capacity: Annotated[str, ID, Words("a node")]
    by: Annotated[float | None, Number(least=1e-6, most=1e6)] = None
    capacity_cps: Annotated[float | None, CAPACITY] = None

    def find_faults(self) -> Iterator[Fault]:
        yield from _one_of({"by": self.by, "capacity_cps": self.capacity_cps})


@dataclass(frozen=True)
class ResizedPool(Change):
    """Another number of nodes of a pool."""

    TITLE: ClassVar[str] = "a resized pool"
    FORM: ClassVar[str] = "resize_pool"

    resize_pool: Annotated[str, ID]
    nodes: Annotated[int, Number(least=0, most=MAX_NODES, whole=True)]


@dataclass(frozen=True)
class OtherObjective(Change):
    """Another objective of a query."""

    TITLE: ClassVar[str] = "another objective"
    FORM: ClassVar[str] = "objective"

    objective: Annotated[str, ID, Words("a query")]
    statistic: Annotated[str | None, STATISTIC, Words("as it is, or worst, unless given")] = None
    bound_s: Annotated[float, POSITIVE] = field(kw_only=True)


@dataclass(frozen=True)
class AddedQuery(Change):
    """A query more."""

    TITLE: ClassVar[str] = "a new query"
    FORM: ClassVar[str] = "add_query"

    add_query: Annotated[object, Anything(), Words("a candidate")]


@dataclass(frozen=True)
class RemovedQuery(Change):
    """A query less."""

    TITLE: ClassVar[str] = "a removed query"
    FORM: ClassVar[str] = "remove_query"

    remove_query: Annotated[str, ID]


_FORMS: dict[str, type[Change]] = {form.FORM: form for form in Change.__subclasses__()}


def _one_of(choices: Mapping[str, object]) -> Iterator[Fault]:
    """The fault of a change that has not exactly one of some fields."""
    given = [name for name, value in choices.items() if value is not None]
    if len(given) != 1:
        yield Fault("", f"{listed(given) or 'neither'} is given; allowed: one of {', '.join(choices)}")


WHAT = "list of changes"


def read_list(items: Any, path: str, faults: list[Fault]) -> list[Change | None]:
    """The changes of a list in their places; None where one is faulty."""
    if not isinstance(items, (list, tuple)):
        faults.append(Fault(path, f"changes is {value_words(items)}; allowed: a list"))
        return []
    return [read_change(item, path, i, faults) for i, item in enumerate(items)]


def read_change(item: Any, parent: str, index: int, faults: list[Fault]) -> Change | None:
    """One change of a known form without a fault in its fields, or None."""
    if isinstance(item, Change):
        return item
    path = f"{parent}[{index}]"
    if not isinstance(item, dict):
        faults.append(Fault(path, f"item {index} is {value_words(item)}; allowed: an object"))
        return None
    named = [name for name in _FORMS if name in item]
    if not named:
        near = next((words for key in item if (words := suggestion(str(key), list(_FORMS)))), "")
        faults.append(Fault(path, f"item {index} names no change; allowed: {', '.join(_FORMS)}{near}"))
        return None
    return _FORMS[named[0]].read(item, parent, index, faults)


@dataclass(frozen=True, eq=False)
class AppliedChange:
    """A change, and what it means there: the nodes of its pool before, the statistic, or the name of the new query."""

    change: Change
    was: int | str | None = None

    @property
    def words(self) -> Fact:
        """Clause about it."""
        return Fact(f"what_if.{self.change.FORM}", **vars(self.change), was=self.was)


@dataclass(frozen=True, eq=False)
class AppliedChanges:
    """A changed deployment and what changed; operators of lost nodes and new queries may lack a place."""

    deployment: Deployment
    changes: tuple[AppliedChange, ...]


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
    return apply_each(deployment, changes, path=path).deployment


def read_changes(changes: Any, deployment: Deployment, *, path: str = "changes") -> tuple[Change, ...]:
    """The changes as they were understood, checked against the deployment they would be applied to.

    Raises
    ------
    DocumentError
        With every fault, each with its path.
    """
    return tuple(applied.change for applied in apply_each(deployment, changes, path=path).changes)


def apply_each(deployment: Deployment, changes: Any, *, path: str = "changes") -> AppliedChanges:
    """Apply changes like `apply_changes`, and keep them as read."""
    faults: list[Fault] = []
    walk = _Application(deployment, faults)
    read = read_list(changes, path, faults)
    for i, change in enumerate(read):
        if change is not None:
            walk.apply(change, f"{path}[{i}]")
    if faults:
        raise DocumentError(faults, WHAT)
    return AppliedChanges(walk.finished(), tuple(walk.applied))


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
    applied: list[AppliedChange] = field(default_factory=list)
    factors: dict[str, float] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)  # private source: its origin and its query
    shares: dict[str, float] = field(default_factory=dict)  # factors of queries
    origin: Deployment = field(init=False)  # before all changes

    def __post_init__(self) -> None:
        self.origin = self.deployment

    def apply(self, change: Change, path: str) -> None:
        was = getattr(self, f"_{change.FORM}")(change, path)
        self.applied.append(AppliedChange(change, was))

    def finished(self) -> Deployment:
        """The deployment with all loads scaled; sources that only private copies stand in for are dropped."""
        return _with_costs_of_load(self.origin, self._scaled())

    def _scaled(self) -> Deployment:
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

    def _scale_source(self, change: ScaledSource, path: str) -> None:
        name, by = change.scale_source, change.by
        if name != "*" and not self._known(f"{path}.scale_source", name, "source", self._source_ids()):
            return
        for source in self._source_ids() if name == "*" else [name]:
            self._grow(self.factors, source, by, f"{path}.by")

    def _scale_query(self, change: ScaledQuery, path: str) -> None:
        query, by = change.scale_query, change.by
        if not self._known(f"{path}.scale_query", query, "query", list(self.deployment.queries)):
            return
        self._make_private(query)
        if query not in {owner for _, owner in self.copies.values()}:
            self._fault(f"{path}.scale_query", f"query {query!r} reads no source of its own, only other queries")
            return
        self._grow(self.shares, query, by, f"{path}.by")

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

    def _arrivals(self, change: OtherArrivals, path: str) -> None:
        name = change.arrivals
        if not self._known(f"{path}.arrivals", name, "source", self._source_ids()):
            return
        form = "factors" if change.values is None else "values"
        given, d = change.factors if change.values is None else change.values, self.deployment.subintervals
        assert given is not None
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

    def _add_nodes(self, change: AddedNodes, path: str) -> None:
        like, names = change.like, ("cores", "price_per_hour", "memory_bytes", "cycle_unit")
        if like is None or self._known(f"{path}.like", like, "node", list(self.deployment.node_index)):
            given = {name: value for name in names if (value := getattr(change, name)) is not None}
            count, capacity_cps = change.add_nodes, change.capacity_cps
            self.deployment = nodes.add_nodes(self.deployment, count, like, capacity_cps=capacity_cps, **given)

    def _lose_node(self, change: NodeWithdrawal, path: str) -> None:
        name = change.lose_node
        if self._known(f"{path}.lose_node", name, "node", list(self.deployment.node_index)):
            self.deployment = nodes.lose_nodes(self.deployment, {name})

    def _capacity(self, change: OtherCapacity, path: str) -> None:
        if self._known(f"{path}.capacity", change.capacity, "node", list(self.deployment.node_index)):
            self.deployment = nodes.resize_node(self.deployment, change.capacity, change.by, change.capacity_cps)

    def _resize_pool(self, change: ResizedPool, path: str) -> int:
        pools = Counter(node.pool for node in self.deployment.nodes if node.pool)
        if self._known(f"{path}.resize_pool", change.resize_pool, "pool with nodes", list(pools)):
            self.deployment = nodes.resize_pool(self.deployment, change.resize_pool, change.nodes)
        return pools[change.resize_pool]

    def _objective(self, change: OtherObjective, path: str) -> str:
        query = change.objective
        if not self._known(f"{path}.objective", query, "query", list(self.deployment.queries)):
            return ""
        old = self.deployment.objective_of(query)
        new = Objective(query, change.statistic or (old.statistic if old else "worst"), change.bound_s)
        others = [entry for entry in self.deployment.objectives if entry.query != query]
        at = self.deployment.objectives.index(old) if old else len(others)
        others.insert(at, new)
        self.deployment = replace(self.deployment, objectives=tuple(others))
        return new.statistic

    def _add_query(self, change: AddedQuery, path: str) -> str:
        base = self.deployment
        try:
            candidate = read_candidate(change.add_query, base, path=f"{path}.add_query")
        except DocumentError as error:
            self.faults.extend(error.faults)
            return ""
        objective = (candidate.objective,) if candidate.objective else ()
        self.deployment = replace(
            base,
            operators=base.operators + candidate.operators,
            sources=base.sources + candidate.sources,
            objectives=base.objectives + objective,
            priorities={**base.priorities, candidate.query: candidate.priority},
        )
        return candidate.query

    def _remove_query(self, change: RemovedQuery, path: str) -> None:
        query = change.remove_query
        if not self._known(f"{path}.remove_query", query, "query", list(self.deployment.queries)):
            return
        readers = _readers(self.deployment, query)
        if readers:
            allowed = "allowed: a query that nobody else reads"
            self._fault(f"{path}.remove_query", f"query {query!r} is read by {', '.join(readers[:4])}; {allowed}")
            return
        self.deployment = _without(self.deployment, query)


def _scaled(name: str, origin: Source, factor: float) -> Source:
    arrivals = origin.arrivals if factor == 1.0 else frozen_array(origin.arrivals * factor)
    return replace(origin, id=name, arrivals=arrivals)


def _with_costs_of_load(before: Deployment, after: Deployment) -> Deployment:
    """The changed deployment with costs that fall with the load as they are under the new one.

    Only where several loads have told how they fall: what was seen of others' costs under one load decides nothing.
    """
    falling = {op.id for op in after.operators if op.marginal_cost is not None and op.marginal_cost.is_measured}
    if after is before or not falling & before.operator_index.keys():
        return after
    was, now = _mean_work(before), _mean_work(after)
    operators = tuple(
        _at_growth(op, now[op.id] / was[op.id]) if op.id in falling and was.get(op.id) else op for op in after.operators
    )
    return replace(after, operators=operators)


def _mean_work(deployment: Deployment) -> dict[str, float]:
    """Mean work of each operator, by its costs as they stand."""
    graph, base = deployment.graph, len(deployment.sources)
    streams = [float(source.arrivals.mean()) for source in deployment.sources] + [0.0] * len(deployment.operators)
    work = dict[str, float]()
    for j in graph.order.tolist():
        inputs = range(graph.in_start[j], graph.in_start[j + 1])
        events = {e: streams[graph.in_stream[e]] for e in inputs}
        streams[base + j] = sum(float(graph.output[e, 1]) * events[e] for e in inputs)
        work[deployment.operators[j].id] = sum(float(graph.cycles[e, 1]) * events[e] for e in inputs)
    return work


def _at_growth(operator: Operator, growth: float) -> Operator:
    """An operator at so many times its load."""
    marginal = operator.marginal_cost
    if marginal is None or growth <= 1.0:
        return operator
    part = marginal.cost_at(growth)
    share, low, high = (min(1.0, end / part) for end in (marginal.share, marginal.low, marginal.high))
    inputs = tuple(
        replace(
            entry,
            cycles_per_event=entry.cycles_per_event * part,
            batches=tuple(replace(batch, cycles=batch.cycles * part) for batch in entry.batches),
        )
        for entry in operator.inputs
    )
    return replace(operator, inputs=inputs, marginal_cost=MarginalCost(share, low, high, marginal.loads))


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
