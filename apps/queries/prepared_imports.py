"""Import of a deployment document, section by section: read and checked first, stored afterwards in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import Fault, Malformed, SluiceError, fault_count, join_path
from apps.fleet.models import Cluster, NodePool
from apps.fleet.models import Node as NodeRow
from apps.fleet.services import (
    cluster_locked,
    link_create,
    link_update,
    node_of_pool,
    node_update,
    nodes_create,
    pool_create,
)
from apps.queries.arrivals.services import SourceCounts, arrivals_row, arrivals_store
from apps.queries.bodies import Surroundings
from apps.queries.models import ArrivalSeries, Query
from apps.queries.services import (
    NewQuery,
    QueryReading,
    queries_store,
    query_read,
    query_start,
    query_version_create,
)
from engine.document.deployment import Deployment
from engine.document.elements import STIMULUS_TIME, Input, InputModel, Node, Operator, Source
from engine.document.export import backlog_document, operator_document
from engine.records import Flag, Record

__all__ = ["DocumentImport", "PreparedImport", "Report", "find_unsupported"]

DEFAULT_POOL = "imported"

Report = Callable[[float, str], object]  # the share that is done, and what is done now; it raises where to stop

_ARRIVALS, _QUERIES, _STORE, _STORED = 0.1, 0.35, 0.6, 0.8  # shares at which parts of an import begin
_REPORTED = 100  # elements between two reports
_SCHEDULED = "a cluster's nodes are scheduled as their agents say; allowed: none"


@dataclass(frozen=True)
class DocumentImport(Record):
    """Effects of an import, or with `dry_run` those it would have: `node n1`, `source clicks`, `query checkout`."""

    dry_run: Flag
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_unsupported(deployment: Deployment) -> list[Fault]:
    """Parts of a document that the console does not keep. Leaving them out silently would change the answers."""
    faults = []
    owner = {operator.id: operator.query for operator in deployment.operators}
    for i, node in enumerate(deployment.nodes):
        if node.capacity_series_cps is not None:
            faults.append(
                Fault(f"nodes[{i}].capacity_series_cps", "a cluster's nodes have one capacity; allowed: capacity_cps")
            )
    for i, operator in enumerate(deployment.operators):
        if not operator.query:
            faults.append(Fault(f"operators[{i}].query", "query is missing; a cluster keeps operators by query"))
        for k, entry in enumerate(operator.inputs):
            if owner.get(entry.source, operator.query) != operator.query:
                message = (
                    f"from is {entry.source!r} of query {owner[entry.source]!r}; allowed: a source or the same query"
                )
                faults.append(Fault(f"operators[{i}].inputs[{k}].from", message))
    if deployment.combine.kind != "sum":
        faults.append(
            Fault("combine.kind", f"kind is {deployment.combine.kind!r}; a cluster's loads add up, allowed: sum")
        )
    if deployment.scheduling is not None:
        faults.append(Fault("scheduling", _SCHEDULED))
    if deployment.plans:
        faults.append(Fault("plans", "a cluster keeps one plan per version; allowed: none"))
    limits = deployment.constraints
    if limits.pin or limits.forbid or limits.apart or limits.may_split is not None or limits.max_moves is not None:
        faults.append(Fault("constraints", "a cluster keeps no constraints; allowed: none"))
    return faults


def _malformed(faults: Sequence[Fault], path: str) -> Malformed:
    placed = [Fault(join_path(path, fault.path), fault.message) for fault in faults]
    first = f"first: {placed[0].path}: {placed[0].message}"
    return Malformed(f"The document has {fault_count(placed)}, nothing was stored; {first}", placed)


class PreparedImport:
    """One import: sections in order of dependence, faults collected over all rows of a section."""

    def __init__(
        self, cluster: Cluster, deployment: Deployment, fill: str, start: bool, user: User | None, path: str
    ) -> None:
        self.cluster, self.deployment, self.start = cluster, deployment, start
        self.fill, self.user, self.path = fill, user, path
        self.done = DocumentImport(dry_run=False)
        self.faults: list[Fault] = []
        self.names = {source.id: _source_name(source.id) for source in deployment.sources}
        self.shared = {name for name, count in Counter(self.names.values()).items() if count > 1}
        self.waiting = {source.id: source.backlog for source in deployment.sources if source.backlog}
        self.arrivals: list[ArrivalSeries] = []
        self.bodies: dict[str, Any] = {}  # of queries that exist
        self.new: list[QueryReading] = []

    def read(self, report: Report) -> None:
        """Arrivals on the cluster's grid, and operators of queries that are new."""
        sources, queries = self.deployment.sources, self.deployment.queries
        for i, source in enumerate(sources):
            if not i % _REPORTED:
                report(_ARRIVALS + (_QUERIES - _ARRIVALS) * i / len(sources), "Reading arrivals")
            self._attempt(f"sources[{i}]", lambda source=source: self._source(source))
        self.refuse()
        known = Surroundings(self.cluster)
        known.sources |= set(self.names.values())
        known.nodes |= {node.id: _node_facts(node) for node in self.deployment.nodes}
        present = set(self.cluster.queries.values_list("name", flat=True))
        for i, query in enumerate(queries):
            if not i % _REPORTED:
                report(_QUERIES + (_STORE - _QUERIES) * i / len(queries), "Reading queries")
            operators = [self.deployment.operators[k] for k in self.deployment.operators_of(query)]
            body = {"operators": [self._operator(operator, query) for operator in operators]}
            if query in present:
                self.bodies[query] = body
            else:
                self._attempt("", lambda query=query, body=body: self.new.append(self._new(query, body, known)))
        self.refuse()

    def store(self, done: DocumentImport, report: Report) -> None:
        """Write it, within a transaction."""
        self.done = done
        report(_STORE, "Storing nodes and arrivals")
        cluster_locked(self.cluster).get()  # nothing is admitted, moved or taken away meanwhile
        self._nodes()
        self.refuse()
        done.notes.extend(
            f"node {node.id}: the document has {node.scheduling}; here its agents say which policy it runs"
            for node in self.deployment.nodes
            if node.scheduling not in (None, STIMULUS_TIME)
        )
        for i in range(len(self.deployment.links)):
            self._attempt(f"links[{i}]", lambda i=i: self._within(lambda: self._link(i)))
        self._store_arrivals()
        self.refuse()
        report(_STORED, "Storing queries")
        self._queries(report)
        self.refuse()

    def _attempt(self, path: str, act: Callable[[], object]) -> None:
        try:
            act()
        except SluiceError as error:
            self.faults += [Fault(join_path(path, f.path) if f.path else path, f.message) for f in error.faults] or [
                Fault(path, error.message)
            ]

    @staticmethod
    def _within(act: Callable[[], object]) -> None:
        with transaction.atomic():
            act()

    def refuse(self) -> None:
        """Refuse the document if it has faults so far."""
        if self.faults:
            raise _malformed(self.faults, self.path)

    def _nodes(self) -> None:
        """Nodes that exist are updated one by one, the others created all at once."""
        known = {row.name: row for row in self.cluster.nodes.select_related("pool", "cluster")}
        new: dict[str, NodeRow] = {}
        for i, node in enumerate(self.deployment.nodes):
            values: dict[str, Any] = {
                "capacity_cps": node.capacity_cps,
                "cores": node.cores,
                "labels": dict(node.labels),
                "cycle_unit": node.cycle_unit,
                "cycles_per_ns": node.cycles_per_ns,
            }
            if node.id in known:
                store = lambda node=node, values=values: self._node(node, known[node.id], values)  # noqa: E731
                self._attempt(f"nodes[{i}]", lambda store=store: self._within(store))
                continue
            if (node.pool or DEFAULT_POOL) not in self.pools:
                self._attempt(f"nodes[{i}]", lambda node=node: self._within(lambda: self._pool(node)))
            pool = self.pools.get(node.pool or DEFAULT_POOL)
            if pool is not None:
                memory = _memory_of(node)
                own = {} if memory == pool.memory_bytes else {"memory_bytes": memory}
                new[node.id] = node_of_pool(pool, name=node.id, **values, **own)
                self.done.created.append(f"node {node.id}")
        places = {node.id: f"nodes[{i}]" for i, node in enumerate(self.deployment.nodes)}
        try:
            nodes_create(cluster=self.cluster, nodes=list(new.values()))
        except Malformed as error:
            for fault in error.faults:
                name = max((name for name in new if fault.path.startswith(f"{name}.")), key=len)  # names hold dots
                self.faults.append(Fault(f"{places[name]}.{fault.path.removeprefix(f'{name}.')}", fault.message))

    def _node(self, node: Node, row: NodeRow, values: dict[str, Any]) -> None:
        if not node.labels or values["labels"] == row.all_labels:
            values.pop("labels")
        memory = _memory_of(node)
        if memory is not None and memory != row.memory_for_state:
            values["memory_bytes"] = memory
        self._update("node", node.id, row, values, lambda changed: node_update(node=row, **changed))

    def _pool(self, node: Node) -> None:
        name = node.pool or DEFAULT_POOL
        # Of a pool whose nodes differ each states its own: none has another's memory.
        sizes = {other.memory_bytes for other in self.deployment.nodes if (other.pool or DEFAULT_POOL) == name}
        size = sizes.pop() if len(sizes) == 1 else None
        memory = None if size is None else max(1, round(size))
        price = None if node.price_per_hour is None else Decimal(str(node.price_per_hour))
        fields: dict[str, object] = {"cores": node.cores, "memory_bytes": memory, "price_per_hour": price}
        fields |= {"cycle_unit": node.cycle_unit, "cycles_per_ns": node.cycles_per_ns}
        pool = pool_create(cluster=self.cluster, name=name, capacity_cps=node.capacity_cps or 0.0, **fields)
        self.pools[name] = pool
        self.done.created.append(f"pool {name}")

    @cached_property
    def pools(self) -> dict[str, NodePool]:
        """Pools of the cluster by name."""
        pools = {pool.name: pool for pool in self.cluster.pools.all()}
        for pool in pools.values():
            pool.cluster = self.cluster
        return pools

    @cached_property
    def nodes(self) -> dict[str, NodeRow]:
        """Nodes of the cluster by name, once all are stored."""
        return {node.name: node for node in self.cluster.nodes.select_related("cluster")}

    def _link(self, i: int) -> None:
        link = self.deployment.links[i]
        nodes = self.nodes
        values = {"bandwidth_bytes_s": link.bandwidth_bytes_s, "delay_s": link.delay_s}
        row = self.cluster.links.filter(source=nodes[link.source], target=nodes[link.target]).first()
        name = f"{link.source}->{link.target}"
        if row is None:
            link_create(source=nodes[link.source], target=nodes[link.target], **values)
            self.done.created.append(f"link {name}")
            return
        self._update("link", name, row, values, lambda changed: link_update(link=row, **changed))

    def _update(self, what: str, name: str, known: Any, values: Mapping[str, Any], store: Any) -> None:
        changed = {key: value for key, value in values.items() if getattr(known, key) != value}
        if changed:
            store(changed)
        (self.done.updated if changed else self.done.unchanged).append(f"{what} {name}")

    def _source(self, source: Source) -> None:
        name = self.names[source.id]
        if name != source.id and name in self.shared:
            message = f"id is {source.id!r}, stored as {name!r}, and so is another source; allowed: another name"
            raise Malformed(f"id: {message}.", [("id", message)])
        counts = SourceCounts(
            name,
            source.arrivals,  # type: ignore[arg-type]
            source.arrivals_step_s,
            source.dispersion,
            source.dispersion_step_s,
            source.event_fields,
        )
        self.arrivals.append(arrivals_row(self.cluster, counts, self.deployment.subinterval_s, self.fill))

    def _store_arrivals(self) -> None:
        """Arrivals of all sources at once."""
        known_s = self.deployment.subintervals * self.deployment.subinterval_s
        before = arrivals_store(cluster=self.cluster, rows=self.arrivals)
        for source, row, digest in zip(self.deployment.sources, self.arrivals, before, strict=True):
            name = row.source_id
            if name != source.id:
                self.done.notes.append(
                    f"source {source.id} was stored as {name}: it was one query's share of another source"
                )
            if known_s > self.cluster.horizon_s * (1 + 1e-9):
                self.done.notes.append(f"source {name}: the first {self.cluster.horizon_s:g} of {known_s:g} s are kept")
            if self.deployment.subinterval_s > self.cluster.slice_s:
                self.done.notes.append(
                    f"source {name} is known at {self.deployment.subinterval_s:g} s only, spread evenly"
                )
            listed = self.done.unchanged if row.digest == digest else self.done.updated
            (self.done.created if digest is None else listed).append(f"source {name}")

    def _new(self, query: str, body: dict[str, Any], known: Surroundings) -> QueryReading:
        objective = self.deployment.objective_of(query)
        bound = {"statistic": objective.statistic, "bound_s": objective.bound_s} if objective else None
        new = NewQuery(query, body, bound, self.deployment.priorities.get(query, 0))
        return query_read(self.cluster, new, known)

    def _queries(self, report: Report) -> None:
        """Queries that exist get a new version each, the others are created all at once."""
        known = self.cluster.queries.select_related("cluster", "running_version")
        rows = [row for row in known if row.name in self.bodies]
        for i, row in enumerate(rows):
            report(_STORED + (1.0 - _STORED) * i / len(rows), "Storing versions of queries")
            self._attempt(f"queries.{row.name}", lambda row=row: self._within(lambda: self._version(row)))
        self.faults += [
            Fault(f"queries.{name}", f"query {name!r} was deleted or renamed while the document was read")
            for name in sorted(self.bodies.keys() - {row.name for row in rows})
        ]
        try:
            with transaction.atomic():
                queries_store(cluster=self.cluster, readings=self.new, user=self.user, start=self.start)
        except Malformed as error:
            self.faults += error.faults
        self.done.created.extend(f"query {reading.query.name}" for reading in self.new)

    def _version(self, query: Query) -> None:
        version = query_version_create(query=query, body=self.bodies[query.name], note="imported", user=self.user)
        self.done.updated.append(f"query {query.name}")
        if self.start:
            query_start(version=version, placement={row.name: row.requested for row in version.operators.all()})

    def _operator(self, operator: Operator, query: str) -> dict[str, Any]:
        """An operator by its bare name, its models restated for the cluster's subinterval."""
        factor = self.cluster.subinterval_s / self.deployment.subinterval_s
        inputs = tuple(_restate_for_document(entry, factor) for entry in operator.inputs)
        document = operator_document(replace(operator, inputs=inputs, query=None))
        document["id"] = operator.id.removeprefix(f"{query}/")
        for entry in document["inputs"]:
            if entry["from"] in self.waiting and "backlog" not in entry:
                entry["backlog"] = backlog_document(self.waiting[entry["from"]])
            entry["from"] = self.names.get(entry["from"], entry["from"].removeprefix(f"{query}/"))
        return document


def _node_facts(node: Node) -> dict[str, object]:
    """A node as bodies of queries know it."""
    names = ("id", "capacity_cps", "cores", "cycle_unit", "cycles_per_ns")
    return {name: getattr(node, name) for name in names}


def _memory_of(node: Node) -> int | None:
    return None if node.memory_bytes is None else max(1, round(node.memory_bytes))


def _source_name(name: str) -> str:
    """Names of private copies (`clicks@checkout`) are made by snapshots; stored, one is a source like any other."""
    return name.replace("@", "-").replace("/", "-")


def _restate_for_document(entry: Input, factor: float) -> Input:
    """Polynomials for a subinterval `factor` times as long, as `Deployment.coarsened` does it."""
    if entry.model is None:
        return entry
    output, cycles = ((c0 * factor, c1, c2 / factor) for c0, c1, c2 in (entry.model.output, entry.model.cycles))
    return replace(entry, model=InputModel(output, cycles))
