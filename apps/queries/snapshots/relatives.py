"""Costs of operators that were measured in queries that run no more, for those of a candidate that never ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.conf import settings
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db.models import Max
from django.utils import timezone

from apps.fleet.choices import CostEvidence
from apps.fleet.models import Cluster
from apps.ledger.choices import ChangeAction
from apps.ledger.models import KeptRows, ObjectChange
from apps.queries.arrivals.series import arrival_rows, load_arrays
from apps.queries.bodies import with_operators
from apps.queries.choices import QueryState
from apps.queries.models import Operator, OperatorInput, Query, QueryVersion
from apps.queries.snapshots.elements import engine_operator
from apps.queries.snapshots.states import cluster_state
from engine.document import elements
from engine.document.relatives import RelativeCost, relative_costs
from engine.document.translation import stream_rates

__all__ = ["StoppedRelatives"]

_MOST = 100  # queries that run no more, and as many deleted ones: the newest


@dataclass(frozen=True)
class StoppedRelatives:
    """Costs of operators of a cluster's queries that run no more, read once, where a candidate first needs them.

    They are for where the engine is asked: what candidates are compared by, and checked by, does without.
    """

    cluster: Cluster

    @cached_property
    def _costs(self) -> list[dict[str, Any]]:
        return [cost.to_dict() for cost in _relatives_stopped(self.cluster)]

    def beside(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The document of a candidate with these costs, where a cost of its own is not known."""
        entries = (entry for operator in document["operators"] for entry in operator["inputs"])
        is_lacking = any(entry.get("cycles_per_event") is None for entry in entries)
        return {**document, **({"relatives": self._costs} if is_lacking and self._costs else {})}


def _relatives_stopped(cluster: Cluster) -> tuple[RelativeCost, ...]:
    """Costs of operators of queries of a cluster that stopped or were deleted, as long as those are kept.

    Rates are those that their sources have now. What reads a source that is gone is left out, as is what cannot be read
    any more.
    """
    queries = [*_stopped(cluster), *_deleted(cluster)]
    read = {entry.source for operators in queries for op in operators for entry in op.inputs}
    rows = arrival_rows(cluster, read)
    series = load_arrays(rows)
    sources = {row.source_id: float(series[row.source_id].mean()) / cluster.slice_s for row in rows}
    processor = cluster_state(cluster).stream_processor
    costs: list[RelativeCost] = []
    for operators in queries:
        ids = {operator.id for operator in operators}
        if all(entry.source in ids or entry.source in sources for op in operators for entry in op.inputs):
            costs += relative_costs(operators, stream_rates(operators, sources, cluster.slice_s), processor)
    return tuple(costs)


def _stopped(cluster: Cluster) -> Iterator[tuple[elements.Operator, ...]]:
    """Operators of the newest measured version of each query that is there and does not run."""
    measured = OperatorInput.objects.filter(
        evidence=CostEvidence.MEASURED, operator__version__query__cluster=cluster
    ).exclude(operator__version__query__state=QueryState.RUNNING)
    newest = measured.values("operator__version__query").annotate(
        version=Max("operator__version"), at=Max("measured_at")
    )
    keys = newest.order_by("-at").values_list("version", flat=True)[:_MOST]
    for version in with_operators(QueryVersion.objects.filter(pk__in=list(keys))).order_by("pk"):
        yield tuple(_engine_operators(version.query.name, version.operators.all()))


def _deleted(cluster: Cluster) -> Iterator[tuple[elements.Operator, ...]]:
    """Operators of the newest measured version of each deleted query whose rows are kept."""
    since = timezone.now() - timedelta(days=settings.UNDO_DAYS)
    changes = ObjectChange.objects.filter(
        cluster_key=cluster.pk, kind=Query.ledger_kind, action=ChangeAction.DELETED, at__gte=since, undone=None
    ).exclude(kept="")
    digests = dict(changes.values_list("kept", "name")[:_MOST])
    for content in KeptRows.objects.filter(pk__in=digests).order_by("pk"):
        try:
            rows = [entry.object for entry in serializers.deserialize("python", content.rows)]
        except (serializers.base.DeserializationError, ValidationError, ValueError):
            continue  # of another version of Sluice
        yield tuple(_revived(digests[content.pk], rows))


def _revived(query: str, rows: Iterable[Any]) -> Iterator[elements.Operator]:
    """Operators of the newest version with a measured cost among the rows of a deleted query."""
    by_kind: dict[type, list[Any]] = {}
    for row in rows:
        by_kind.setdefault(type(row), []).append(row)
    operators = {row.pk: row for row in by_kind.get(Operator, [])}
    inputs: dict[Any, list[OperatorInput]] = {}
    for entry in sorted(by_kind.get(OperatorInput, []), key=lambda row: row.position):
        if entry.operator_id in operators:
            entry.upstream = operators.get(entry.upstream_id)
            inputs.setdefault(entry.operator_id, []).append(entry)
    measured = {
        operators[pk].version_id
        for pk, entries in inputs.items()
        if any(entry.evidence == CostEvidence.MEASURED for entry in entries)
    }
    own = [row for row in operators.values() if row.version_id == max(measured, default=None)]
    yield from _engine_operators(query, sorted(own, key=lambda row: row.position), inputs)


def _engine_operators(
    query: str, rows: Iterable[Operator], inputs: Mapping[Any, list[OperatorInput]] | None = None
) -> Iterator[elements.Operator]:
    for row in rows:
        entries = None if inputs is None else inputs.get(row.pk, [])
        yield replace(engine_operator(query, row, (), False, entries), query=query)
