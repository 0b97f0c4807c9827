"""Rows of the database as elements of the engine, those of running queries cached by their content."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from apps.fleet.models import Node
from apps.queries.arrivals.series import load_arrays
from apps.queries.bodies import COST_NOISE_NAMES, cost_noise_of, evidence_of, with_operators
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, QueryVersion
from apps.queries.snapshots.contents import query_shorts
from engine.arrays import FloatArray, frozen_array
from engine.document import elements
from engine.document.export import operator_document

__all__ = [
    "RunningQuery",
    "arrivals_noise",
    "candidate_operator",
    "engine_node",
    "engine_objective",
    "engine_operator",
    "engine_source",
    "engine_sources",
    "event_fields",
    "operator_id",
    "private_arrivals",
    "running_queries",
    "source_name",
    "version_inputs",
]


# Documents are at a quarter of a subinterval, and so are the polynomials of operators with a model.
_SLICE_SHARE = 0.25


def operator_id(query: str, operator: str) -> str:
    """An operator's id in the cluster's documents; a name that has the query's prefix already stays as it is."""
    return operator if operator.startswith(f"{query}/") else f"{query}/{operator}"


def version_inputs(version: QueryVersion) -> Iterable[OperatorInput]:
    """Every input of a version with fetched operators."""
    return (entry for row in version.operators.all() for entry in row.inputs.all())


def engine_node(node: Node) -> elements.Node:
    price = node.pool.price_per_hour
    return elements.Node(
        node.name,
        capacity_cps=node.capacity_cps,
        cores=node.cores,
        pool=node.pool.name,
        price_per_hour=None if price is None else float(price),
        memory_bytes=None if node.memory_for_state is None else float(node.memory_for_state),
        labels={**node.pool.labels, **node.labels},
        cycle_unit=node.cycle_unit,
        cycles_per_ns=node.cycles_per_ns,
    )


def engine_objective(query: Query) -> elements.Objective:
    return elements.Objective(query.name, query.objective_statistic, float(query.objective_bound_s or 0))


def source_name(source: str, query: str, private: bool) -> str:
    """Source that a query reads: the source itself, or its private copy `source@query`."""
    return f"{source}@{query}" if private else source


def private_arrivals(values: FloatArray, *, rate_share: float, start_s: float, slice_s: float) -> FloatArray:
    """A query's share of a source's events per slice; nothing before its start."""
    late = np.arange(len(values)) * slice_s < start_s - 1e-9 * slice_s
    return frozen_array(np.where(late, 0.0, values * rate_share))


def event_fields(row: ArrivalSeries) -> elements.EventFields | None:
    """Fields of a source's events, where they are stated."""
    return elements.EventFields(**row.event_fields) if row.event_fields else None


def engine_source(row: ArrivalSeries, values: FloatArray, name: str) -> elements.Source:
    """A source with a row's facts, under a name of its own and with a query's share of its arrivals."""
    return elements.Source(name, values, event_fields(row), **arrivals_noise(row))


def arrivals_noise(row: ArrivalSeries) -> dict[str, float | None]:
    """Step and dispersion of a source's arrivals, as fields of a source in a document."""
    return {
        "arrivals_step_s": row.step_s,
        "dispersion": row.dispersion,
        "dispersion_step_s": row.dispersion_step_s,
    }


def engine_sources(
    queries: Sequence[Query], reads: Mapping[int | None, Iterable[str]], rows: Mapping[str, ArrivalSeries]
) -> tuple[elements.Source, ...]:
    """Each source once in its original, and once for every query that has a share of it.

    `reads` are the sources that each running version reads.
    """
    arrays = load_arrays(rows.values())
    by_name: dict[str, elements.Source] = {}
    for query in queries:
        for source in reads[query.running_version_id]:
            name = source_name(source, query.name, query.reads_privately)
            if name not in by_name:
                values = arrays[source]
                if query.reads_privately:
                    share, slice_s = query.rate_share, query.cluster.slice_s
                    values = private_arrivals(values, rate_share=share, start_s=query.start_s, slice_s=slice_s)
                by_name[name] = engine_source(rows[source], values, name)
    return tuple(by_name[name] for name in sorted(by_name))


