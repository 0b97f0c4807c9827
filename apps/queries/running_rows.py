"""Running queries as the engine takes them, made of their rows once per content and process.

A snapshot of thousands of operators is taken many times between two changes, and nearly all of it is what it was. The
bare rows are cheap to read; what is made of them is kept for as long as they say the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from apps.queries.bodies import with_operators
from apps.queries.engine_rows import engine_operator, inputs_of
from apps.queries.models import Operator, OperatorInput, Placement, Query, QueryVersion
from apps.queries.parts import query_shorts
from engine import elements

__all__ = ["Running", "running_queries"]

_KEPT = 5_000  # versions; a fleet has hundreds

_Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Running:
    """A running query: its operators in their places, the sources it reads, and short words for its content."""

    query: Query
    operators: tuple[elements.Operator, ...]
    reads: tuple[str, ...]
    shorts: Mapping[str, str]


@dataclass(frozen=True)
class _Stored:
    """All rows that a version's part of a snapshot is made of; equal rows make equal parts."""

    name: str
    private: bool
    operators: _Rows
    inputs: _Rows
    replicas: list[tuple[elements.Replica, ...]]
    first_placed: int


@dataclass(frozen=True)
class _Made:
    operators: tuple[elements.Operator, ...]
    reads: tuple[str, ...]
    shorts: Mapping[str, str]


class _Kept:
    """What was made of each version's rows, the least recently used dropped first."""

    def __init__(self, most: int) -> None:
        self._kept: OrderedDict[int, tuple[_Stored, _Made]] = OrderedDict()
        self._most, self._lock = most, Lock()

    def get(self, version: int, stored: _Stored) -> _Made | None:
        with self._lock:
            found = self._kept.get(version)
            if found is None or not _is_same(found[0], stored):
                return None
            self._kept.move_to_end(version)
            return found[1]

    def put(self, version: int, stored: _Stored, made: _Made) -> None:
        with self._lock:
            self._kept[version] = stored, made
            self._kept.move_to_end(version)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


_kept = _Kept(_KEPT)


def running_queries(queries: Sequence[Query], nodes: Mapping[int, str]) -> list[Running]:
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
    stored = _stored(queries, nodes)
    queries = sorted(queries, key=lambda query: stored[query.running_version_id].first_placed)
    found = {pk: _kept.get(pk, rows) for pk, rows in stored.items()}
    changed = [query for query in queries if found[query.running_version_id] is None]
    if changed:
        fresh = {version.pk: _made(version, stored[version.pk]) for version in _versions(changed)}
        found |= fresh
        # Rows that were written meanwhile must not be taken for those that were read before.
        for pk, rows in _stored(changed, nodes).items():
            if _is_same(rows, stored[pk]):
                _kept.put(pk, rows, fresh[pk])
    made_of = {pk: made for pk, made in found.items() if made is not None}
    parts = ((query, made_of[query.running_version_id]) for query in queries)
    return [Running(query, made.operators, made.reads, made.shorts) for query, made in parts]


def _is_same(one: _Stored, other: _Stored) -> bool:
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


def _made(version: QueryVersion, rows: _Stored) -> _Made:
    operators = tuple(
        engine_operator(rows.name, row, replicas, rows.private)
        for row, replicas in zip(version.operators.all(), rows.replicas, strict=True)
    )
    reads = dict.fromkeys(entry.source_id for entry in inputs_of(version) if entry.source_id)
    return _Made(operators, tuple(reads), query_shorts(version, rows.replicas))


def _stored(queries: Sequence[Query], nodes: Mapping[int, str]) -> dict[int, _Stored]:
    """The bare rows of every running version."""
    wanted = [query.running_version_id for query in queries]
    operators = _grouped(
        Operator.objects.filter(version__in=wanted)
        .order_by("version", "position")
        .values_list("version_id", "pk", "name", "kind", "stateless", "bytes_per_event", Cast("extra", TextField()))
    )
    inputs = _grouped(
        OperatorInput.objects.filter(operator__version__in=wanted)
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
        )
    )
    replicas = _replicas(wanted, nodes)
    placed = {operator: place for place, operator in enumerate(replicas)}
    found = {}
    for query in queries:
        version = query.running_version_id
        listed = operators.get(version, [])
        found[version] = _Stored(
            name=query.name,
            private=query.reads_privately,
            operators=listed,
            inputs=inputs.get(version, []),
            replicas=[replicas.get(row[0], ()) for row in listed],
            first_placed=min((placed.get(row[0], len(placed)) for row in listed), default=len(placed)),
        )
    return found


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, _Rows]:
    """Rows by their first column, without it."""
    found: dict[int, _Rows] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row[1:])
    return found


def _replicas(versions: Sequence[int], nodes: Mapping[int, str]) -> dict[int, tuple[elements.Replica, ...]]:
    """Replicas of operators on the given nodes, in the order in which they were placed."""
    found: dict[int, list[elements.Replica]] = {}
    rows = Placement.objects.filter(operator__version__in=versions).order_by("pk")
    for operator, node, core, fraction in rows.values_list("operator_id", "node_id", "core", "fraction"):
        if node in nodes:
            found.setdefault(operator, []).append(elements.Replica(nodes[node], core, fraction))
    return {operator: tuple(replicas) for operator, replicas in found.items()}
