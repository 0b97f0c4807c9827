"""A whole deployment document into a cluster, and a cluster as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.core.errors import Fault, Malformed, SluiceError, fault_count, from_engine, join_path
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
from apps.jobs.models import JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.queries.arrivals.services import arrivals_create_from_counts, arrivals_fields_update
from apps.queries.models import ImportRun, Query
from apps.queries.services import NewQuery, queries_create, query_start, query_version_create
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.snapshots.parts import LARGE
from engine.document.deployment import Deployment
from engine.document.elements import STIMULUS_TIME, Input, InputModel, Node, Operator, Source
from engine.document.export import backlog_document, operator_document
from engine.errors import DocumentError
from engine.records import Flag, Record

__all__ = [
    "IMPORT",
    "DocumentImport",
    "document_export",
    "document_import",
]

DEFAULT_POOL = "imported"


@dataclass(frozen=True)
class DocumentImport(Record):
    """Effects of an import, or with `dry_run` those it would have: `node n1`, `source clicks`, `query checkout`."""

    dry_run: Flag
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_SCHEDULED = "a cluster's nodes are scheduled as their agents say; allowed: none"


class _RollBackDryRun(Exception):
    """Ends the transaction of a dry run."""


def document_export(cluster: Cluster) -> dict[str, Any]:
    """Deployment document of the running queries of a cluster, at slice width; `document_import` reads it.

    Its nodes name the policies that their agents run.
    """
    return replace(cluster_snapshot(cluster).deployment, scheduling=None).to_document()


def document_import(
    *,
    cluster: Cluster,
    document: Any,
    dry_run: bool = False,
    fill: str = "",
    query: str = "",
    start: bool = False,
    user: User | None = None,
    path: str = "",
) -> DocumentImport:
    """Create what a deployment document describes, all of it or, with any fault, nothing.

    Policies of nodes are left to their agents, and noted where they are not stimulus time. Nodes and links that exist
    are updated; arrivals of a source that exists are replaced; a query that exists gets a
    new version. Arrivals are resampled to the cluster's grid. Queries become drafts that ask for its placement.

    Parameters
    ----------
    fill : str
        What follows where the document's arrivals end before the cluster's horizon: `zero` or `repeat`.
    query : str
        The query of operators that name none.
    start : bool
        Start the queries where the document places them, past admission: for restoring what ran before.

    Raises
    ------
    Malformed
        With every fault of the document, its paths beginning with `path`.
    """
    try:
        deployment = Deployment.parse(document, placed=start)
    except DocumentError as error:
        raise from_engine(error, path) from None
    deployment = _named(deployment, query)
    faults = _unsupported_faults(deployment)
    if faults:
        raise _malformed(faults, path)
    done = DocumentImport(dry_run)
    try:
        with transaction.atomic():
            _Import(cluster, deployment, done, fill, user, path).run(start)
            if dry_run:
                raise _RollBackDryRun
    except _RollBackDryRun:
        pass
    return done


def _named(deployment: Deployment, query: str) -> Deployment:
    if not query:
        return deployment
    return replace(deployment, operators=tuple(replace(op, query=op.query or query) for op in deployment.operators))


def _unsupported_faults(deployment: Deployment) -> list[Fault]:
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


class _Import:
    """One import: sections in order of dependence, faults collected over all rows of a section."""

    def __init__(
        self, cluster: Cluster, deployment: Deployment, done: DocumentImport, fill: str, user: User | None, path: str
    ) -> None:
        self.cluster, self.deployment, self.done = cluster, deployment, done
        self.fill, self.user, self.path = fill, user, path
        self.faults: list[Fault] = []
        self.names = {source.id: _source_name(source.id) for source in deployment.sources}
        self.waiting = {source.id: source.backlog for source in deployment.sources if source.backlog}

    def run(self, start: bool) -> None:
        cluster_locked(self.cluster).get()  # nothing is admitted, moved or taken away meanwhile
        self._nodes()
        self._refuse()
        self.done.notes.extend(
            f"node {node.id}: the document has {node.scheduling}; here its agents say which policy it runs"
            for node in self.deployment.nodes
            if node.scheduling not in (None, STIMULUS_TIME)
        )
        for i in range(len(self.deployment.links)):
            self._attempt(f"links[{i}]", lambda i=i: self._link(i))
        for i, source in enumerate(self.deployment.sources):
            self._attempt(f"sources[{i}]", lambda source=source: self._source(source))
        self._refuse()
        self._queries(start)
        self._refuse()

    def _attempt(self, path: str, store: Any) -> None:
        try:
            with transaction.atomic():
                store()
        except SluiceError as error:
            self.faults += [Fault(f"{path}.{f.path}" if f.path else path, f.message) for f in error.faults] or [
                Fault(path, error.message)
            ]

    def _refuse(self) -> None:
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
                self._attempt(f"nodes[{i}]", lambda node=node, values=values: self._node(node, known[node.id], values))
                continue
            if (node.pool or DEFAULT_POOL) not in self.pools:
                self._attempt(f"nodes[{i}]", lambda node=node: self._pool(node))
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
        values["labels"] = {**row.pool.labels, **row.labels} if not node.labels else values["labels"]
        if {**row.pool.labels, **row.labels} == values["labels"]:
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
        row = self.cluster.arrivals.filter(source_id=name).first()
        before = row.digest if row else None
        stored = arrivals_create_from_counts(
            cluster=self.cluster,
            source_id=name,
            counts=source.arrivals,  # type: ignore[arg-type]
            step_s=self.deployment.subinterval_s,
            fill=self.fill,
            known_step_s=source.arrivals_step_s,
            dispersion=source.dispersion,
            dispersion_step_s=source.dispersion_step_s,
            replace=True,
        )
        if source.event_fields is not None:
            arrivals_fields_update(arrivals=stored, event_fields=asdict(source.event_fields))
        if name != source.id:
            self.done.notes.append(
                f"source {source.id} was stored as {name}: it was one query's share of another source"
            )
        known_s = self.deployment.subintervals * self.deployment.subinterval_s
        if known_s > self.cluster.horizon_s * (1 + 1e-9):
            self.done.notes.append(f"source {name}: the first {self.cluster.horizon_s:g} of {known_s:g} s are kept")
        if self.deployment.subinterval_s > self.cluster.slice_s:
            self.done.notes.append(f"source {name} is known at {self.deployment.subinterval_s:g} s only, spread evenly")
        listed = self.done.unchanged if stored.digest == before else self.done.updated if row else self.done.created
        listed.append(f"source {name}")

    def _queries(self, start: bool) -> None:
        """Queries that exist get a new version each, the others are created all at once."""
        rows = {row.name: row for row in self.cluster.queries.select_related("cluster", "running_version")}
        new: list[NewQuery] = []
        for query in self.deployment.queries:
            operators = [self.deployment.operators[i] for i in self.deployment.operators_of(query)]
            body = {"operators": [self._operator(operator, query) for operator in operators]}
            if query in rows:
                known = rows[query]
                self._attempt(
                    f"queries.{query}", lambda known=known, body=body: self._version(known, body, start=start)
                )
                continue
            objective = self.deployment.objective_of(query)
            bound = {"statistic": objective.statistic, "bound_s": objective.bound_s} if objective else None
            new.append(NewQuery(query, body, bound, self.deployment.priorities.get(query, 0)))
        try:
            with transaction.atomic():
                queries_create(cluster=self.cluster, queries=new, user=self.user, start=start)
        except Malformed as error:
            self.faults += error.faults
        self.done.created.extend(f"query {query.name}" for query in new)

    def _version(self, query: Query, body: dict[str, Any], *, start: bool) -> None:
        version = query_version_create(query=query, body=body, note="imported", user=self.user)
        self.done.updated.append(f"query {query.name}")
        if start:
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


class ImportKind(RunKind[ImportRun]):
    """Import of a deployment document into a cluster, or a check of one; options as of `document_import`."""

    model, job, name = ImportRun, JobKind.IMPORT, "import"
    related, bulk = ("cluster", "job__cluster", "requested_by"), ("document",)
    retention, old = timedelta(days=7), Q()

    def title(self, run: ImportRun) -> str:
        what = "Check" if run.options["dry_run"] else "Import"
        return f"{what} a document of {run.counts['operators']} operators"

    def is_long(self, run: ImportRun) -> bool:
        return int(run.counts["nodes"]) + int(run.counts["queries"]) > LARGE

    def page(self, run: ImportRun) -> str:
        return f"/c/{run.cluster.slug}/import/{run.pk}/"

    def create(
        self,
        *,
        user: User | None,
        cluster: Cluster,
        document: Any,
        dry_run: bool = True,
        fill: str = "",
        query: str = "",
        start: bool = False,
        path: str = "document",
    ) -> ImportRun:
        """Write an import without a job.

        Raises
        ------
        Malformed
            With every fault of the document itself. What does not fit the cluster is found by the job.
        """
        try:
            read = Deployment.parse(document, placed=start)
        except DocumentError as error:
            refusal = from_engine(error, path)
            faults = refusal.faults
            first = f"first: {faults[0].path}: {faults[0].message}" if faults else refusal.message
            raise Malformed(f"The document has {fault_count(faults)}; {first}", faults) from None
        return ImportRun.objects.create(
            cluster=cluster,
            requested_by=user,
            document=document,
            options={"dry_run": dry_run, "fill": fill, "query": query, "start": start},
            counts={"nodes": len(read.nodes), "queries": len(read.queries), "operators": len(read.operators)},
        )

    @transaction.atomic
    def answer(self, run: ImportRun, report: JobReporter) -> None:
        """Import. What is stored and that it is stored are one transaction: done again, it is not done twice."""
        report(0.2, "Checking and storing nodes, arrivals and queries")
        row = ImportRun.objects.select_for_update().get(pk=run.pk)
        if row.result is None:
            done = document_import(cluster=run.cluster, document=row.document, user=run.requested_by, **run.options)
            row.result, row.state = done.to_dict(), self.answered  # what is stored stays so, however its job ends
            row.save(update_fields=["result", "state"])
        run.result = row.result

    def facts(self, run: ImportRun) -> Mapping[str, object]:
        return {name: len(run.result[name]) for name in ("created", "updated", "unchanged")}


IMPORT = register(ImportKind())