def engine_operator(
    query: str, row: Operator, replicas: tuple[elements.Replica, ...], private: bool
) -> elements.Operator:
    inputs = list(row.inputs.all())
    evidence, extra = evidence_of(inputs), row.extra
    return elements.Operator(
        id=operator_id(query, row.name),
        replicas=replicas,
        inputs=tuple(_engine_input(query, entry, private) for entry in inputs),
        bytes_per_event=row.bytes_per_event,
        stateless=row.stateless,
        query=query,
        kind=row.kind,
        filter=elements.FilterFeatures(**extra["filter"]) if extra.get("filter") else None,
        join=elements.JoinFeatures(**extra["join"]) if extra.get("join") else None,
        aggregate=elements.AggregateFeatures(**extra["aggregate"]) if extra.get("aggregate") else None,
        window=elements.Window(**extra["window"]) if extra.get("window") else None,
        trigger=elements.MicroBatchTrigger(**extra["trigger"]) if extra.get("trigger") else None,
        buffer_timeout_s=extra.get("buffer_timeout_s"),
        state_bytes=extra.get("state_bytes"),
        state_on_disk=extra.get("state_on_disk"),
        tuple_values_in=extra.get("tuple_values_in"),
        tuple_values_out=extra.get("tuple_values_out"),
        # Without its age: the engine decides by kind and events, and a snapshot must not change with the clock alone.
        evidence=elements.Evidence(evidence["kind"], float(evidence["events"]), cycle_unit=evidence.get("cycle_unit")),
        reads=_names(extra.get("reads")),
        writes=_names(extra.get("writes")),
        expression=extra.get("expression"),
        unread=_names(extra.get("unread")),
    )


def _names(listed: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(listed)


def _engine_input(query: str, entry: OperatorInput, private: bool) -> elements.Input:
    model = _model_of_slice(entry.model) if entry.model else None
    return elements.Input(
        source=_input_name(query, entry, private),
        selectivity=entry.selectivity,
        cycles_per_event=entry.cycles_per_event or 0.0,
        never_ran=entry.cycles_per_event is None,
        model=elements.InputModel(tuple(model["output"]), tuple(model["cycles"])) if model else None,
        batches=tuple(elements.Batch(**batch) for batch in entry.batches),
        **cost_noise_of(entry),
    )


def _input_name(query: str, entry: OperatorInput, private: bool) -> str:
    if entry.upstream:
        return operator_id(query, entry.upstream.name)
    return source_name(entry.source_id, query, private)


def _model_of_slice(model: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Polynomials in the events of a subinterval, restated for a slice whose events are a quarter of them."""
    return {
        name: [c0 * _SLICE_SHARE, c1, c2 / _SLICE_SHARE]
        for name, (c0, c1, c2) in ((name, model[name]) for name in ("output", "cycles"))
    }


def candidate_operator(query: str, row: Operator, asked: Any, private: bool) -> dict[str, object]:
    """An operator as it stands in the document of a candidate, with the places that were asked for."""
    operator = replace(engine_operator(query, row, (), private), query=None)
    return operator_document(operator) | _where(asked if asked is not None else row.requested)


def _where(asked: Any) -> dict[str, Any]:
    """A node's name, one replica or several, as an operator of a document says it."""
    if not asked:
        return {}
    if isinstance(asked, str):
        return {"node": asked}
    replicas = [asked] if isinstance(asked, Mapping) else list(asked)
    if len(replicas) == 1 and replicas[0].get("fraction", 1.0) == 1.0:
        return {"node": replicas[0]["node"], "core": replicas[0].get("core", 0)}
    return {"split": [dict(replica) for replica in replicas]}


_CACHED_VERSIONS = 5_000  # versions; a fleet has hundreds

_Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class RunningQuery:
    """A running query: its operators in their places, the sources it reads, and short words for its content."""

    query: Query
    operators: tuple[elements.Operator, ...]
    reads: tuple[str, ...]
    shorts: Mapping[str, str]


@dataclass(frozen=True)
class _VersionRows:
    """All rows that a version's part of a snapshot is made of; equal rows make equal parts."""

    name: str
    private: bool
    operators: _Rows
    inputs: _Rows
    replicas: list[tuple[elements.Replica, ...]]
    first_placed: int


@dataclass(frozen=True)
class _Elements:
    operators: tuple[elements.Operator, ...]
    reads: tuple[str, ...]
    shorts: Mapping[str, str]


class _RunningCache:
    """Cache of objects made of each version's rows, the least recently used dropped first."""

    def __init__(self, size: int) -> None:
        self._kept: OrderedDict[int, tuple[_VersionRows, _Elements]] = OrderedDict()
        self._most, self._lock = size, Lock()

    def get(self, version: int, stored: _VersionRows) -> _Elements | None:
        with self._lock:
            entry = self._kept.get(version)
            if entry is None or not _is_same(entry[0], stored):
                return None
            self._kept.move_to_end(version)
            return entry[1]

    def put(self, version: int, stored: _VersionRows, built: _Elements) -> None:
        with self._lock:
            self._kept[version] = stored, built
            self._kept.move_to_end(version)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


_running_cache = _RunningCache(_CACHED_VERSIONS)


def running_queries(queries: Sequence[Query], nodes: Mapping[int, str]) -> list[RunningQuery]:
    """Running queries in the order in which they were admitted.

    Ties between operators on one server go by listing order, and admission lists the candidate last: listed here in
    the order in which they were placed, queries have the estimates that their previews showed.

    Parameters
    ----------
    queries : sequence of Query
        All with a running version.
    nodes : mapping
        Names of the nodes that are there, by primary key; replicas elsewhere do not count.
    """
    stored = _read_rows(queries, nodes)
    queries = sorted(queries, key=lambda query: stored[query.running_version_id].first_placed)
    cached = {pk: _running_cache.get(pk, rows) for pk, rows in stored.items()}
    changed = [query for query in queries if cached[query.running_version_id] is None]
    if changed:
        fresh: dict[int | None, _Elements] = {
            version.pk: _make_elements(version, stored[version.pk]) for version in _versions(changed)
        }
        cached |= fresh
        # Rows that were written meanwhile must not be taken for those that were read before.
        for pk, rows in _read_rows(changed, nodes).items():
            if _is_same(rows, stored[pk]):
                _running_cache.put(pk, rows, fresh[pk])
    made_of = {pk: made for pk, made in cached.items() if made is not None}
    parts = ((query, made_of[query.running_version_id]) for query in queries)
    return [RunningQuery(query, made.operators, made.reads, made.shorts) for query, made in parts]


def _is_same(one: _VersionRows, other: _VersionRows) -> bool:
    """Whether two have the same rows, wherever they stand among the others."""
    return (one.name, one.private, one.operators, one.inputs, one.replicas) == (
        other.name,
        other.private,
        other.operators,
        other.inputs,
        other.replicas,
    )


def _versions(queries: Sequence[Query]) -> QuerySet[QueryVersion]:
    return with_operators(QueryVersion.objects.filter(pk__in=[query.running_version_id for query in queries]))


def _make_elements(version: QueryVersion, rows: _VersionRows) -> _Elements:
    operators = tuple(
        engine_operator(rows.name, row, replicas, rows.private)
        for row, replicas in zip(version.operators.all(), rows.replicas, strict=True)
    )
    reads = dict.fromkeys(entry.source_id for entry in version_inputs(version) if entry.source_id)
    return _Elements(operators, tuple(reads), query_shorts(version, rows.replicas))


def _read_rows(queries: Sequence[Query], nodes: Mapping[int, str]) -> dict[int | None, _VersionRows]:
    """The bare rows of every running version."""
    versions = [query.running_version_id for query in queries]
    operators = _grouped(
        Operator.objects.filter(version__in=versions)
        .order_by("version", "position")
        .values_list("version_id", "pk", "name", "kind", "stateless", "bytes_per_event", Cast("extra", TextField()))
    )
    inputs = _grouped(
        OperatorInput.objects.filter(operator__version__in=versions)
        .order_by("operator__version", "operator__position", "position")
        .values_list(
            "operator__version_id",
            "operator_id",
            "upstream_id",
            "source_id",
            "selectivity",
            "cycles_per_event",
            Cast("model", TextField()),
            "evidence",
            "events",
            Cast("batches", TextField()),
            "cycle_unit",
            *COST_NOISE_NAMES,
        )
    )
    replicas = _replicas(versions, nodes)
    placed = {operator: place for place, operator in enumerate(replicas)}
    found = {}
    for query in queries:
        version = query.running_version_id
        listed = operators.get(version, [])
        found[version] = _VersionRows(
            name=query.name,
            private=query.reads_privately,
            operators=listed,
            inputs=inputs.get(version, []),
            replicas=[replicas.get(row[0], ()) for row in listed],
            first_placed=min((placed.get(row[0], len(placed)) for row in listed), default=len(placed)),
        )
    return found


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int | None, _Rows]:
    """Rows by their first column, without it."""
    groups: dict[int | None, _Rows] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row[1:])
    return groups


def _replicas(versions: Sequence[int | None], nodes: Mapping[int, str]) -> dict[int, tuple[elements.Replica, ...]]:
    """Replicas of operators on the given nodes, in the order in which they were placed."""
    by_operator: dict[int, list[elements.Replica]] = {}
    rows = Placement.objects.filter(operator__version__in=versions).order_by("pk")
    for operator, node, core, fraction in rows.values_list("operator_id", "node_id", "core", "fraction"):
        if node in nodes:
            by_operator.setdefault(operator, []).append(elements.Replica(nodes[node], core, fraction))
    return {operator: tuple(replicas) for operator, replicas in by_operator.items()}
